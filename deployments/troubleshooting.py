"""The sections of docs/troubleshooting.md, which each message of ours names in its last line."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent


def more(anchor: str) -> str:
    """The last line of a message: where to read on, with and without the repository."""
    return f"More: classgan help {anchor}   (docs/troubleshooting.md#{anchor})"


def sections() -> dict[str, str]:
    """Anchor → text of each section. The page lies beside our modules in an installation, in docs/ in a checkout."""
    places = (HERE / "troubleshooting.md", HERE.parent / "docs" / "troubleshooting.md")
    page = next(path for path in places if path.exists()).read_text(encoding="utf-8")
    found = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)[1:]
    titles, texts = found[::2], found[1::2]
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): f"## {title}\n{text}"
        for title, text in zip(titles, texts, strict=True)
    }
