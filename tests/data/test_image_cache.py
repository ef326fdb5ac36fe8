"""The cache of resized pixels: built once, whoever is killed meanwhile, and never half."""

import errno
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from picture_files import counted_decodes, flat, numbered, save, who, zipped
from PIL import Image

import gan_core
from gan_core.data import image_cache
from gan_core.data import images as images_module
from gan_core.data.image_cache import TRANSFORM_VERSION
from gan_core.errors import DataError


def test_the_second_time_nothing_is_decoded(open_, tmp_path, monkeypatch):
    folder, path = numbered(tmp_path / "a", 5), zipped(numbered(tmp_path / "b", 5), tmp_path / "b.zip")
    first = {data: open_(data) for data in (f"folder:{folder}", f"zip:{path}", "digits")}
    monkeypatch.setattr(Image, "open", lambda *args, **options: pytest.fail("an image was opened"))
    monkeypatch.setattr(Image, "frombytes", lambda *args, **options: pytest.fail("a digit was decoded"))
    monkeypatch.setattr(zipfile, "ZipFile", lambda *args, **options: pytest.fail("the zip was opened"))
    monkeypatch.setattr(np, "loadtxt", lambda *args, **options: pytest.fail("the digits were read"))
    for data, images in first.items():
        again = open_(data, progress=lambda done, total: pytest.fail("progress of what?"))
        assert isinstance(again.pixels, np.memmap)
        assert (again.pixels == images.pixels).all()
        assert again.fingerprint == images.fingerprint


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_changed_files_are_noticed(open_, tmp_path, kind):
    folder = numbered(tmp_path / "a", 3)
    place = zipped(folder, tmp_path / "a.zip") if kind == "zip" else folder
    assert who(open_(f"{kind}:{place}")) == [0, 1, 2]
    changed = save(flat((99, 99, 99)), folder / "001.png")
    place = zipped(folder, tmp_path / "a.zip") if kind == "zip" else folder
    os.utime(place if kind == "zip" else changed, (1, 1))  # within the same tick of the file system's clock, else
    assert who(open_(f"{kind}:{place}")) == [0, 99, 2]


def test_sizes_and_channels_have_their_own_cache(open_, tmp_path):
    folder = numbered(tmp_path / "a", 3)
    shapes = [
        open_(f"folder:{folder}", image_size=size, channels=channels).pixels.shape
        for size in (8, 16)
        for channels in (1, 3)
    ]
    assert shapes == [(3, 8, 8, 1), (3, 8, 8, 3), (3, 16, 16, 1), (3, 16, 16, 3)]


def test_another_way_of_resizing_is_another_cache_and_another_fingerprint(open_, tmp_path, monkeypatch):
    folder = numbered(tmp_path / "a", 3)
    before = open_(f"folder:{folder}").fingerprint
    for module in (images_module, image_cache):
        monkeypatch.setattr(module, "TRANSFORM_VERSION", TRANSFORM_VERSION + 1)
    with counted_decodes(monkeypatch) as calls:
        assert open_(f"folder:{folder}").fingerprint != before
    assert len(calls) == 3


def test_progress_counts_every_image_once(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    folder = numbered(tmp_path / "a", 10)
    (folder / "003.png").write_bytes(b"")
    seen = []
    open_(f"folder:{folder}", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 10) for i in range(1, 11)]


def test_an_unfinished_build_never_looks_finished(open_, tmp_path):
    folder, cache = numbered(tmp_path / "a", 10), tmp_path / "cache"
    during = set()
    open_(f"folder:{folder}", progress=lambda done, total: during.update(path.suffix for path in cache.iterdir()))
    assert during == {".part", ".lock"}
    (finished,) = (p for p in cache.iterdir() if p.suffix != ".lock")
    assert (finished / "pixels").stat().st_size == 10 * 8 * 8 * 3


def test_a_killed_build_goes_on_where_it_stopped(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    monkeypatch.setattr(image_cache, "THREADS", 1)  # so that the Ctrl-C hits exactly the 11th image
    folder = numbered(tmp_path / "a", 20)
    (folder / "002.png").write_bytes(b"")
    with counted_decodes(monkeypatch, stop_at=10), pytest.raises(KeyboardInterrupt):
        open_(f"folder:{folder}")
    assert not list(tmp_path.glob("cache/*/images.json"))
    seen = []
    with counted_decodes(monkeypatch) as calls:
        images = open_(f"folder:{folder}", progress=lambda done, total: seen.append(done))
    assert len(calls) == 12  # two whole blocks were safe
    assert seen == list(range(9, 21))
    assert images.skipped == ("002.png",)
    assert who(images) == [0, 1, *range(3, 20)]
    assert images.fingerprint == open_(f"folder:{folder}", cache=tmp_path / "unbroken").fingerprint


SHAPE = 8 * 8 * 3


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda pixels, records: (pixels + b"half an image", records + b"half"), 8),
        (lambda pixels, records: (pixels + bytes(2 * SHAPE), records + bytes(26)), 8),
        (lambda pixels, records: (pixels[:-1], records), 7),
        (lambda pixels, records: (b"", records), 0),
        (lambda pixels, records: (pixels, records[:-1]), 7),
        (lambda pixels, records: (pixels, b""), 0),
    ],
    ids=["torn writes", "zeros after a power cut", "lost pixel", "lost pixels", "torn record", "lost records"],
)
def test_only_what_is_surely_whole_is_kept(open_, tmp_path, monkeypatch, damage, kept):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    monkeypatch.setattr(image_cache, "THREADS", 1)
    folder = numbered(tmp_path / "a", 20)
    with counted_decodes(monkeypatch, stop_at=10), pytest.raises(KeyboardInterrupt):
        open_(f"folder:{folder}")
    (work,) = tmp_path.glob("cache/*.part")
    files = work / "pixels", work / "records"
    for file, content in zip(files, damage(*(file.read_bytes() for file in files)), strict=True):
        file.write_bytes(content)
    with counted_decodes(monkeypatch, stop_at=5), pytest.raises(KeyboardInterrupt):  # after one more block
        open_(f"folder:{folder}")
    with counted_decodes(monkeypatch) as calls:
        images = open_(f"folder:{folder}")
    assert who(images) == list(range(20))
    assert images.skipped == ()
    assert len(calls) == 20 - kept - 4


