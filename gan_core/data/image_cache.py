"""Image files → resized pixels in one memory-mapped file, built once and shared by every process of this machine.

NAME.part/   the build: pixels, and one record an image, both only ever appended to; a killed build goes on here
NAME/        finished: appears in one piece, never changes afterwards
NAME.lock    held by whoever builds; the system lets go of it when its holder dies
"""

import errno
import hashlib
import json
import logging
import math
import os
import posixpath
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image

from gan_core.data.decoding import Reading, Shape, is_new
from gan_core.errors import DataError
from gan_core.files import move

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

log = logging.getLogger("classgan.images")

Progress = Callable[[int, int], None]  # (images ready, images in all), or bytes while they are fetched

TRANSFORM_VERSION = 1  # raise it when the same file would give other pixels
BLOCK = 512  # images between two writes: seconds of work lost by a kill, 25 MB at 128x128 colour
THREADS = min(16, os.cpu_count() or 1)  # more only wait for each other: Pillow holds the interpreter between decodes
WAIT_SECONDS = 0.2  # how often a second process looks whether the first is done

GOOD, BROKEN = 1, 2  # never 0: a power cut can leave zeros
OVER, NEW = 4, 8  # beside GOOD: the background shows; version 0.1 would not have read it
RECORD = np.dtype([("state", "u1"), ("size", "<u8"), ("crc", "<u4")])


@dataclass(frozen=True, slots=True)
class Files:
    """Image files in a fixed order, wherever they lie."""

    origin: str  # where, for a person
    names: Sequence[str]  # relative, with /, sorted
    read: Callable[[int], bytes]  # content of the i-th; called from many threads
    picture: Callable[[bytes], Image.Image]  # content → picture; raises what it likes
    require: Callable[[], None]  # raises DataError when not one file but all of them are out of reach
    labels: Sequence[int] | None = None  # one for each; None: from the folders in the names


@dataclass(frozen=True, slots=True, eq=False)
class Cached:
    """A finished cache."""

    pixels: np.ndarray  # (N, H, W, C) uint8, memory-mapped
    labels: np.ndarray | None  # (N,) int64
    fingerprint: str
    skipped: tuple[str, ...]
    before: str  # the fingerprint that version 0.1 gave these files
    over: int  # images in which the background shows


def prepared(
    folder: Path,
    shape: Shape,
    reading: Reading,
    files: Callable[[], AbstractContextManager[Files]],
    progress: Progress | None,
) -> Cached:
    """The finished cache `folder`, built first unless it is there.

    Raises:
        DataError: most files are broken, or the cache can't be written or read.
    """
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with alone(folder):
                if not folder.is_dir():
                    with files() as opened:
                        _build(folder, shape, reading, opened, progress or (lambda done, total: None))
        except OSError as exc:  # reading is guarded file by file, so this is about writing
            raise DataError(
                f"The resized images can't be written to {folder.parent} ({exc}). "
                "Make this folder writable, or set CLASSGAN_HOME to another one.",
            ) from exc
    return _load(folder, shape)


def _load(folder: Path, shape: Shape) -> Cached:
    try:
        facts = json.loads((folder / "images.json").read_bytes())
        pixels = np.memmap(folder / "pixels", np.uint8, "r", shape=(facts["images"], *shape))
        labels = np.fromfile(folder / "labels", "<i8") if facts["labelled"] else None
    except (OSError, ValueError, KeyError) as exc:
        raise DataError(f"The resized images in {folder} are damaged ({exc}). Delete that folder and retry.") from exc
    # One that version 0.1 made doesn't say the last two.
    before, over = facts.get("before", facts["fingerprint"]), facts.get("over", 0)
    return Cached(pixels, labels, facts["fingerprint"], tuple(facts["skipped"]), before, over)


def _build(folder: Path, shape: Shape, reading: Reading, files: Files, progress: Progress) -> None:
    work, total, size = folder.with_name(folder.name + ".part"), len(files.names), math.prod(shape)
    work.mkdir(exist_ok=True)
    records = _resumed(work, size)
    needed = (total - len(records)) * size
    free = shutil.disk_usage(work).free
    if needed > free:
        raise _full(work, needed, free)
    try:
        records = _append_rest(work, shape, reading, files, records, progress)
        good = _is_good(records)
        if 2 * good.sum() < total:
            # Made afresh next time: whatever makes most files unreadable may be mended without touching the files.
            shutil.rmtree(work)
            raise DataError(
                f"{total - good.sum():,} of the {total:,} images in {files.origin} are broken; at most half may be. "
                f"Check that they are whole, for example {files.names[int(good.argmin())]}. Formats that can be read: "
                f"{', '.join(reading.formats)}.",
            )
        _finish(work, folder, reading, files, records)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(work, needed, shutil.disk_usage(work).free) from exc
        raise


def _full(work: Path, needed: int, free: int) -> DataError:
    return DataError(
        f"The resized images need {needed:,} bytes in {work.parent}, and {free:,} bytes are free. "
        "Free some space, or set CLASSGAN_HOME to a folder on another disk; what is done already is kept.",
    )


