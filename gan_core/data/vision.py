"""Any image data set that torchvision fetches, by the name of its class: `torchvision:CIFAR10`."""

import importlib.metadata
import importlib.util
import inspect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from PIL import Image, ImageOps

from gan_core.data.celeba import while_telling
from gan_core.data.decoding import BEFORE
from gan_core.data.image_cache import Files
from gan_core.data.sources import Part, Source, Where, digest
from gan_core.errors import DataError

NO_SINGLE_PICTURES = {"MovingMNIST", "LFWPairs", "Middlebury2014Stereo", "SBDataset"}  # films, pairs, segmentations


def names() -> list[str]:
    """Data sets that need nothing but a folder and a download."""
    from torchvision import datasets

    def is_simple(name: str) -> bool:
        parameters = inspect.signature(getattr(datasets, name).__init__).parameters
        return {"root", "download"} <= parameters.keys() and all(
            p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            for key, p in parameters.items()
            if key not in ("self", "root")
        )

    return sorted(name for name in datasets.__all__ if name not in NO_SINGLE_PICTURES and is_simple(name))


def torchvision(place: str, where: Where) -> Source:
    """The training part of a data set of torchvision.

    Raises:
        DataError: torchvision isn't installed, has no such data set, or can't fetch it.
    """
    if importlib.util.find_spec("torchvision") is None:
        raise DataError(f"torchvision:{place} needs torchvision. Run `pip install 'classgan[torchvision]'`.")
    if place not in names():
        raise DataError(f"torchvision has no image data set {place!r} to fetch. Choose one of: {', '.join(names())}.")

    @contextmanager
    def files() -> Generator[Files]:
        opened: list[Any] = []
        try:
            while_telling(lambda: opened.append(_opened(place, where)), where)
        except Exception as exc:  # whatever its own code raises: no network, no room, a library that is missing
            raise DataError(
                f"torchvision:{place} can't be fetched into {where.downloads.resolve()} ({exc}). Fix that and try "
                "again, or choose other data."
            ) from exc
        data = opened[0]
        count = len(data)
        yield Files(
            f"torchvision:{place}",
            [f"{i:08}" for i in range(count)],
            lambda i: _packed(data[i][0] if where.reading == BEFORE else _plain(data[i][0])),
            _unpacked,
            lambda: None,
            _labels(data, count),
        )

    version = importlib.metadata.version("torchvision")
    return Source(f"torchvision:{place}", [Part(digest(place, version), files)], where.reading, fetched=True)


def _opened(name: str, where: Where) -> Any:
    from torchvision import datasets

    where.downloads.mkdir(parents=True, exist_ok=True)
    return getattr(datasets, name)(root=str(where.downloads), download=True)


def _plain(image: Image.Image) -> Image.Image:
    """Upright and without palette: what the pixels alone don't say is lost when they are packed."""
    turned = ImageOps.exif_transpose(image)
    return turned.convert("RGBA") if turned.mode == "P" or "transparency" in turned.info else turned


def _packed(image: Image.Image) -> bytes:
    # The pixels as they are: another version of PNG's compression would be another fingerprint.
    return f"{image.mode} {image.width} {image.height}\n".encode() + image.tobytes()


def _unpacked(content: bytes) -> Image.Image:
    head, _, pixels = content.partition(b"\n")
    mode, width, height = head.decode().split()
    return Image.frombytes(mode, (int(width), int(height)), pixels)


def _labels(data: Any, count: int) -> Sequence[int] | None:
    """The classes, where the data set holds one whole number for each image."""
    for attribute in ("targets", "labels", "_labels", "y"):
        found = getattr(data, attribute, None)
        try:
            labels = [int(label) for label in found] if found is not None and len(found) == count else []
        except (TypeError, ValueError):
            continue
        if labels:
            return labels
    return None
