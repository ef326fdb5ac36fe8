"""Pictures as people have them: on their side, transparent, in any common format, and never in one that starts programs."""

import io
import struct
import zlib

import numpy as np
import pytest
from fake_hub import Repo
from picture_files import flat, numbered, parquet_of, save, see_through, who, zipped
from PIL import Image

from gan_core.data.decoding import FORMATS

CORNERS = np.array([[10, 90], [170, 250]], dtype=np.uint8)  # four greys that say which way up it is
TURNED = {  # what is seen of CORNERS, by EXIF's number
    1: [[10, 90], [170, 250]],
    2: [[90, 10], [250, 170]],
    3: [[250, 170], [90, 10]],
    4: [[170, 250], [10, 90]],
    5: [[10, 170], [90, 250]],
    6: [[170, 10], [250, 90]],
    7: [[250, 90], [170, 10]],
    8: [[90, 250], [10, 170]],
}


def photo(orientation: int, form: str) -> bytes:
    """CORNERS, 32 x 32, with a camera's word about how it was held."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = io.BytesIO()
    lossless = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}.get(form, {})
    Image.fromarray(CORNERS.repeat(16, 0).repeat(16, 1)).convert("RGB").save(content, form, exif=exif, **lossless)
    return content.getvalue()


def corners(pixels: np.ndarray) -> np.ndarray:
    return pixels[..., [1, -2], :, :][..., [1, -2], 0].astype(int)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "MPO"])
def test_a_photo_is_upright_however_the_camera_was_held(open_, tmp_path, form):
    for orientation in TURNED:
        path = tmp_path / "a" / f"{orientation}.{'jpg' if form == 'MPO' else form.lower()}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(photo(orientation, form))
    images = open_(f"folder:{tmp_path / 'a'}")
    assert images.skipped == ()
    assert (abs(corners(images.pixels) - list(TURNED.values())) <= 3).all()
    zipped(tmp_path / "a", tmp_path / "a.zip")
    assert (open_(f"zip:{tmp_path / 'a.zip'}").pixels == images.pixels).all()


def test_photos_of_a_hub_are_upright_too(open_, hub):
    hub.repos["ada/photos"] = Repo("dataset", {"a.parquet": parquet_of([photo(n, "JPEG") for n in TURNED])})
    images = open_("huggingface:ada/photos")
    assert (abs(corners(images.pixels[np.arange(8)]) - list(TURNED.values())) <= 3).all()


TRANSPARENT = {
    "RGBA.png": ("RGBA", {}),
    "LA.png": ("LA", {}),
    "palette.png": ("P", {"transparency": b"\xff\x00"}),
    "palette.gif": ("P", {"transparency": 1}),
    "colour.png": ("RGB", {"transparency": (200, 200, 200)}),
    "grey.png": ("L", {"transparency": 200}),
    "deep.png": ("I;16", {"transparency": 200 << 8}),
    "RGBA.webp": ("RGBA", {"lossless": True, "exact": True}),
    "RGBA.tiff": ("RGBA", {}),
}


@pytest.mark.parametrize("name", TRANSPARENT)
@pytest.mark.parametrize(
    ("background", "colour"), [("#ffffff", (255, 255, 255)), ("#204080", (32, 64, 128))], ids=["white", "blue"]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_transparent_shows_the_background(open_, tmp_path, name, background, colour, channels):
    mode, options = TRANSPARENT[name]
    save(see_through(mode), tmp_path / "a" / name, **options)
    images = open_(f"folder:{tmp_path / 'a'}", background=background, channels=channels)
    seen = colour if channels == 3 else Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0))
    assert (images.pixels[0, :, :4] == 60).all()
    assert (images.pixels[0, :, 4:] == seen).all()
    assert images.over == 1


def test_what_is_half_transparent_is_mixed(open_, tmp_path):
    save(flat((0, 100, 200, 128), mode="RGBA"), tmp_path / "a" / "1.png")
    (result,) = open_(f"folder:{tmp_path / 'a'}").pixels.astype(int)
    assert (abs(result - (127, 177, 227)) <= 1).all()


def test_the_background_is_part_of_the_data_only_where_it_shows(open_, tmp_path):
    numbered(tmp_path / "plain", 3)
    save(flat((9, 9, 9, 255), mode="RGBA"), tmp_path / "plain" / "opaque.png")
    save(flat((255, 255, 255, 0), mode="RGBA"), tmp_path / "white" / "1.png")
    save(see_through("RGBA"), tmp_path / "clear" / "1.png")

    def marks(name: str) -> set[str]:
        backgrounds = ("#ffffff", "#000000", "#ff0000")
        return {open_(f"folder:{tmp_path / name}", background=colour).fingerprint for colour in backgrounds}

    assert len(marks("plain")) == 1
    assert len(marks("clear")) == 3
    assert len(marks("white")) == 3
    white = open_(f"folder:{tmp_path / 'white'}")
    assert white.fingerprint == white.before  # the same pixels as with transparency dropped


COLOUR = (200, 40, 90)


@pytest.mark.parametrize(
    ("suffix", "form", "options"),
    [
        ("webp", "WEBP", {}),
        ("webp", "WEBP", {"lossless": True}),
        ("avif", "AVIF", {}),
        ("gif", "GIF", {}),
        ("bmp", "BMP", {}),
        ("tif", "TIFF", {}),
        ("tiff", "TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", "TIFF", {"compression": "jpeg"}),
        ("ppm", "PPM", {}),
        ("jfif", "JPEG", {}),
        ("jpg", "WEBP", {}),  # what a web page's "save image as" gives
        ("png", "GIF", {}),
        ("gif", "JPEG", {}),
    ],
)
def test_common_formats_are_read_whatever_the_name_says(open_, tmp_path, suffix, form, options):
    save(flat(COLOUR, (16, 16)), tmp_path / "a" / f"1.{suffix}", format=form, **options)
    (result,) = open_(f"folder:{tmp_path / 'a'}").pixels.astype(int)
    assert (abs(result - COLOUR) <= 6).all()


@pytest.mark.parametrize(("suffix", "form"), [("gif", "GIF"), ("webp", "WEBP"), ("png", "PNG"), ("tiff", "TIFF")])
def test_of_several_pictures_in_a_file_the_first_is_taken(open_, tmp_path, suffix, form):
    first, *others = (flat((grey, grey, grey)) for grey in (50, 100, 150))
    lossless = {"lossless": True} if form == "WEBP" else {}
    save(first, tmp_path / "a" / f"1.{suffix}", format=form, save_all=True, append_images=others, **lossless)
    assert who(open_(f"folder:{tmp_path / 'a'}")) == [50]


@pytest.mark.parametrize(
    ("suffix", "mode", "colour", "expected"),
    [
        ("tiff", "I;16", 40_000, (156, 156, 156)),
        ("pgm", "I", 40_000, (156, 156, 156)),
        ("tiff", "CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("bmp", "P", 1, (7, 8, 9)),
        ("gif", "L", 77, (77, 77, 77)),
        ("tiff", "1", 1, (255, 255, 255)),
    ],
)
def test_any_kind_of_pixel_becomes_colour(open_, tmp_path, suffix, mode, colour, expected):
    picture = flat(colour, mode=mode)
    if mode == "P":
        picture.putpalette([0, 0, 0, 7, 8, 9])
    save(picture, tmp_path / "a" / f"1.{suffix}")
    (result,) = open_(f"folder:{tmp_path / 'a'}").pixels.astype(int)
    assert (abs(result - expected) <= 2).all()


@pytest.mark.parametrize(("mode", "value"), [("F", 0.5), ("I", 70_000)])
def test_pixels_whose_white_nobody_knows_are_left_out(open_, tmp_path, mode, value):
    folder = numbered(tmp_path / "a", 2)
    save(flat(value, mode=mode), folder / "9.tiff")
    assert open_(f"folder:{folder}").skipped == ("9.tiff",)


@pytest.mark.parametrize("form", ["EPS", "TGA", "PCX", "ICO", "SGI", "PDF", "JPEG2000"])
def test_no_other_format_is_decoded_whatever_the_name_says(open_, tmp_path, form):
    """EPS would start Ghostscript; the others are seldom looked at by anybody."""
    folder = numbered(tmp_path / "a", 2)
    save(flat((5, 5, 5), (16, 16)), folder / "9.png", format=form)
    images = open_(f"folder:{folder}")
    assert images.skipped == ("9.png",)
    assert form not in FORMATS


def huge_png() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    size = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


BOMBS = {
    "png": huge_png,
    "gif": lambda: b"GIF89a" + struct.pack("<HHBBBBHHHHB", 20_000, 20_000, 0, 0, 0, ord(","), 0, 0, 9, 9, 0) + b"\2\0;",
    "bmp": lambda: (
        b"BM" + struct.pack("<IHHI", 62, 0, 0, 62) + struct.pack("<IiiHHIIiiII", 40, 20_000, 20_000, 1, 1, *[0] * 6)
    ),
    "ppm": lambda: b"P6 20000 20000 255\n",
}


@pytest.mark.parametrize("suffix", BOMBS)
def test_a_small_file_that_says_it_is_huge_is_left_out(open_, tmp_path, suffix):
    folder = numbered(tmp_path / "a", 2)
    (folder / f"9.{suffix}").write_bytes(BOMBS[suffix]())
    with pytest.raises(Image.DecompressionBombError):
        Image.open(folder / f"9.{suffix}")
    assert open_(f"folder:{folder}").skipped == (f"9.{suffix}",)
