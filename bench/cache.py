"""Reading resized images from the cache against decoding the JPEGs each time, in batches of random images."""

from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from bench.measure import interleaved, median, ratio, seconds_of
from bench.options import Options
from bench.photos import CELEBA, make_photos
from bench.report import Judgement, Row, Section, at_least
from bench.school import workplace
from gan_core.data.images import open_images

SIZE, BATCH = 64, 64
DECODING, CACHED = "decode each time", "cache"


def decoded(paths: list[Path]) -> torch.Tensor:
    """Images (B, C, H, W) in [-1, 1], as a usual data loader makes them."""
    pixels = []
    for path in paths:
        picture = Image.open(BytesIO(path.read_bytes())).convert("RGB")
        pixels.append(np.asarray(ImageOps.fit(picture, (SIZE, SIZE), Image.Resampling.BILINEAR)))
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


def run(options: Options) -> Section:
    count, rounds = (128, 3) if options.quick else (4096, 25)
    random = np.random.default_rng(0)
    with workplace() as folder:
        photos = make_photos(folder / "photos", count, CELEBA)
        paths = sorted(photos.iterdir())

        def fill() -> None:
            open_images(f"folder:{photos}", image_size=SIZE, channels=3, cache=folder / "cache")

        filling = seconds_of(fill)
        images = open_images(f"folder:{photos}", image_size=SIZE, channels=3, cache=folder / "cache")
        assert torch.equal(images.batch(range(8)), decoded(paths[:8])), "both ways must give the same pixels"

        def draw() -> np.ndarray:
            return random.integers(0, count, BATCH)

        taken = interleaved(
            {
                DECODING: lambda: seconds_of(lambda: decoded([paths[i] for i in draw()])),
                CACHED: lambda: seconds_of(lambda: images.batch(draw())),
            },
            rounds,
        )
    speed = ratio(taken[DECODING], taken[CACHED])
    return Section(
        name="cache",
        title=f"batches of {BATCH} of {count:,} JPEGs of {CELEBA[0]}x{CELEBA[1]} at {SIZE}x{SIZE}",
        columns=("ms a batch", "images/s"),
        ratio="speed",
        rows=(
            _row(DECODING, median(taken[DECODING]), 1.0),
            _row(CACHED, median(taken[CACHED]), speed, at_least(speed, 20)),
            Row(
                label="filling the cache, once, all cores",
                cells=("", f"{count / filling:,.0f}"),
                figures={"seconds": filling, "images": count},
                ratio=median(taken[DECODING]) / BATCH * count / filling,
            ),
        ),
        notes=("All of it from memory: the system keeps files that were just read, for both ways.",),
    )


def _row(label: str, seconds: float, speed: float, judgement: Judgement | None = None) -> Row:
    return Row(
        label=label,
        cells=(f"{seconds * 1000:.2f}", f"{BATCH / seconds:,.0f}"),
        figures={"seconds": seconds},
        ratio=speed,
        judgement=judgement,
    )
