"""A grid shows images as they are: row by row, every pixel value its own."""

from io import BytesIO

import numpy as np
import pytest
import torch
from picture_files import save
from PIL import Image, ImageOps

from gan_core.data.images import GAP, GAP_GREY, grid


@pytest.mark.parametrize("form", [torch.tensor, np.array], ids=["tensor", "array"])
@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_a_grid_shows_the_images_row_by_row(form, channels, mode):
    values = np.linspace(-1, 1, 5, dtype=np.float32)
    sheet = grid(form(np.broadcast_to(values.reshape(5, 1, 1, 1), (5, channels, 4, 6)).copy()), columns=3)
    assert sheet.mode == mode
    assert sheet.size == (3 * (6 + GAP) + GAP, 2 * (4 + GAP) + GAP)
    pixels = np.asarray(sheet).reshape(sheet.height, sheet.width, channels)
    tiles = [pixels[GAP + r * (4 + GAP) :, GAP + c * (6 + GAP) :][:4, :6] for r in range(2) for c in range(3)]
    assert [np.unique(tile).tolist() for tile in tiles] == [[0], [64], [128], [191], [255], [GAP_GREY]]
    assert (pixels[:GAP] == GAP_GREY).all()
    assert (pixels[:, -GAP:] == GAP_GREY).all()


def test_a_grid_shows_every_pixel_value_as_it_is(open_, tmp_path):
    """uint8 → [-1, 1] → uint8 gives the same picture."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    save(Image.fromarray(ramp), tmp_path / "a" / "1.png")
    images = open_(f"folder:{tmp_path / 'a'}", image_size=16)
    assert (ImageOps.crop(grid(images.batch([0])), GAP).convert("L").tobytes()) == ramp.tobytes()


def test_a_grid_of_few_images_is_no_wider_than_they_are():
    assert grid(torch.zeros(2, 1, 4, 4)).width == 2 * (4 + GAP) + GAP


def test_a_grid_survives_a_generator_that_does_not():
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 7.0], requires_grad=True).view(4, 1, 1, 1)
    pixels = np.asarray(grid(values.to(torch.bfloat16), columns=4))
    assert pixels[GAP, GAP :: 1 + GAP][:4].tolist() == [0, 0, 0, 255]


def test_a_grid_can_be_saved(tmp_path):
    content = BytesIO()
    grid(torch.zeros(3, 3, 4, 4)).save(content, "PNG")
    assert Image.open(content).size == (3 * (4 + GAP) + GAP, 4 + 2 * GAP)
