"""What began with version 0.1 goes on: it dropped transparency, and read JPEG and PNG only."""

import hashlib
import zlib
from pathlib import Path

import numpy as np
import pytest
from classroom import same_bits
from fake_hub import Repo
from picture_files import counted_decodes, flat, numbered, parquet_of, save, see_through, who

from gan_core.coordinator.coordinator import Coordinator
from gan_core.data import images as images_module
from gan_core.data.decoding import BEFORE
from gan_core.data.images import open_images
from gan_core.errors import DataError, TrainingError
from gan_core.networks.reference import train_local
from gan_core.store.coordinator import versions


def fingerprint_of_0_1(folder: Path, *names: str) -> str:
    digest = hashlib.blake2b(b"1\n", digest_size=8)
    for name in names:
        content = (folder / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0{zlib.crc32(content):08x}\n".encode())
    return digest.hexdigest()


@pytest.fixture
def mixed(tmp_path) -> Path:
    """What version 0.1 read two of: a plain picture, a transparent one, a WebP, and a WebP that is called PNG."""
    folder = tmp_path / "a"
    save(flat((10, 10, 10)), folder / "0.png")
    save(see_through("RGBA"), folder / "1.png")
    save(flat((30, 30, 30)), folder / "2.webp", lossless=True)
    save(flat((40, 40, 40)), folder / "3.png", format="WEBP", lossless=True)
    return folder


def test_a_training_that_began_with_it_sees_the_same_pixels(open_, mixed):
    began = fingerprint_of_0_1(mixed, "0.png", "1.png")
    now, then = open_(f"folder:{mixed}"), open_(f"folder:{mixed}", began_with=began)
    assert now.fingerprint != began
    assert now.pixels[:, 0, 0, 0].tolist() == [10, 60, 30, 40]
    assert now.pixels[:, 0, 7, 0].tolist() == [10, 255, 30, 40]
    assert then.fingerprint == began
    assert then.skipped == ("3.png",)
    assert then.pixels[:, 0, 7, 0].tolist() == [10, 200]
    other = open_(f"folder:{mixed}", began_with="0123456789abcdef")
    assert other.fingerprint == now.fingerprint


def test_its_own_cache_is_used_for_what_began_with_it(open_, mixed, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(images_module, "Reading", lambda background: BEFORE)
        began = open_(f"folder:{mixed}").fingerprint
    facts = next(tmp_path.glob("cache/*/images.json"))
    facts.write_text(
        facts.read_text(encoding="utf-8").split(', "before"')[0] + "}", encoding="utf-8"
    )  # it knew nothing of the rest
    with counted_decodes(monkeypatch) as calls:
        open_(f"folder:{mixed}", began_with=began)
    assert len(calls) == 4  # once, to find out; the pixels are there
    with counted_decodes(monkeypatch) as calls:
        assert open_(f"folder:{mixed}", began_with=began).fingerprint == began
    assert calls == []


def test_where_nothing_changes_the_fingerprint_is_the_same(open_, tmp_path):
    numbered(tmp_path / "a", 3)
    save(flat((3, 3, 3, 255), mode="RGBA"), tmp_path / "a" / "003.png")
    images = open_(f"folder:{tmp_path / 'a'}")
    assert images.fingerprint == fingerprint_of_0_1(tmp_path / "a", *(f"00{i}.png" for i in range(4)))
    assert who(images) == [0, 1, 2, 3]


@pytest.fixture
def clear(tmp_path) -> Path:
    """48 pictures, every other one transparent on its right half."""
    for i in range(48):
        picture = see_through("RGBA") if i % 2 else flat((i, i, i))
        save(picture.resize((32, 32)), tmp_path / "clear" / f"{i:02}.png")
    return tmp_path / "clear"


@pytest.mark.slow
def test_a_whole_training_goes_on_with_the_pixels_that_it_began_with(classroom, tiny, clear, monkeypatch):
    plan = tiny.changed(data=f"folder:{clear}", channels=3, iterations=3, images_per_unit=16, quorum=32)
    with classroom.working(1):
        with monkeypatch.context() as patch:
            patch.setattr(images_module, "Reading", lambda background: BEFORE)
            began = classroom.train(plan, until=1)
            expected = train_local(plan, began.images)
        classroom.stop.clear()
        trained = classroom.train(plan)
    assert trained.images.over == 0
    assert same_bits(trained.state, expected)
    assert classroom.check_all(trained.training_id) > 0


@pytest.mark.slow
def test_shards_too(classroom, tiny, hub, tmp_path, monkeypatch):
    """Also where only one of them has transparent pictures."""
    plain = [save(flat((i, i, i)), tmp_path / "p.png").read_bytes() for i in range(48)]
    seen_through = save(see_through("RGBA"), tmp_path / "q.png").read_bytes()
    shards = {"train-0.parquet": parquet_of(plain), "train-1.parquet": parquet_of([seen_through, *plain[1:]])}
    hub.repos["ada/faces"] = Repo("dataset", shards)
    plan = tiny.changed(data="huggingface:ada/faces", channels=3, iterations=3)
    with monkeypatch.context() as patch:
        patch.setattr(images_module, "Reading", lambda background: BEFORE)
        began = classroom.train(plan, until=0)
        expected = train_local(plan, began.images)
    with classroom.working(1):
        trained = classroom.train(plan)
    assert trained.images.fingerprint == began.images.fingerprint
    assert same_bits(trained.state, expected)


def test_other_images_are_refused_with_what_each_side_has(classroom, tiny, clear):
    plan = tiny.changed(data=f"folder:{clear}", channels=3, iterations=2, images_per_unit=16, quorum=32)
    began = classroom.train(plan, until=0).images
    save(flat((9, 9, 9), (32, 32)), clear / "00.png")
    sentence = (
        rf"began with other images \(fingerprint {began.fingerprint}; here fingerprint \w+, 48 images, "
        "24 of them transparent, on the background #ffffff"
    )
    with pytest.raises(TrainingError, match=sentence):
        Coordinator(classroom.url, "test", plan, classroom.cache).__enter__()


def test_a_version_that_it_registered_says_why_it_is_other_data_now(connection, clear, tmp_path):
    began = fingerprint_of_0_1(clear, *(f"{i:02}.png" for i in range(48)))
    versions.add_data(connection, "sprites", f"folder:{clear}", began, 48, "ada")
    now = open_images(f"folder:{clear}", image_size=8, channels=3, cache=tmp_path / "cache")
    assert np.array_equal(now.pixels[1, 0, 7], [255] * 3)
    with pytest.raises(
        DataError, match=r"24 of them transparent.*The files are the same: classgan 0\.1 dropped transp"
    ):
        versions.require_data(connection, "sprites@1", now.name, now.fingerprint, now.facts, now.before)
