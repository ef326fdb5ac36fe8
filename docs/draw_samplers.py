"""Redraws docs/images/samplers.png: what each sampler hands out at the beginning, in the middle and at the end of an epoch."""

import tempfile
from pathlib import Path

from gan_core.data.images import grid, next_units, open_images
from gan_core.plan import Plan

ROWS = [
    ("sequential", 0),
    ("shuffled", 0),
    ("stratified", 0),
    ("progressive", 0),
    ("progressive", 2),
    ("progressive", 4),
]
SHOWN, COLUMNS = 20, 10  # images of a unit


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with tempfile.TemporaryDirectory() as cache:
        images = open_images("digits", image_size=32, channels=1, cache=Path(cache))
        figure, cells = plt.subplots(len(ROWS), 3, figsize=(12, 6.4), layout="constrained")
        for row, (sampler, epoch) in zip(cells, ROWS, strict=True):
            plan = Plan(sampler=sampler, images_per_unit=500, quorum=len(images))
            units, _ = next_units(plan, epoch * len(images), images)
            for cell, unit in zip(row, (units[0], units[len(units) // 2], units[-1]), strict=True):
                cell.imshow(grid(images.batch(unit.indices[:SHOWN]), COLUMNS), cmap="gray", vmin=0, vmax=255)
                cell.set(xticks=[], yticks=[])
            row[0].set_ylabel(sampler + (f"\nepoch {epoch}" if sampler == "progressive" else ""), fontsize=11)
    for cell, when in zip(cells[0], ("first unit", "middle", "last unit of the epoch"), strict=True):
        cell.set_title(when)
    figure.savefig(Path(__file__).parent / "images" / "samplers.png", dpi=80, metadata={"Software": ""})


if __name__ == "__main__":
    main()