def _resumed(work: Path, size: int) -> np.ndarray:
    """Records of the images that an earlier attempt brought safely to disk; what came after them is cut off."""
    pixels, journal = work / "pixels", work / "records"
    pixels.touch()
    journal.touch()
    records: np.ndarray = np.fromfile(journal, dtype=RECORD)  # leaves out a half-written one
    images = np.cumsum(_is_good(records))
    safe = (records["state"] != 0) & (images <= pixels.stat().st_size // size)
    records = records[: np.logical_and.accumulate(safe).sum()]
    os.truncate(journal, len(records) * RECORD.itemsize)
    os.truncate(pixels, int(_is_good(records).sum()) * size)
    return records


def _is_good(records: np.ndarray) -> np.ndarray:
    return records["state"] & GOOD > 0


def _append_rest(
    work: Path, shape: Shape, reading: Reading, files: Files, records: np.ndarray, progress: Progress
) -> np.ndarray:
    """Records of all files, after the pixels of those that were missing have been appended."""
    total = len(files.names)
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(len(records), total, BLOCK):
            block = []
            for image in pool.map(lambda i: _image(files, i, shape, reading), range(start, min(start + BLOCK, total))):
                block.append(image)
                progress(start + len(block), total)
            added = np.array([record for record, _ in block], RECORD)
            _write(work / "pixels", b"".join(content for _, content in block), "ab")
            _write(work / "records", added.tobytes(), "ab")  # after the pixels: a record vouches for them
            records = np.concatenate([records, added])
    return records


def _image(files: Files, index: int, shape: Shape, reading: Reading) -> tuple[tuple[int, int, int], bytes]:
    """Record and pixels of one file; no pixels if it is broken."""
    content = b""
    try:
        content = files.read(index)
        picture = files.picture(content)
        state = GOOD | NEW * is_new(files.names[index], picture)
        fitted, shows = reading.fitted(picture, shape)
        state, pixels = state | OVER * shows, fitted.tobytes()
    except Exception as exc:  # noqa: BLE001 - decoders raise anything on broken bytes, and one file must not end the build
        files.require()
        log.debug("%s is broken: %s", files.names[index], exc)
        state, pixels = BROKEN, b""
    return (state, len(content), zlib.crc32(content)), pixels


def _finish(work: Path, folder: Path, reading: Reading, files: Files, records: np.ndarray) -> None:
    """Describes what is in `work` and makes it the finished cache."""
    names, good = files.names, _is_good(records)
    kept, skipped = _below_shared_folder(list(compress(names, good))), list(compress(names, ~good))
    # Given ones are no part of the fingerprint: only the coordinator needs them, and others may lack their file.
    labels = _labels(kept) if files.labels is None else np.asarray(files.labels, dtype=np.int64)[good]
    if labels is not None:
        _write(work / "labels", labels.astype("<i8").tobytes())
    old = good & (records["state"] & NEW == 0)
    facts = {
        "images": len(kept),
        "labelled": labels is not None,
        "fingerprint": _fingerprint(list(compress(names, good)), records[good], reading.background),
        "skipped": skipped,
        "before": _fingerprint(list(compress(names, old)), records[old], ""),
        "over": int((records["state"] & OVER > 0).sum()),
    }
    _write(work / "images.json", json.dumps(facts).encode())
    if skipped:
        first = ", ".join(skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        log.warning("%d of %d images are broken and left out: %s", len(skipped), len(names), first)
    move(work, folder)


def _fingerprint(names: list[str], records: np.ndarray, background: str) -> str:
    """16 hex digits of names and contents, and of the background where it shows: the same for what gives the same pixels."""
    digest = hashlib.blake2b(f"{TRANSFORM_VERSION}\n".encode(), digest_size=8)
    for name, (state, size, crc) in zip(_below_shared_folder(names), records.tolist(), strict=True):
        over = f"\0{background}" if background and state & OVER else ""
        digest.update(f"{name}\0{size}\0{crc:08x}{over}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _below_shared_folder(names: list[str]) -> list[str]:
    """The names without the folders that all of them share: a zip often has one more than the folder it was made of."""
    shared = posixpath.commonpath([posixpath.dirname(name) for name in names]) if names else ""
    return [name[len(shared) + 1 :] for name in names] if shared else names


def _labels(names: Sequence[str]) -> np.ndarray | None:
    """(N,) int64: one label for each top folder, in the order of their names. None if an image lies in no folder."""
    tops = [name.split("/")[0] for name in names if "/" in name]
    number = {top: i for i, top in enumerate(sorted(set(tops)))}
    return np.array([number[top] for top in tops], dtype=np.int64) if len(tops) == len(names) else None


def _write(path: Path, content: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    """Returns when the content is on the disk."""
    with path.open(mode) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def alone(path: Path, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """While this holds, no other process makes `path`; `waiting` is called while another one does."""
    with path.with_name(path.name + ".lock").open("ab") as file:
        if not _locked(file):
            log.info("another process prepares the same images; waiting for it")
            while not _locked(file):
                time.sleep(WAIT_SECONDS)
                waiting()
        yield


def _locked(file: BinaryIO) -> bool:
    """Whether the lock is ours now; closing the file gives it back."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
