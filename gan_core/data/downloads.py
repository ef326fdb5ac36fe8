"""One large file over HTTP: goes on where a broken download stopped, and is believed only when its hash is right."""

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx

from gan_core.data.image_cache import Progress, alone
from gan_core.errors import DataError
from gan_core.files import move

log = logging.getLogger("classgan.downloads")

TRIES = 6  # without a single new byte
FIRST_PAUSE = 1.0  # seconds between two tries; doubles with each
CHUNK = 1 << 20  # bytes that are hashed at a time
PATIENCE = 30.0  # seconds without a byte, after which the connection counts as broken
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class Remote:
    """A file elsewhere."""

    url: str
    size: int  # bytes
    sha256: str = ""  # as Git LFS names a large file
    git_sha1: str = ""  # as Git names a small one


def fetch(
    remote: Remote,
    path: Path,
    headers: Mapping[str, str],
    progress: Progress = lambda done, total: None,
) -> Path:
    """The file at `path`, fetched unless it is there. Another process that wants it too waits.

    Raises:
        DataError: the server doesn't answer, refuses, or sends other bytes than it promised; or there is no room.
    """
    if path.is_file():
        return path
    try:
        return _fetched(remote, path, headers, progress)
    except OSError as exc:
        raise DataError(
            f"{remote.url} can't be written to {path.parent} ({exc}). It needs {remote.size:,} bytes there: free some space, or set "
            "CLASSGAN_HOME to a folder on another disk; what is here already is kept."
        ) from exc


def _fetched(remote: Remote, path: Path, headers: Mapping[str, str], progress: Progress) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path, lambda: progress(0, max(1, remote.size))):
        if path.is_file():
            return path
        part = path.with_name(path.name + ".part")
        with part.open("ab") as file:
            _complete(remote, file, headers, progress)
        if (found := _name_of(part, remote)) != (remote.sha256 or remote.git_sha1):
            part.unlink()
            raise DataError(f"{remote.url} arrived damaged (hash {found[:12]}…); it was thrown away. Try again.")
        move(part, path)
    return path


def _complete(remote: Remote, file: BinaryIO, headers: Mapping[str, str], progress: Progress) -> None:
    """Append what is missing, however often the connection breaks, as long as something comes."""
    failures = 0
    with httpx.Client(follow_redirects=True, timeout=PATIENCE) as client:
        while (before := file.tell()) < remote.size:
            try:
                _append(client, remote, file, headers, progress)
                fault = "the connection ended early"
            except httpx.HTTPStatusError as exc:
                if exc.response.status_code not in TRANSIENT:
                    raise DataError(_refusal(remote.url, exc.response.status_code)) from exc
                fault = f"the server answers {exc.response.status_code}"
            except httpx.TransportError as exc:
                fault = str(exc) or type(exc).__name__
            if file.tell() >= remote.size:
                break
            failures = 1 if file.tell() > before else failures + 1
            if failures >= TRIES:
                raise DataError(
                    f"{remote.url} can't be fetched: {fault}. {file.tell():,} of {remote.size:,} bytes are here and are kept; "
                    "try again when the network is better."
                )
            log.info("%s: %s at %d of %d bytes; going on.", remote.url, fault, file.tell(), remote.size)
            time.sleep(FIRST_PAUSE * 2 ** (failures - 1))
            progress(file.tell(), remote.size)


def _append(
    client: httpx.Client, remote: Remote, file: BinaryIO, headers: Mapping[str, str], progress: Progress
) -> None:
    start = file.tell()
    asked = {**headers, "Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    with client.stream("GET", remote.url, headers=asked) as answer:
        answer.raise_for_status()
        if start and answer.status_code != 206:  # it sends everything once more
            file.truncate(0)
            file.seek(0)
        for chunk in answer.iter_raw():  # as it comes: of a larger block, a break would lose all
            file.write(chunk)
            progress(min(file.tell(), remote.size), remote.size)


def _refusal(url: str, status: int) -> str:
    if status in (401, 403):
        return f"{url} is not public ({status}). Ask its owner for access and log in with `hf auth login`, or choose other data."
    if status == 404:
        return f"{url} does not exist (404). Check the name in the plan's data."
    return f"{url} can't be fetched: the server answers {status}."


def _name_of(path: Path, remote: Remote) -> str:
    digest = hashlib.sha256() if remote.sha256 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
