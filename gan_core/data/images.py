"""The data set: image i as pixels in [-1, 1]. And the other way round: images as a sample grid."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from PIL import Image

from gan_core.data.celeba import celeba
from gan_core.data.hub_data import huggingface
from gan_core.data.image_cache import TRANSFORM_VERSION, Cached, Progress, prepared
from gan_core.data.sources import Source, Where, digest, digits, folder, zip_file
from gan_core.data.vision import torchvision
from gan_core.errors import DataError
from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.units import Shard, WorkUnit, counted

GAP, GAP_GREY = 2, 128  # pixels between the images of a grid, and their brightness

SOURCES: Mapping[str, Callable[[str, Where], Source]] = MappingProxyType(
    {
        "digits": digits,
        "folder": folder,
        "zip": zip_file,
        "celeba": celeba,
        "huggingface": huggingface,
        "torchvision": torchvision,
    }
)
FORMS = "digits, folder:PATH, zip:PATH, celeba, celeba:PATH, huggingface:OWNER/NAME or torchvision:NAME"


class Pixels(Protocol):
    """(N, H, W, C) uint8 by number, memory-mapped."""

    def __len__(self) -> int: ...

    def __getitem__(self, wanted: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True, slots=True, eq=False)
class ImageSet:
    """A data set by number, the same on every machine that has the same files."""

    name: str  # as in the plan: digits, folder:PATH, zip:PATH, ...
    pixels: Pixels
    labels: np.ndarray | None  # (N,) int64 where the data has labels
    fingerprint: str  # 16 hex digits of the files' names and contents: any machine, any image size
    skipped: tuple[str, ...]  # broken files, left out
    source: str = ""  # the name with the revision that it was read at
    shards: tuple[Shard, ...] = ()  # in this order; () for data that lies on every machine

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, indices: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Images (B, C, H, W) in [-1, 1], float32, channels_last. Raises DataError for an index beyond the data."""
        wanted = np.asarray(indices, dtype=np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if len(outside):
            raise DataError(
                f"There is no image {outside[0]}: {self.name} has {counted(len(self), 'image')} here, numbered from 0. "
                "Copy the training's files to this machine unchanged.",
            )
        # NumPy, because PyTorch would wake all its threads for 70 µs of work, and wait for them on a busy machine.
        values = np.divide(self.pixels[wanted], 127.5, dtype=np.float32)  # (B, H, W, C): channels last already
        values -= 1
        return torch.from_numpy(values).permute(0, 3, 1, 2)


class Joined:
    """Several arrays of pixels, one after the other, without a copy."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._arrays = tuple(arrays)
        self._ends = np.cumsum([len(array) for array in arrays])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, wanted: np.ndarray) -> np.ndarray:
        """(B, H, W, C) for numbers (B,)."""
        where = np.searchsorted(self._ends, wanted, side="right")
        out = np.empty((len(wanted), *self._arrays[0].shape[1:]), dtype=np.uint8)
        for i in np.unique(where):
            array, mine = self._arrays[i], where == i
            out[mine] = array[wanted[mine] - (self._ends[i] - len(array))]
        return out


def open_images(
    data: str,
    *,
    image_size: int,
    channels: int,
    cache: Path,
    base: Path = Path(),
    progress: Progress | None = None,
) -> ImageSet:
    """The data set; the first time, its images are fetched if need be, and resized into `cache`.

    Args:
        data: a word of SOURCES, and a colon with what it needs, such as `folder:PATH`
        base: where a relative PATH starts
        progress: called with (images ready, images in all) while they are resized, with bytes while they are fetched

    Raises:
        DataError: the data is missing or mostly broken, or there is no room for the cache.
    """
    source = find_source(data, cache, base, progress)
    parts = [
        prepared_part(source, i, (image_size, image_size, channels), cache, progress) for i in range(len(source.parts))
    ]
    return joined(data, source, parts)


def find_source(data: str, cache: Path, base: Path = Path(), progress: Progress | None = None) -> Source:
    """Where the images of a plan's `data` come from. Raises DataError if it is nowhere."""
    kind, place = kind_and_place(data)
    return SOURCES[kind](place, Where(base, cache / "downloads", progress or (lambda done, total: None)))


def kind_and_place(data: str) -> tuple[str, str]:
    """`folder:faces` → folder, faces. Raises DataError for a word that isn't in SOURCES, or if what it needs is missing."""
    kind, _, place = data.partition(":")
    kind, _, option = kind.partition("#")  # celeba#Male
    place += f"#{option}" if option else ""
    if kind not in SOURCES or (bool(place) == (kind == "digits") and kind != "celeba"):
        raise DataError(f"Unknown data {data!r}. Write {FORMS}.")
    return kind, place


def prepared_part(
    source: Source, index: int, shape: tuple[int, int, int], cache: Path, progress: Progress | None = None
) -> Cached:
    """One part's resized images, fetched and built first unless they are there. Raises DataError as open_images does."""
    (kind, _), part = kind_and_place(source.name), source.parts[index]
    folder = cache / f"{kind}-{shape[0]}x{shape[2]}-{digest(part.stamp, TRANSFORM_VERSION)}"
    return prepared(folder, shape, part.files, progress)


def joined(data: str, source: Source, parts: Sequence[Cached]) -> ImageSet:
    """The images of the first parts of a source, at least of one, as one data set."""
    shards = tuple(Shard(len(part.pixels), part.fingerprint) for part in parts) if source.fetched else ()
    if len(source.parts) == 1:
        (only,) = parts
        return ImageSet(data, only.pixels, only.labels, only.fingerprint, only.skipped, source.name, shards)
    labels = [part.labels for part in parts if part.labels is not None]
    return ImageSet(
        data,
        Joined([part.pixels for part in parts]),
        np.concatenate(labels) if len(labels) == len(parts) else None,
        digest(*(shard.fingerprint for shard in shards)),
        tuple(name for part in parts for name in part.skipped),
        source.name,
        shards,
    )


@lru_cache(maxsize=1)
def detail(images: ImageSet) -> np.ndarray:
    """(N,) float32: how much happens in each image, as the mean step in brightness from a pixel to its neighbours."""
    found = []
    for start in range(0, len(images), 1024):
        grey = images.pixels[np.arange(start, min(start + 1024, len(images)))].mean(axis=3, dtype=np.float32)
        found.append(sum(abs(np.diff(grey, axis=axis)).mean(axis=(1, 2)) for axis in (1, 2)))
    return np.concatenate(found)


def next_units(plan: Plan, position: int, images: ImageSet, quorum: int | None = None) -> tuple[list[WorkUnit], int]:
    """The next iteration's units of these images, and the position after them: see `cut_units`."""
    known = detail(images) if plan.sampler == "progressive" else None
    return cut_units(plan, position, len(images), images.labels, quorum, [s.images for s in images.shards], known)


def require_same_data(images: ImageSet, fingerprint: str, images_expected: int) -> None:
    """Raises DataError unless these are the training's images."""
    if images.fingerprint == fingerprint and len(images) == images_expected:
        return
    left_out = f", {len(images.skipped):,} left out as broken" if images.skipped else ""
    raise DataError(
        f"{images.name} is other data here (fingerprint {images.fingerprint}, {len(images):,} images{left_out}) "
        f"than in the training (fingerprint {fingerprint}, {images_expected:,} images): {remedy_for(images.name)}, then start again.",
    )


def remedy_for(data: str) -> str:
    """What a person does about data that differs from the training's."""
    match kind_and_place(data)[0]:
        case "digits":
            return "run `pip install --upgrade 'classgan[digits]'`"
        case "huggingface" | "torchvision":
            return "delete the folder `cache` in CLASSGAN_HOME and let it be fetched anew"
    return "copy the instructor's files over this machine's, unchanged and under the same names"


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