def test_a_damaged_cache_says_what_to_delete(open_, tmp_path):
    folder = numbered(tmp_path / "a", 3)
    open_(f"folder:{folder}")
    (finished,) = (path.parent for path in tmp_path.glob("cache/*/images.json"))
    os.truncate(finished / "pixels", 100)
    with pytest.raises(DataError, match=rf"The resized images in {finished} are damaged .* Delete that folder"):
        open_(f"folder:{folder}")
    shutil.rmtree(finished)
    assert who(open_(f"folder:{folder}")) == [0, 1, 2]


CHILD = """
import logging, sys
from pathlib import Path
from gan_core.data import image_cache, images
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s", force=True)
image_cache.BLOCK = 4
pause, decoded = int(sys.argv[3]), []
def progress(done, total):
    decoded.append(done)
    if done == pause:
        print("paused", flush=True)
        sys.stdin.readline()
data = images.open_images(sys.argv[1], image_size=8, channels=3, cache=Path(sys.argv[2]), progress=progress)
print(len(decoded), data.fingerprint, data.pixels[:, 0, 0, 0].tolist(), flush=True)
"""


@contextmanager
def child(data: str, cache: Path, pause: int) -> Iterator[subprocess.Popen[str]]:
    """Another process that opens the data; it pauses at this many images until a line comes in."""
    root = Path(gan_core.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, data, str(cache), str(pause)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_of_two_processes_one_builds_and_the_other_waits(open_, tmp_path):
    folder = numbered(tmp_path / "a", 20)
    with child(f"folder:{folder}", tmp_path / "cache", 10) as first:
        assert first.stdout.readline() == "paused\n"
        with child(f"folder:{folder}", tmp_path / "cache", 0) as second:
            assert second.stdout.readline() == "another process prepares the same images; waiting for it\n"
            assert second.poll() is None
            first.stdin.write("go on\n")
            first.stdin.flush()
            fingerprint = open_(f"folder:{folder}", cache=tmp_path / "alone").fingerprint
            assert first.stdout.readline() == f"20 {fingerprint} {list(range(20))}\n"
            assert second.stdout.readline() == f"0 {fingerprint} {list(range(20))}\n"


@pytest.mark.slow
def test_a_killed_process_blocks_nobody_and_its_work_is_used(open_, tmp_path):
    folder = numbered(tmp_path / "a", 20)
    with child(f"folder:{folder}", tmp_path / "cache", 10) as process:
        assert process.stdout.readline() == "paused\n"
        process.kill()
        process.wait()
    seen = []
    images = open_(f"folder:{folder}", progress=lambda done, total: seen.append(done))
    assert seen == list(range(9, 21))
    assert who(images) == list(range(20))


def test_too_little_space_is_said_before_the_work(open_, tmp_path, monkeypatch):
    folder = numbered(tmp_path / "a", 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_839))
    sentence = r"need 3,840 bytes in .*cache, and 3,839 bytes are free.*CLASSGAN_HOME"
    with counted_decodes(monkeypatch) as calls, pytest.raises(DataError, match=sentence):
        open_(f"folder:{folder}")
    assert calls == []


def test_a_disk_that_fills_up_is_a_sentence_and_nothing_is_lost(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    folder = numbered(tmp_path / "a", 20)
    original, writes = os.fsync, []

    def full(handle: int) -> None:
        writes.append(handle)
        if len(writes) == 5:  # pixels and records of two blocks are written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match=r"need 3,840 bytes in .*cache, and [\d,]+ bytes are free"):
            open_(f"folder:{folder}")
    with counted_decodes(monkeypatch) as calls:
        assert who(open_(f"folder:{folder}")) == list(range(20))
    assert len(calls) == 12


def test_pixels_are_on_the_disk_before_their_records(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(image_cache, "BLOCK", 4)
    folder, synced, original = numbered(tmp_path / "a", 8), [], os.fsync

    def recording(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        original(handle)

    monkeypatch.setattr(os, "fsync", recording)
    open_(f"folder:{folder}")
    record = image_cache.RECORD.itemsize
    assert synced[:4] == [4 * SHAPE, 4 * record, 8 * SHAPE, 8 * record]


def test_a_cache_that_cant_be_written_is_named(open_, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(DataError, match=r"can't be written to .*cache .* set CLASSGAN_HOME"):
        open_(f"folder:{numbered(tmp_path / 'a', 3)}")
