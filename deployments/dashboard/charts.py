"""Curves: the measured values pale, their moving mean bold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import altair as alt
import pandas as pd

from gan_core.store.watching import Point

AXES = {"iteration": "iteration", "images seen": "images_seen", "minutes": "minutes"}
COLOURS = ("#2f6bd0", "#d9772b", "#3a9a6b")
HEIGHT = 240  # pixels


def smoothed(values: "pd.Series[float]", smoothing: float) -> "pd.Series[float]":
    """Exponential moving mean, without the pull of the first value. 0 leaves the values as they are; below 1."""
    return values.ewm(alpha=1 - smoothing, adjust=True).mean()


def lines(
    points: Sequence[Point], series: Mapping[str, str], axis: str, smoothing: float, unit: str, form: str = "~g"
) -> alt.LayerChart:
    """Curves over one axis.

    Args:
        points: what to draw.
        series: label → attribute of a point; one more curve is one more entry.
        axis: a key of AXES.
        unit: title of the upright axis.
        form: of its numbers, as d3 writes it.
    """
    table = pd.DataFrame([asdict(point) for point in points])
    long = pd.concat(
        pd.DataFrame(
            {
                axis: table[AXES[axis]],
                "curve": label,
                "measured": table[attribute],
                "value": smoothed(table[attribute], smoothing),
            }
        )
        for label, attribute in series.items()
    )
    colour = alt.Color(
        "curve:N",
        scale=alt.Scale(domain=list(series), range=list(COLOURS[: len(series)])),
        legend=alt.Legend(orient="top", title=None) if len(series) > 1 else None,
    )
    base = alt.Chart(long).encode(
        x=alt.X(f"{axis}:Q", title=axis, axis=alt.Axis(format="~s", tickCount=5), scale=alt.Scale(nice=False)),
        color=colour,
    )
    pale = base.mark_line(opacity=0.25, strokeWidth=1).encode(y=_upright("measured", unit, form))
    bold = base.mark_line(strokeWidth=2).encode(
        y=_upright("value", unit, form),
        tooltip=["curve:N", alt.Tooltip(f"{axis}:Q", format=",.0f"), alt.Tooltip("value:Q", format=".3~g")],
    )
    return alt.layer(pale, bold).properties(height=HEIGHT)


def _upright(field: str, unit: str, form: str) -> alt.Y:
    return alt.Y(f"{field}:Q", title=unit, axis=alt.Axis(format=form, tickCount=5), scale=alt.Scale(zero=False))
