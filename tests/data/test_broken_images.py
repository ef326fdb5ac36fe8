"""Broken files are named and left out, missing ones get a sentence with the next step."""

import errno
import logging
import os
import zipfile

import pytest
from picture_files import numbered, save, who, zipped
from PIL import Image
from systems import link

from gan_core.data import image_cache
from gan_core.errors import DataError


def test_broken_images_are_named_and_left_out_and_nothing_else_moves(open_, tmp_path, caplog):
    folder = tmp_path / "a"
    numbered(folder / "cat", 5)
    numbered(folder / "dog", 9)
    whole = save(Image.effect_noise((64, 64), 50), tmp_path / "whole.jpg").read_bytes()
    broken = {"cat/001.png": b"", "cat/004.png": b"no image", "dog/000.png": whole[: len(whole) // 2]}
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    link(folder / "dog" / "link.png", "nowhere")
    with caplog.at_level(logging.WARNING):
        images = open_(f"folder:{folder}")
        again = open_(f"folder:{folder}")
    assert images.skipped == again.skipped == (*broken, "dog/link.png")
    assert who(images) == who(again) == [0, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8]
    assert images.labels.tolist() == again.labels.tolist() == [0] * 3 + [1] * 8
    assert [record.getMessage() for record in caplog.records] == [
        "4 of 15 images are broken and left out: cat/001.png, cat/004.png, dog/000.png, dog/link.png",
    ]
    for name in images.skipped:
        (folder / name).unlink()
    assert open_(f"folder:{folder}").fingerprint == images.fingerprint


def test_broken_images_in_a_zip_are_left_out(open_, tmp_path):
    path = zipped(numbered(tmp_path / "a", 5), tmp_path / "a.zip", method=zipfile.ZIP_STORED)
    damaged = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("003.png").header_offset
    damaged[offset + 60] ^= 1  # the archive's own checksum tells
    path.write_bytes(damaged)
    images = open_(f"zip:{path}")
    assert images.skipped == ("003.png",)
    assert who(images) == [0, 1, 2, 4]


@pytest.mark.parametrize(("broken", "allowed"), [(2, True), (3, False), (4, False)])
def test_at_most_half_may_be_broken(open_, tmp_path, broken, allowed):
    folder = numbered(tmp_path / "a", 4)
    for i in range(broken):
        (folder / f"{i:03}.png").write_bytes(b"no image")
    if allowed:
        assert who(open_(f"folder:{folder}")) == [2, 3]
        return
    sentence = rf"{broken} of the 4 images in .*a are broken; at most half may be\. .*, for example 000\.png"
    for _ in range(2):  # and says so each time
        with pytest.raises(DataError, match=sentence):
            open_(f"folder:{folder}")


def test_a_cause_that_is_mended_is_forgotten(open_, tmp_path, monkeypatch):
    """For example a drive that fails for a while: the files look the same before and after."""
    folder = numbered(tmp_path / "a", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", lambda *args, **options: 1 / 0)
        with pytest.raises(DataError, match="4 of the 4 images"):
            open_(f"folder:{folder}")
    assert who(open_(f"folder:{folder}")) == [0, 1, 2, 3]


def test_a_folder_that_goes_away_halfway_is_not_taken_for_broken_images(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    folder = numbered(tmp_path / "a", 40)

    def unplug(done: int, total: int) -> None:
        if done == 30:
            folder.rename(tmp_path / "unplugged")

    with pytest.raises(DataError, match=r"There is no folder .*a\."):
        open_(f"folder:{folder}", progress=unplug)
    (tmp_path / "unplugged").rename(folder)
    images = open_(f"folder:{folder}")
    assert who(images) == list(range(40))
    assert images.skipped == ()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("folder:{0}/none", r"There is no folder .*/none\. Put pictures there"),
        ("folder:{0}/text.zip", r"There is no folder .*/text\.zip\."),
        ("folder:{0}/empty", r"There is no image in .*/empty\. Expected files that end in \.jpg, \.jpeg, .*\.webp"),
        ("zip:{0}/none.zip", r"There is no file .*/none\.zip\. Put a zip"),
        ("zip:{0}/empty", r"There is no file .*/empty\."),
        ("zip:{0}/text.zip", r"text\.zip can't be read as a zip \(File is not a zip file\)"),
        ("zip:{0}/empty.zip", r"There is no image in .*/empty\.zip"),
        ("folder:", "Unknown data 'folder:'. Write digits, folder:PATH, zip:PATH, celeba"),
        ("digits:5", "Unknown data 'digits:5'"),
        ("faces", "Unknown data 'faces'"),
    ],
)
def test_missing_data_is_named_with_the_next_step(open_, tmp_path, data, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip", encoding="utf-8")
    zipped(tmp_path / "empty", tmp_path / "empty.zip")
    with pytest.raises(DataError, match=sentence):
        open_(data.format(tmp_path))
    assert not list(tmp_path.glob("cache/*/images.json"))


def test_a_folder_without_permission_is_named_unless_it_is_hidden(open_, tmp_path, monkeypatch):
    """Drives have hidden folders that nobody may read, such as .Trashes."""
    original = os.scandir

    def guarded(path: str):
        if path.endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return original(path)

    monkeypatch.setattr(os, "scandir", guarded)
    numbered(tmp_path / "a" / ".locked", 1)
    numbered(tmp_path / "a", 2)
    assert who(open_(f"folder:{tmp_path / 'a'}")) == [0, 1]
    numbered(tmp_path / "a" / "locked", 1)
    with pytest.raises(DataError, match=r"/locked can't be read \(Permission denied\)"):
        open_(f"folder:{tmp_path / 'a'}")
