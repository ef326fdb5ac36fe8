"""The picture of `quality`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gan_core.quality.digits import PERFECT, READABLE, Distance

COLOURS = ("#444444", "#d95f02", "#1b9e77")  # told apart by most eyes


class Point(Protocol):
    """What a curve is made of."""

    @property
    def seconds(self) -> float: ...

    @property
    def images(self) -> int: ...

    @property
    def found(self) -> Distance: ...


def draw_curves(curves: Mapping[str, Sequence[Point]], path: Path) -> None:
    """Distance against wall time, and against images seen, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (by_time, by_images) = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for (label, points), colour in zip(curves.items(), COLOURS, strict=True):
        distances = [p.found.frechet for p in points]
        by_time.plot([p.seconds for p in points], distances, "o-", color=colour, label=label)
        by_images.plot([p.images / 1000 for p in points], distances, "o-", color=colour, label=label)
    by_time.set(xlabel="wall time, seconds", ylabel="digit distance (log)", yscale="log")
    by_images.set(xlabel="images seen, thousands")
    for axes in (by_time, by_images):
        axes.grid(visible=True, which="both", alpha=0.25)
        for height, name in ((READABLE, "well readable"), (PERFECT, "perfect")):
            axes.axhline(height, color="#999999", linestyle=":", linewidth=1)
            axes.annotate(name, (1, height), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    by_time.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": ""})
    plt.close(figure)


def draw_scaling(means: Mapping[str, Mapping[int, tuple[float, float]]], path: Path) -> None:
    """Distance against wall time for each fleet, as a PNG.

    Args:
        means: label → time → mean and the factor of its interval, which is drawn as a band.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for number, (label, curve) in enumerate(means.items()):
        times, values = [time / 1000 for time in curve], list(curve.values())
        colour = plt.get_cmap("viridis")(number / len(means)) if number else "#000000"  # the first is the baseline
        middle = [mean for mean, _ in values]
        axes.plot(times, middle, "o-", markersize=3, label=label, color=colour, linewidth=1.5 if number else 2.5)
        axes.fill_between(
            times, [m / f for m, f in values], [m * f for m, f in values], color=colour, alpha=0.12, linewidth=0
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="wall time, in thousands of images of the fastest machine",
        ylabel="digit distance",
    )
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": ""})
    plt.close(figure)
