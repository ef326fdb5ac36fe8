"""The class page, panel by panel. Students may open it: it reads the views of schema `watch`, and shows display names only."""

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import streamlit as st

from deployments.dashboard import charts, reading
from deployments.local.notes import ill_parts
from gan_core.errors import SchemaOutdated, StoreError
from gan_core.plan import Plan
from gan_core.scheduler.outlook import clock
from gan_core.settings import settings
from gan_core.status.summary import summary
from gan_core.status.throughput import flops_per_image, health, seconds_left, spoken, what_slows
from gan_core.store.viewers.watching import MachineView, TrainingView
from gan_core.units import Presence, TrainingState

log = logging.getLogger("classgan.dashboard")

REFRESH = {"off": None, "2 s": 2, "5 s": 5, "10 s": 10, "30 s": 30, "60 s": 60}
MARKS = {Presence.ONLINE: "● online", Presence.IDLE: "◐ idle", Presence.OFFLINE: "○ offline"}
ROWS = 38 + 35 * 12  # pixels of a table of twelve rows; the others are a scroll away
STYLE = """<style>
.block-container { padding: 2.5rem 1.25rem 2rem; max-width: 1280px; }
[data-testid="stMetricValue"] { font-size: 1.45rem; }
[data-testid="stImage"] img { image-rendering: pixelated; }
</style>"""


def show(url: str) -> None:
    """The whole page; each part reads anew by itself as often as its visitor wants."""
    st.set_page_config(page_title="classgan", page_icon="◧", layout="wide")
    st.html(STYLE)
    st.title("The class page", anchor=False)
    found: Sequence[TrainingView] = []
    with suppress(StoreError):  # _wait says so
        found = reading.trainings(url)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        every = REFRESH[st.selectbox("refresh", list(REFRESH), index=2, width=110)]
        training = _chosen(found) if found else None
    live = partial(_live, every=every)
    live(_ill)
    live(_await_news, url, [row.id for row in found])
    if training is not None:
        live(_status, url, training)
        left, right = st.columns(2, gap="large")
        with left:
            live(_samples, url, training)
        with right:
            live(_slow, url, training)
            live(_events, url, training)
        live(_curves, url, training)
    live(_leaderboard, url)
    live(_machines, url, training.id if training else 0)
    st.caption(f"classgan {version('classgan')} · display names only · no data leaves this machine")


def _live(panel: Callable[..., None], *arguments: object, every: float | None) -> None:
    """A panel that draws itself anew without the rest of the page. A database that is away is said in its place."""

    @st.fragment(run_every=every)
    def guarded() -> None:
        try:
            panel(*arguments)
        except StoreError as exc:
            _away(exc)

    guarded()


def _away(exc: StoreError) -> None:
    log.warning("%s", exc)  # with its address: for the terminal, not for the page
    if isinstance(exc, SchemaOutdated):
        st.error(
            "The database was made by another version of classgan. The instructor's next step: `classgan migrate`."
        )
    else:
        st.error("The database doesn't answer. Machines wait for it, nothing is lost, and this page goes on by itself.")


def _ill() -> None:
    """Parts of the class that end again and again; it goes on without them as far as it can."""
    for illness in ill_parts(settings().home):
        log = f"logs/{Path(illness.log).name}"
        st.warning(plain(illness.model_copy(update={"log": log}).sentence()))


def _await_news(url: str, known: list[int]) -> None:
    """Begin the page anew as soon as there is another training."""
    found = reading.trainings(url)
    if [row.id for row in found] != known:
        st.rerun()
    if not found:
        st.info("No training yet. Its samples, curves and speed appear here as soon as one is started.")


def _chosen(found: Sequence[TrainingView]) -> TrainingView:
    """The training to look at: the one that runs, or the newest, until the visitor wants another."""
    running = next((n for n, row in enumerate(found) if row.state is TrainingState.RUNNING), 0)
    names = [row.name for row in found]
    name = st.selectbox("training", names, index=running, width=420)  # a name of 50 characters
    return found[names.index(name)]


