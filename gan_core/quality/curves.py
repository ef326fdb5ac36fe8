"""A training's curves as one picture: losses and quality, against images seen and against wall time."""

import io
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from gan_core.store.coordinator.evaluations import Evaluation
from gan_core.store.viewers.ledger import IterationRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 500  # of a loss curve, at most: more can't be told apart
RANDOM = "random-feature distance"
COLOURS = {"G": "#1b9e77", "D": "#d95f02", RANDOM: "#444444", "Wasserstein": "#7570b3", "FID": "#e7298a"}


def draw_curves(history: Sequence[IterationRow], evaluations: Sequence[Evaluation]) -> bytes:
    """PNG: rows are losses, distances (log) and shares (diversity, coverage); columns are images seen and minutes of training.

    Args:
        history: closed iterations, the oldest first.
        evaluations: of one protocol, the oldest first; none leaves their rows out.
    """
    from matplotlib.figure import Figure  # not pyplot: that one is for a single thread

    rows = 3 if evaluations else 1
    figure = Figure(figsize=(9, 0.6 + 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, sharey="row", sharex="col", squeeze=False)
    images = [n / 1000 for n in accumulate(row.images for row in history)]
    minutes = [s / 60 for s in accumulate(row.seconds for row in history)]
    step = max(1, -(-len(history) // POINTS))
    for axis, places in ((axes[0][0], images), (axes[0][1], minutes)):
        for label, losses in (("G", [r.g_loss for r in history]), ("D", [r.d_loss for r in history])):
            axis.plot(places[::step], losses[::step], color=COLOURS[label], label=f"loss of {label}", linewidth=1)
    if evaluations:
        seen = [e.images / 1000 for e in evaluations], [e.seconds / 60 for e in evaluations]
        distances = {RANDOM: [e.frechet for e in evaluations], "Wasserstein": [e.wasserstein for e in evaluations]}
        if all(e.fid is not None for e in evaluations):
            distances["FID"] = [e.fid or 0.0 for e in evaluations]
        for column, places in enumerate(seen):
            for label, values in distances.items():
                axes[1][column].plot(places, values, "o-", color=COLOURS[label], label=label, markersize=3)
            axes[1][column].set_yscale("log")
            axes[2][column].plot(places, [e.diversity for e in evaluations], "o-", label="diversity", markersize=3)
            axes[2][column].plot(places, [e.coverage for e in evaluations], "o-", label="coverage", markersize=3)
            axes[2][column].set_ylim(bottom=0)
    axes[-1][0].set_xlabel("images seen, thousands")
    axes[-1][1].set_xlabel("minutes of training")
    for axis in axes.flat:
        axis.grid(visible=True, alpha=0.25)
    for axis, name in zip(axes[:, 0], ("loss", "distance (log)", "share"), strict=False):
        axis.set_ylabel(name)
        axis.legend(frameon=False, fontsize=8)
    return _png(figure)


def draw_comparison(trainings: Mapping[str, tuple[Sequence[IterationRow], Sequence[Evaluation]]]) -> bytes:
    """PNG: losses of G and of D, and the random-feature distance, of several trainings against images seen.

    Args:
        trainings: name → closed iterations and evaluations, the oldest first.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for name, (history, evaluations) in trainings.items():
        images = [n / 1000 for n in accumulate(row.images for row in history)]
        step = max(1, -(-len(history) // POINTS))
        axes[0].plot(images[::step], [r.g_loss for r in history][::step], label=name, linewidth=1)
        axes[1].plot(images[::step], [r.d_loss for r in history][::step], label=name, linewidth=1)
        seen, distances = [e.images / 1000 for e in evaluations], [e.frechet for e in evaluations]
        axes[2].plot(seen, distances, "o-", label=name, markersize=3)
    axes[2].set_yscale("log")
    for axis, title in zip(axes, ("loss of G", "loss of D", f"{RANDOM} (log)"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("images seen, thousands")
        axis.grid(visible=True, alpha=0.25)
    axes[0].legend(frameon=False, fontsize=8)
    return _png(figure)


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80, metadata={"Software": ""})
    return buffer.getvalue()
