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
from gan_core.data.classes import UNEVEN, unevenness
from gan_core.data.decoding import BEFORE, Reading
from gan_core.data.hub_data import huggingface
from gan_core.data.image_cache import TRANSFORM_VERSION, Cached, Progress, prepared
from gan_core.data.sources import Source, Where, digest, digits, folder, zip_file
from gan_core.data.vision import torchvision
from gan_core.errors import DataError
from gan_core.plan import Plan
from gan_core.policies.sampling import Orders, cut_units
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
    fingerprint: str  # 16 hex digits of the files' names and contents, and of the background where it shows: any machine, any size
    skipped: tuple[str, ...]  # broken files, left out
    source: str = ""  # the name with the revision that it was read at
    shards: tuple[Shard, ...] = ()  # in this order; () for data that lies on every machine
    before: str = (
        ""  # the fingerprint that version 0.1 gave these files: it dropped transparency, and read JPEG and PNG only
    )
    over: int = 0  # images in which the background shows
    background: str = ""  # #rrggbb

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def facts(self) -> str:
        """What makes it the same data as another machine's, in words."""
        left_out = f", {len(self.skipped):,} left out as broken" if self.skipped else ""
        over = f", {self.over:,} of them transparent, on the background {self.background}" if self.over else ""
        return f"fingerprint {self.fingerprint}, {counted(len(self), 'image')}{over}{left_out}"

    def batch(self, indices: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Images (B, C, H, W) in [-1, 1], float32, channels_last. Raises DataError for an index beyond the data."""
        # NumPy, because PyTorch would wake all its threads for 70 µs of work, and wait for them on a busy machine.
        values = np.divide(self.raw(indices), 127.5, dtype=np.float32)  # (B, H, W, C): channels last already
        values -= 1
        return torch.from_numpy(values).permute(0, 3, 1, 2)

    def raw(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Their pixels (B, H, W, C), uint8. Raises DataError for an index beyond the data."""
        wanted = np.asarray(indices, dtype=np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self))]
        if len(outside):
            raise DataError(
                f"There is no image {outside[0]}: {self.name} has {counted(len(self), 'image')} here, numbered from 0. "
                "Copy the training's files to this machine unchanged.",
            )
        return self.pixels[wanted]


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


def images_of(
    plan: Plan, cache: Path, base: Path, began_with: str = "", source: str = "", progress: Progress | None = None
) -> ImageSet:
    """A training's images: see `open_images`. `source` is the plan's data at the revision that the training reads."""
    return open_images(
        source or plan.data,
        image_size=plan.image_size,
        channels=plan.channels,
        background=plan.background,
        cache=cache,
        base=base,
        progress=progress,
        began_with=began_with,
    )


def open_images(
    data: str,
    *,
    image_size: int,
    channels: int,
    background: str = "#ffffff",
    cache: Path,
    base: Path = Path(),
    progress: Progress | None = None,
    began_with: str = "",
) -> ImageSet:
    """The data set; the first time, its images are fetched if need be, and resized into `cache`.

    Args:
        data: a word of SOURCES, and a colon with what it needs, such as `folder:PATH`
        background: #rrggbb, under transparent pixels
        base: where a relative PATH starts
        progress: called with (images ready, images in all) while they are resized, with bytes while they are fetched
        began_with: fingerprint of the training's images. If it is the one that version 0.1 gave to these files, they are
            read as that version did, so that the training goes on with the same pixels

    Raises:
        DataError: the data is missing or mostly broken, or there is no room for the cache.
    """

    def opened(reading: Reading) -> ImageSet:
        source = find_source(data, reading, cache, base, progress)
        shape = image_size, image_size, channels
        return joined(
            data, source, [prepared_part(source, i, shape, cache, progress) for i in range(len(source.parts))]
        )

    images = opened(Reading(background))
    return opened(BEFORE) if began_with == images.before != images.fingerprint else images


def find_source(
    data: str, reading: Reading, cache: Path, base: Path = Path(), progress: Progress | None = None
) -> Source:
    """Where the images of a plan's `data` come from. Raises DataError if it is nowhere."""
    kind, place = kind_and_place(data)
    return SOURCES[kind](place, Where(base, cache / "downloads", progress or (lambda done, total: None), reading))


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
    # Without a word about BEFORE: version 0.1's own caches go on being used for what began with it.
    how = () if source.reading == BEFORE else (source.reading,)
    folder = cache / f"{kind}-{shape[0]}x{shape[2]}-{digest(part.stamp, TRANSFORM_VERSION, *how)}"
    return prepared(folder, shape, source.reading, part.files, progress)


def joined(data: str, source: Source, parts: Sequence[Cached]) -> ImageSet:
    """The images of the first parts of a source, at least of one, as one data set."""
    shards = tuple(Shard(len(part.pixels), part.fingerprint) for part in parts) if source.fetched else ()
    if len(source.parts) == 1:
        (only,) = parts
        return ImageSet(
            data,
            only.pixels,
            only.labels,
            only.fingerprint,
            only.skipped,
            source.name,
            shards,
            only.before,
            only.over,
            source.reading.background,
        )
    labels = [part.labels for part in parts if part.labels is not None]
    return ImageSet(
        data,
        Joined([part.pixels for part in parts]),
        np.concatenate(labels) if len(labels) == len(parts) else None,
        digest(*(shard.fingerprint for shard in shards)),
        tuple(name for part in parts for name in part.skipped),
        source.name,
        shards,
        digest(*(part.before for part in parts)),
        sum(part.over for part in parts),
        source.reading.background,
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
    return cut_units(plan, position, len(images), images.labels, quorum, stretches(images), known)


def orders_of(plan: Plan, images: ImageSet) -> Orders:
    """The orders of these images' epochs, to find again what was handed out."""
    known = detail(images) if plan.sampler == "progressive" else None
    return Orders(plan, len(images), images.labels, stretches(images), known)


@lru_cache(maxsize=1)
def stretches(images: ImageSet) -> tuple[int, ...]:
    """Sizes of the stretches of the images that no unit leaves: the shards. If these are sorted by class, only one."""
    shards = tuple(shard.images for shard in images.shards)
    return shards if unevenness(images.labels, shards) <= UNEVEN else (len(images),)


def advice(plan: Plan, images: ImageSet) -> str:
    """A warning in words if these images lie in the order of their classes, with what is done about it; "" if they don't."""
    labels, shards = images.labels, [shard.images for shard in images.shards]
    if plan.sampler == "sequential":
        units = len(images) // plan.images_per_unit
        if unevenness(labels, [plan.images_per_unit] * units) > UNEVEN:
            return (
                f"The images of {images.name} are in the order of their classes, and sampler=sequential keeps it: units "
                "hold few classes, and the samples will follow them. Choose sampler=shuffled or stratified."
            )
    elif plan.shards == "auto" and (share := unevenness(labels, shards)) > UNEVEN:
        return (
            f"The files of {images.name} are sorted by class: in one, {share:.0%} of the images would have to be of another "
            "class. So units are drawn from all files, as with shards=off, and a machine computes when it has all of them."
        )
    return ""


def require_same_data(images: ImageSet, fingerprint: str, images_expected: int) -> None:
    """Raises DataError unless these are the training's images."""
    if images.fingerprint == fingerprint and len(images) == images_expected:
        return
    raise DataError(
        f"{images.name} is other data here ({images.facts}) than in the training (fingerprint {fingerprint}, "
        f"{images_expected:,} images): {remedy_for(images.name)}, then start again.",
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