def plain(text: str) -> str:
    """Somebody's words as markdown that shows just these words, and code in `these`: no image is fetched, no link made."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one too many
        pieces = [text]
    escaped = [re.sub(r"([\\`*_{}\[\]()<>#+\-.!|$:~^=&@/])", r"\\\1", piece) for piece in pieces]
    return "".join(escaped[n] if n % 2 == 0 else f"`{pieces[n]}`" for n in range(len(pieces)))


def _status(url: str, training: TrainingView) -> None:
    training = next(row for row in reading.trainings(url) if row.id == training.id)  # as it stands by now
    data = reading.training_data(url, training.id)
    view, plan = data.overview, Plan.model_validate(training.plan)
    progress = plan.progress(view.iteration, view.position, view.data_images or 1)
    st.subheader(f"{plain(view.name)}: {view.state}", anchor=False)
    st.progress(progress, f"{progress:.0%} done")
    st.markdown(plain(summary(view)))
    left = seconds_left(progress, view.images, data.speeds) if view.state is TrainingState.RUNNING else None
    of = "" if plan.epochs else f" of {plan.iterations:,}"
    epoch = view.position / view.data_images if view.data_images else 0.0
    operations = flops_per_image(plan) * view.images_per_second
    shown = {
        "iteration": f"{view.iteration:,}{of}",
        "epochs": f"{epoch:,.2f}",
        "images seen": f"{view.images:,}",
        "time of training": spoken(training.seconds_trained),
    }
    if training.ended_at:
        shown |= {"ended": clock(training.ended_at)}
    elif view.state is TrainingState.RUNNING:
        shown |= {
            "time left": _range(left),
            "images/s": f"{view.images_per_second:,.0f}",
            "computing": _operations(operations),
        }
    shown |= {"machines online": f"{data.times.online:,}"}
    if view.last:
        shown |= {
            "G loss": f"{view.last.g_loss:.3f}",
            "D loss": f"{view.last.d_loss:.3f}",
            "D right on real": f"{view.last.d_real_accuracy:.0%}",
            "D right on generated": f"{view.last.d_fake_accuracy:.0%}",
        }
    _metrics(shown)


def _metrics(shown: dict[str, str]) -> None:
    """Side by side, and on a narrow screen below each other."""
    with st.container(horizontal=True):
        for label, value in shown.items():
            st.metric(label, value, width=150)


def _range(left: tuple[float, float] | None) -> str:
    if left is None:
        return "–"
    best, worst = (spoken(seconds).split(" ", 2) for seconds in left)
    best, worst = " ".join(best[:2]), " ".join(worst[:2])
    return best if best == worst else f"{best} – {worst}"


def _operations(per_second: float) -> str:
    """Floating-point operations a second."""
    return f"{per_second / 1e12:,.1f} TFLOPS" if per_second >= 1e12 else f"{per_second / 1e9:,.1f} GFLOPS"


def _samples(url: str, training: TrainingView) -> None:
    st.subheader("Samples", anchor=False)
    iterations = reading.sample_iterations(url, training.id)
    if not iterations:
        interval = training.plan.get("sample_interval", 1)
        st.info(
            f"None yet: a grid is drawn {'after each iteration' if interval == 1 else f'every {interval} iterations'}."
        )
        return
    chosen = iterations[-1]
    # A slider that is there keeps its place while newer grids come: it would show another number than the picture's.
    if len(iterations) > 1 and not st.toggle("always the newest", value=True, key=f"follow {training.id}"):
        chosen = st.select_slider("iteration", iterations, chosen, key=f"sample {training.id}")
    png = reading.sample(url, training.id, chosen)
    if png:
        st.image(png, caption=f"iteration {chosen:,}; every grid is drawn from the same noise", width="stretch")


def _slow(url: str, training: TrainingView) -> None:
    st.subheader("What is slowing us down", anchor=False)
    data = reading.training_data(url, training.id)
    for reason in what_slows(data.overview.state, data.times):
        st.markdown(f"- {plain(reason)}")


def _curves(url: str, training: TrainingView) -> None:
    points = reading.curve(url, training.id)
    st.subheader("Curves", anchor=False)
    if len(points) < 2:
        st.info("Curves begin with the second iteration.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = st.selectbox("against", list(charts.AXES), width=160)
        smoothing = st.slider("smoothing", 0.0, 0.98, 0.6, 0.02, width=260)
    drawn = (
        ("Losses", {"G": "g_loss", "D": "d_loss"}, charts.LOSS),
        ("How often D is right", {"on real": "d_real_accuracy", "on generated": "d_fake_accuracy"}, charts.SHARE),
        ("Throughput", {"images/s": "images_per_second"}, charts.SPEED),
        ("Machines in an iteration", {"machines": "workers"}, charts.COUNT),
    )
    pairs = [column for _ in range(0, len(drawn), 2) for column in st.columns(2, gap="large")]
    for column, (title, series, scale) in zip(pairs, drawn, strict=False):
        with column:
            st.markdown(f"**{title}**")
            st.altair_chart(charts.lines(points, series, scale, axis, smoothing), width="stretch")


def _leaderboard(url: str) -> None:
    standings = reading.leaderboard(url)
    st.subheader("Leaderboard", anchor=False)
    if not standings:
        st.info("No students yet.")
        return
    _metrics(
        {
            "students": f"{len(standings):,}",
            "units": f"{sum(s.units for s in standings):,}",
            "images": f"{sum(s.images for s in standings):,}",
        }
    )
    table = pd.DataFrame(
        {
            "place": range(1, len(standings) + 1),
            "name": [s.display_name for s in standings],
            "images": [s.images for s in standings],
            "state": [MARKS[s.presence] if s.machines else "–" for s in standings],
            "units": [s.units for s in standings],
            "machines": [s.machines for s in standings],
            "images/s": [round(s.images_per_second) for s in standings],
        }
    )
    _table(table)


def _table(table: pd.DataFrame) -> None:
    height = "content" if len(table) <= 12 else ROWS
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in table.select_dtypes("number")}
    st.dataframe(table, hide_index=True, height=height, width="stretch", column_config=numbers)


def _machines(url: str, training_id: int) -> None:
    machines = reading.machines(url, training_id)
    st.subheader("Machines", anchor=False)
    if not machines:
        st.info("No machine has joined yet.")
        return
    there = [m for m in machines if m.presence is Presence.ONLINE]
    gpus = [m for m in there if m.gpu_memory_mb and m.device.startswith("cuda")]
    unknown = any(m.cores is None or m.memory_mb is None for m in there)
    _metrics(
        {
            "online": f"{len(there):,} of {len(machines):,}",
            "CPU cores": f"{sum(m.cores or 0 for m in there):,}{'*' if unknown else ''}",
            "memory": f"{sum(m.memory_mb or 0 for m in there) / 1024:,.0f} GB{'*' if unknown else ''}",
            "GPUs": f"{len(gpus):,}",
        }
        | ({"GPU memory": f"{sum(m.gpu_memory_mb or 0 for m in gpus) / 1024:,.0f} GB"} if gpus else {})
    )
    if unknown:
        st.caption("\\* Some machines don't say how much they have.")
    table = pd.DataFrame(
        {
            "machine": [m.name for m in machines],
            "state": [MARKS[m.presence] for m in machines],
            "how it is": [_health(m) for m in machines],
            "images": [m.images for m in machines],
            "images/s": [round(m.images_per_second or 0) for m in machines],
            "units": [m.units for m in machines],
            "device": [m.gpu if m.device.startswith("cuda") and m.gpu else m.device for m in machines],
            "last seen": [f"{spoken(m.seconds_silent)} ago" for m in machines],
        }
    )
    _table(table)


def _health(machine: MachineView) -> str:
    busy = machine.seconds_in_hand or 0.0
    return health(machine.presence, machine.seconds_silent, machine.units_in_hand, busy, machine.message)


def _events(url: str, training: TrainingView) -> None:
    st.subheader("What happened", anchor=False)
    found = reading.training_data(url, training.id).events
    if not found:
        st.info("Nothing beyond the ordinary has happened yet.")
        return
    with st.container(height=320 if len(found) > 8 else "content"):
        for event in found:
            when = event.at.astimezone().strftime("%H:%M:%S")
            st.markdown(f"`{when}` iteration {event.iteration:,} · {plain(event.text)}")
