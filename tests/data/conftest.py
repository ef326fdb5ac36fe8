"""Opening small images."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gan_core.data.images import ImageSet, open_images

Open = Callable[..., ImageSet]


@pytest.fixture
def open_(tmp_path: Path) -> Open:
    """open_images with small colour images and this test's own cache."""

    def opened(data: str, **options) -> ImageSet:
        return open_images(data, **{"image_size": 8, "channels": 3, "cache": tmp_path / "cache", **options})

    return opened
