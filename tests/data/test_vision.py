"""Data sets of torchvision by name, without a download: MNIST's files are made here."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from picture_files import see_through
from PIL import Image

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


def test_its_pictures_are_upright_and_keep_palette_and_transparency(open_, monkeypatch):
    lying = Image.new("RGB", (8, 8))
    lying.paste((250, 250, 250), (0, 0, 4, 8))
    lying.getexif()[0x0112] = 6
    content = io.BytesIO()
    lying.save(content, "PNG", exif=lying.getexif())
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    data = [(Image.open(content).convert("RGB"), 0), (palette, 1), (see_through("LA"), 1), (see_through("RGBA"), 0)]
    monkeypatch.setattr("gan_core.data.vision._opened", lambda name, where: data)
    pixels = open_("torchvision:MNIST").pixels
    assert pixels[0, [0, 7], 0, 0].tolist() == [250, 0]
    assert pixels[1, 0, 0].tolist() == [10, 20, 30]
    assert pixels[2:, 0, [0, 7], 0].tolist() == [[60, 255]] * 2
