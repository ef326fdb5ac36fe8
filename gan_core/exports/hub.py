"""The Hugging Face Hub: files into a repository in one commit, and one file out of it. Bytes only; errors in our words.

The token comes from where huggingface_hub looks for it (HF_TOKEN, `hf auth login`), or from the caller. It is never
logged and never part of a sentence.
"""

import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gan_core.errors import HubBusy, HubError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
LARGEST = 2_000_000_000  # bytes of a file that is fetched: a generator of ours has at most a few hundred million
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
LATER = "Nothing here is lost; try again later."
LOGIN = "run `hf auth login` on this machine, or set HF_TOKEN"


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push led to."""

    url: str  # of the commit
    files: int


def require_repo(repo: str) -> str:
    """The name itself. Raises HubError if it isn't OWNER/REPO."""
    if not REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise HubError(f"{repo!r} is not a repository of the hub. Write OWNER/REPO, as in ada/digits.")
    return repo


def commit(repo: str, files: Mapping[str, bytes], message: str, token: str | None = None) -> Pushed:
    """Put these files (path → content) into a repository in one commit: all of them or none.

    The repository is made if there is none, as visible as its owner makes new ones.

    Args:
        token: None for the one that huggingface_hub finds.

    Raises:
        HubError: the hub says no; the sentence says what to do.
        HubBusy: it is away or asks for patience, after several attempts with pauses.
    """
    require_repo(repo)
    api, hub = _api(token)
    with _translated(repo, token):
        api.create_repo(repo, exist_ok=True)
        adds = [hub.CommitOperationAdd(path, content) for path, content in files.items()]
        done = api.create_commit(repo, adds, commit_message=message)
    return Pushed(str(done.commit_url), len(files))


def fetch(repo: str, name: str, folder: Path, largest: int = LARGEST, token: str | None = None) -> Path:
    """Download one file into a cache in this folder; again, only what has changed. The bytes are a stranger's.

    Raises:
        HubError: there is no such repository or file, or it is larger than `largest` bytes.
        HubBusy: the hub is away.
    """
    require_repo(repo)
    api, hub = _api(token)
    with _translated(repo, token, name):
        size = api.get_hf_file_metadata(url=hub.hf_hub_url(repo, name, endpoint=api.endpoint)).size
        if size is None or size > largest:
            raise HubError(
                f"{name} in {repo} has {size if size is None else f'{size:,}'} bytes; at most {largest:,} are fetched."
            )
        return Path(api.hf_hub_download(repo, name, cache_dir=folder))


def check(repo: str, token: str | None = None) -> list[str]:
    """Try everything that a push needs, with a small file: one line for each step that went well.

    Raises:
        HubError, HubBusy: a step failed; the sentence says what to do.
    """
    if repo:
        require_repo(repo)
    api, hub = _api(token)
    steps = [f"huggingface_hub {hub.__version__} speaks to {api.endpoint}"]
    with _translated(repo or "this hub", token):
        me = api.whoami()
        groups = ", ".join(org["name"] for org in me.get("orgs", [])) or "none"
        steps.append(f"the token is that of {me['name']} (organisations: {groups})")
        if not repo:
            return steps
        probe = b"Written by `classgan push --check`. It may be deleted.\n"
        commit(repo, {".classgan-check": probe}, "classgan push --check", token)
        steps.append(f"it may write to {repo}")
        with tempfile.TemporaryDirectory() as folder:
            came_back = fetch(repo, ".classgan-check", Path(folder), token=token).read_bytes()
        if came_back != probe:
            raise HubError(
                f"What was read back from {repo} isn't what was written. Something between this machine and the "
                "hub changes files: try another network."
            )
        steps.append("what was written comes back unchanged")
    return steps


def _api(token: str | None) -> tuple["HfApi", ModuleType]:
    try:
        import huggingface_hub
        from huggingface_hub import constants
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as exc:
        raise HubError("The hub needs a package that isn't installed. Run `pip install 'classgan[hub]'`.") from exc
    constants.HF_HUB_DISABLE_XET = True  # plain HTTPS: small files, and it passes a school's proxy
    disable_progress_bars()
    return huggingface_hub.HfApi(token=token, library_name="classgan"), huggingface_hub


@contextmanager
def _translated(repo: str, token: str | None, file: str = "") -> Generator[None]:
    """The library's errors become ours: one sentence, with what to do."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalTokenNotFoundError

    try:
        yield
    except HubError:
        raise
    except LocalTokenNotFoundError as exc:
        raise HubError(f"There is no token for the hub here: {LOGIN}.") from exc
    except (HTTPError, OSError, ValueError, RuntimeError) as exc:
        # What failed while a file was uploaded is the cause of a RuntimeError. None of it is handed on: it may show headers.
        first = exc if isinstance(exc, HTTPError | OSError) else exc.__cause__ or exc
        if isinstance(first, HfHubHTTPError):
            raise _refusal(first.response.status_code, repo, file, _said(first, token)) from None
        if isinstance(first, HTTPError | OSError):
            raise HubBusy(f"The hub doesn't answer ({type(first).__name__}). {LATER}") from None
        raise HubError(f"{repo} could not be written or read: {_said(first, token)}.") from None


def _refusal(status: int, repo: str, file: str, said: str) -> HubError:
    """The error that this HTTP status means, with the next step."""
    if status in BUSY:
        return HubBusy(f"The hub is busy (HTTP {status}). {LATER}")
    what = {
        401: f"doesn't know this token (401). Make a new one with write access at https://huggingface.co/settings/tokens, then {LOGIN}",
        403: f"doesn't let this token write to {repo} (403). Give the token write access, or name a repository of yours: OWNER/REPO with your own name or an organisation that you belong to",
        404: f"has no {f'{file} in ' if file else ''}{repo} that this token may see (404). Check the name; for a private one, {LOGIN}",
        413: f"finds these files too large for {repo} (413)",
    }.get(status, f"refused {repo} ({status}): {said}")
    return HubError(f"The hub {what}.")


def _said(exc: BaseException, token: str | None) -> str:
    said = getattr(exc, "server_message", None) or str(exc).splitlines()[0]
    return _without(said, token).rstrip(".")[:300]


def _without(text: str, token: str | None) -> str:
    """The text without the token, and without anything that looks like one."""
    return re.sub(r"hf_\w+", "…", text.replace(token, "…") if token else text)
