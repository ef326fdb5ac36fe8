"""How a file becomes a picture: which formats are read, upright, and with a background instead of transparency."""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image, ImageChops, ImageOps

# By name, for Pillow also knows formats that start other programs (EPS starts Ghostscript), or that any bytes could be.
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".apng", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff")
SUFFIXES += (".ppm", ".pgm", ".pbm")

Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True, slots=True)
class Reading:
    """Which files of a data set are read, and how."""

    background: str  # #rrggbb, under what is transparent; "": transparency is dropped
    formats: tuple[str, ...] = FORMATS
    suffixes: tuple[str, ...] = SUFFIXES

    def picture(self, content: bytes) -> Image.Image:
        """A file as a picture: the first, if it holds several. Raises what it likes.

        Pillow refuses a file that says it has more than twice `Image.MAX_IMAGE_PIXELS`, 179 million.
        """
        return Image.open(BytesIO(content), formats=self.formats)

    def fitted(self, picture: Image.Image, shape: Shape) -> tuple[np.ndarray, bool]:
        """(H, W, C) uint8: the largest square in the middle, resized. And whether the background shows in it."""
        height, width, channels = shape
        ImageOps.exif_transpose(picture, in_place=True)  # phones store their photos lying on the side
        picture, shows = self._opaque(_eight_bits(picture))
        picture = picture.convert("L" if channels == 1 else "RGB")
        return np.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR)).reshape(shape), shows

    def _opaque(self, picture: Image.Image) -> tuple[Image.Image, bool]:
        """The picture on the background; as it is, if that changes no pixel."""
        if not (self.background and picture.has_transparency_data):
            return picture, False
        laid = Image.new("RGBA", picture.size, self.background)
        laid.alpha_composite(picture.convert("RGBA"))
        laid = laid.convert("RGB")
        shows = ImageChops.difference(laid, picture.convert("RGB")).getbbox() is not None
        return (laid if shows else picture), shows


# As version 0.1 read them. A training that began with it goes on so: see `open_images`.
BEFORE = Reading("", ("JPEG", "PNG"), (".jpg", ".jpeg", ".png"))


def is_new(name: str, picture: Image.Image) -> bool:
    """Whether BEFORE would not have read this picture."""
    suffixes = tuple(suffix for suffix in SUFFIXES if suffix not in BEFORE.suffixes)
    return name.lower().endswith(suffixes) or picture.format not in (None, "MPO", *BEFORE.formats)


def _eight_bits(picture: Image.Image) -> Image.Image:
    """With 8 bits a channel: of 16, Pillow would not scale but cut off at 255."""
    if picture.mode == "F":
        raise ValueError("its pixels are fractions, and nothing says which is white")
    if not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError("its pixels have 32 bits, and nothing says which is white")
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if isinstance(key := picture.info.get("transparency"), int):
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey
