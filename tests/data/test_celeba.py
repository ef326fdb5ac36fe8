"""CelebA is taken from where it lies; only if it is nowhere, torchvision is asked, and a refusal says what to do by hand."""

import threading
from pathlib import Path

import pytest
from picture_files import numbered, who, zipped

from gan_core.errors import DataError

TABLE = "4\nMale Smiling\n" + "".join(
    f"{i:03}.png {'1' if i < 2 else '-1'} {'1' if i % 2 else '-1'}\n" for i in range(4)
)


@pytest.fixture
def faces(tmp_path) -> Path:
    """A folder as it comes out of the authors' zip."""
    return numbered(tmp_path / "data" / "img_align_celeba", 4)


@pytest.fixture
def told_once() -> threading.Event:
    """Set when whoever waits has learnt that the download goes on."""
    return threading.Event()


@pytest.fixture(autouse=True)
def no_download(monkeypatch, told_once) -> list[str]:
    """What Google says when too many people ask."""
    asked: list[str] = []

    class CelebA:
        def __init__(self, root: str, split: str, download: bool) -> None:
            asked.append(root)
            assert told_once.wait(10)
            raise RuntimeError("too many users have viewed or downloaded this file recently")

    monkeypatch.setattr("torchvision.datasets.CelebA", CelebA)
    monkeypatch.setattr("gan_core.data.celeba.TICK", 0.01)
    return asked


@pytest.mark.parametrize("place", [".", "data", "celeba", "data/celeba_torchvision/data"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_it_is_found_in_the_usual_places(open_, tmp_path, place, packed, no_download):
    home = tmp_path / "home" / place
    folder = numbered((tmp_path if packed else home) / "img_align_celeba", 3)
    home.mkdir(parents=True, exist_ok=True)
    if packed:
        zipped(folder, home / "img_align_celeba.zip", below="img_align_celeba/")
    images = open_("celeba", base=tmp_path / "home")
    assert who(images) == [0, 1, 2]
    assert images.source == "celeba"
    assert images.labels is None
    assert not no_download


def test_another_place_is_named(open_, tmp_path, faces):
    assert who(open_("celeba:data/img_align_celeba", base=tmp_path)) == [0, 1, 2, 3]
    assert who(open_("celeba:data", base=tmp_path)) == [0, 1, 2, 3]
    assert who(open_(f"celeba:{zipped(faces, tmp_path / 'mine.zip')}")) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("data", "labels"),
    [("celeba", [0, 1, 0, 1]), ("celeba#Male", [1, 1, 0, 0]), ("celeba:data/img_align_celeba#Male", [1, 1, 0, 0])],
)
def test_labels_are_an_attribute(open_, tmp_path, faces, data, labels):
    (faces.parent / "list_attr_celeba.txt").write_text(TABLE, encoding="utf-8")
    images = open_(data, base=tmp_path)
    assert images.labels.tolist() == labels
    assert images.source == data


def test_a_machine_without_the_attributes_has_the_same_data(open_, tmp_path, faces):
    bare = open_("celeba", base=tmp_path)
    (faces.parent / "list_attr_celeba.txt").write_text(TABLE, encoding="utf-8")
    labelled = open_("celeba", base=tmp_path)
    assert bare.labels is None
    assert labelled.labels is not None
    assert labelled.fingerprint == bare.fingerprint


def test_an_attribute_that_is_not_there_is_named(open_, tmp_path, faces):
    with pytest.raises(DataError, match=r"need list_attr_celeba\.txt beside .*img_align_celeba"):
        open_("celeba#Male", base=tmp_path)
    (faces.parent / "list_attr_celeba.txt").write_text(TABLE, encoding="utf-8")
    with pytest.raises(DataError, match=r"knows no attribute 'Hairy'\. Choose one of: Male, Smiling"):
        open_("celeba#Hairy", base=tmp_path)


def test_a_refused_download_says_where_to_put_it_by_hand(open_, tmp_path, no_download, told_once):
    with pytest.raises(DataError, match=r"too many users.* Put img_align_celeba\.zip, as it is, into "):
        open_("celeba", base=tmp_path, progress=lambda done, total: told_once.set())
    assert no_download == [str(tmp_path)]
