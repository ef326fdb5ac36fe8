"""Small picture files for tests, and which of them is which."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from gan_core.data.images import ImageSet

Open = Callable[..., ImageSet]


def flat(colour: int | tuple[int, ...], size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Image.Image:
    return Image.new(mode, size, colour)


def save(picture: Image.Image, path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)
    return path


def numbered(folder: Path, count: int, prefix: str = "") -> Path:
    """Folder of `count` images; image i is the grey i everywhere, so that a pixel tells which image it is."""
    for i in range(count):
        save(flat((i, i, i)), folder / f"{prefix}{i:03}.png")
    return folder


def see_through(mode: str) -> Image.Image:
    """8 x 8: the left half is the grey 60, the right half is transparent, with 200 hidden under it."""
    grey = np.full((8, 8), 60, np.uint8)
    grey[:, 4:] = 200
    alpha = Image.fromarray(np.where(grey == 200, 0, 255).astype(np.uint8))
    if mode in ("L", "RGB"):
        return Image.fromarray(grey).convert(mode)
    if mode == "I;16":
        return Image.fromarray(grey.astype(np.uint16) << 8)
    if mode == "P":
        picture = Image.fromarray((grey == 200).astype(np.uint8)).convert("P")
        picture.putpalette([60, 60, 60, 200, 200, 200])
        return picture
    picture = Image.fromarray(grey).convert(mode.removesuffix("A"))
    picture.putalpha(alpha)
    return picture


def who(images: ImageSet) -> list[int]:
    """Which images of `numbered` these are."""
    assert (images.pixels == images.pixels[:, :1, :1, :1]).all()
    return images.pixels[:, 0, 0, 0].tolist()


def zipped(folder: Path, path: Path, below: str = "", method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(folder.rglob("*.*"), reverse=True):
            archive.writestr(below + file.relative_to(folder).as_posix(), file.read_bytes())
    return path


def parquet(greys: range, label: int | None = None, features: bool = True, column: str = "picture") -> bytes:
    """A Parquet file of 8 x 8 images, image i of this grey, in row groups of three; the labels are i % 2 unless given."""
    contents = []
    for grey in greys:
        content = io.BytesIO()
        flat((grey, grey, grey)).save(content, "PNG")
        contents.append(content.getvalue())
    return parquet_of(contents, [g % 2 if label is None else label for g in greys], features, column)


def parquet_of(
    contents: Sequence[bytes], labels: Sequence[int] = (), features: bool = True, column: str = "picture"
) -> bytes:
    """A Parquet file of picture files."""
    rows = [{"bytes": content, "path": None} for content in contents]
    table = pa.table({"id": list(range(len(rows))), column: rows, "class": list(labels or [0] * len(rows))})
    kinds = {column: {"_type": "Image"}, "class": {"_type": "ClassLabel", "names": ["even", "odd"]}}
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": kinds}})})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=3)
    return out.getvalue()


@contextmanager
def counted_decodes(monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> Iterator[list[int]]:
    """Counts Image.open; the call number `stop_at` is the user's Ctrl-C."""
    calls: list[int] = []
    original = Image.open

    def counting(*args, **options):
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", counting)
        yield calls
