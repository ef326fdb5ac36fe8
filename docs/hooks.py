"""Called by MkDocs: links that work where the repository is read work on the site, too.

README.md and every other file of the project that a page links to become pages of the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
README, START = "README.md", "start.md"  # MkDocs would take a README.md for the index
LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)")
LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".ipynb": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that aren't in docs/."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts[README] = (ROOT / README).read_text(encoding="utf-8")
    files.append(File.generated(config, START, content=texts[README]))
    for path in sorted({_target(page, link) for page, text in texts.items() for link in LINK.findall(text)}):
        if not path.startswith("docs/") and path != README:
            text = (ROOT / path).read_text(encoding="utf-8")
            block = f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"
            files.append(File.generated(config, _on_site(path), content=block))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead its links to the places of the site."""
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown
    path = README if here == START else f"docs/{here}"
    return LINK.sub(
        lambda link: posixpath.relpath(_on_site(_target(path, link[1])), posixpath.dirname(here) or "."), markdown
    )


def _target(page: str, link: str) -> str:
    """The file that a page links to, both from the project's folder."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _on_site(path: str) -> str:
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return START if path == README else f"source/{path.lstrip('.')}.md"
