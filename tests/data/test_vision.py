"""Data sets of torchvision by name, without a download: MNIST's files are made here."""

import struct
from pathlib import Path

import numpy as np
import pytest

from gan_core.data.vision import names
from gan_core.errors import DataError


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("gan_core.data.celeba.TICK", 0.01)


def idx(values: np.ndarray) -> bytes:
    """MNIST's format."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def mnist(tmp_path) -> Path:
    raw = tmp_path / "cache" / "downloads" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        pixels = np.broadcast_to(np.arange(6, dtype=np.uint8)[:, None, None], (6, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(6, dtype=np.uint8) % 3))
    return raw


def test_a_data_set_by_name_with_its_classes(open_, mnist):
    images = open_("torchvision:MNIST", channels=1)
    assert images.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert images.source == "torchvision:MNIST"
    assert [shard.images for shard in images.shards] == [6]  # fetched before a machine asks for work


def test_the_names_are_those_that_need_only_a_folder():
    assert {"MNIST", "CIFAR10", "CelebA", "Flowers102", "SVHN"} <= set(names())
    assert not {"ImageFolder", "FakeData", "Kinetics", "CocoDetection", "MovingMNIST", "LFWPairs"} & set(names())


@pytest.mark.parametrize("name", ["ImageFolder", "os", "mnist", "FakeData"])
def test_no_other_name_is_called(open_, name):
    with pytest.raises(
        DataError, match=f"torchvision has no image data set '{name}' to fetch. Choose one of: .*CIFAR10"
    ):
        open_(f"torchvision:{name}")


def test_a_failed_download_is_a_sentence(open_, monkeypatch):
    monkeypatch.setattr(
        "torchvision.datasets.MNIST.download", lambda self: (_ for _ in ()).throw(OSError("no network"))
    )
    with pytest.raises(DataError, match=r"torchvision:MNIST can't be fetched into .*downloads \(no network\)"):
        open_("torchvision:MNIST")


def test_without_torchvision_the_next_step_is_named(open_, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'classgan\[torchvision\]'"):
        open_("torchvision:MNIST")
