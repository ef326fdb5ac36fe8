"""Folders of JPEGs that look like nothing but cost as much to decode as photographs."""

from pathlib import Path

import numpy as np
from PIL import Image

CELEBA = (178, 218)  # width and height of CelebA's aligned photographs
GRAIN = 8.0  # brightness of the noise on top: gives a 178x218 file about CelebA's 8 KB
QUALITY = 85


def make_photos(folder: Path, count: int, size: tuple[int, int]) -> Path:
    """Fill the folder with `count` colour JPEGs of this (width, height), always the same ones."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    width, height = size
    for number in range(count):
        patches = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        smooth = np.asarray(patches.resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
        noisy = smooth + random.normal(0, GRAIN, (height, width, 1)).astype(np.float32)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:06}.jpg", quality=QUALITY)
    return folder
