"""Draws the curves of the class page: measured values pale, their moving mean bold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import pandas as pd

from gan_core.store.viewers.watching import Point

AXES = {"iteration": "iteration", "images seen": "images_seen", "minutes": "minutes"}
COLOURS = ("#2f6bd0", "#d9772b", "#3a9a6b")
HEIGHT = 240  # pixels


@dataclass(frozen=True, slots=True)
class Scale:
    """The upright axis of a chart."""

    title: str
    form: str  # of its numbers, as d3 writes it
    from_zero: bool = True
    step: float = 0.0  # between its numbers, at least


LOSS = Scale("loss", "~g", from_zero=False)
SHARE = Scale("share", ".0%", from_zero=False)
SPEED = Scale("images/s", "~s")
COUNT = Scale("machines", "~g", step=1)


def smoothed(values: pd.Series, smoothing: float) -> pd.Series:
    """Exponential moving mean, without the pull of the first value. 0 leaves the values as they are; below 1."""
    return values.ewm(alpha=1 - smoothing, adjust=True).mean()


def lines(
    points: Sequence[Point], series: Mapping[str, str], scale: Scale, axis: str, smoothing: float
) -> alt.LayerChart | alt.FacetChart:
    """Curves over one axis.

    Args:
        points: what to draw.
        series: label → attribute of a point; one more curve is one more entry.
        axis: a key of AXES.
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
        legend=alt.Legend(orient="top", title=None, symbolOpacity=1, symbolStrokeWidth=3) if len(series) > 1 else None,
    )
    along = alt.X(f"{axis}:Q", title=axis, axis=alt.Axis(format="~s", tickCount=5), scale=alt.Scale(nice=False))
    tooltip = ["curve:N", alt.Tooltip(f"{axis}:Q", format=",.0f"), alt.Tooltip("value:Q", format=".3~g")]
    drawn = alt.Chart(long).encode(x=along, color=colour)
    layers: list[Any] = [
        drawn.encode(y=_upright("measured", scale)).mark_line(opacity=0.25, strokeWidth=1),
        drawn.encode(y=_upright("value", scale), tooltip=tooltip).mark_line(strokeWidth=2),
    ]
    return alt.layer(*layers).properties(height=HEIGHT)


def _upright(field: str, scale: Scale) -> alt.Y:
    axis = alt.Axis(format=scale.form, tickCount=5, tickMinStep=scale.step)
    return alt.Y(f"{field}:Q", title=scale.title, axis=axis, scale=alt.Scale(zero=scale.from_zero))
