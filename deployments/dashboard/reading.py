"""What the page reads, once for all its visitors: however many look on, the database is asked every few seconds."""

from dataclasses import dataclass

import streamlit as st

from gan_core.store.coordinator.events import Event
from gan_core.store.viewers import watching
from gan_core.store.viewers.ledger import Overview
from gan_core.store.viewers.watching import TimeBreakdown
from gan_core.units import LeaderboardRow

# Seconds that an answer is good for: what moves each second, and what takes a second to add up in a long training.
SOON, LATER = 2, 10


@dataclass(frozen=True)
class TrainingData:
    """How one training stands."""

    overview: Overview
    times: TimeBreakdown
    speeds: list[float]  # images per second of the latest iterations
    events: list[Event]


@st.cache_data(ttl=SOON, show_spinner=False)
def trainings(url: str) -> list[watching.TrainingView]:
    with watching.viewer(url) as connection:
        return watching.trainings(connection)


@st.cache_data(ttl=SOON, show_spinner=False)
def training_data(url: str, training_id: int) -> TrainingData:
    with watching.viewer(url) as connection:
        return TrainingData(
            watching.overview(connection, training_id),
            watching.time_breakdown(connection, training_id),
            watching.speeds(connection, training_id),
            watching.events(connection, training_id),
        )


@st.cache_data(ttl=LATER, show_spinner=False)
def leaderboard(url: str) -> list[LeaderboardRow]:
    with watching.viewer(url) as connection:
        return watching.leaderboard(connection)


@st.cache_data(ttl=LATER, show_spinner=False)
def machines(url: str, training_id: int) -> list[watching.MachineView]:
    with watching.viewer(url) as connection:
        return watching.machines(connection, training_id)


@st.cache_data(ttl=LATER, show_spinner=False)
def curve(url: str, training_id: int) -> list[watching.Point]:
    with watching.viewer(url) as connection:
        return watching.curve(connection, training_id)


@st.cache_data(ttl=SOON, show_spinner=False)
def sample_iterations(url: str, training_id: int) -> list[int]:
    with watching.viewer(url) as connection:
        return watching.sample_iterations(connection, training_id)


@st.cache_data(max_entries=200, show_spinner=False)  # a grid never changes
def sample(url: str, training_id: int, iteration: int) -> bytes | None:
    with watching.viewer(url) as connection:
        return watching.sample(connection, training_id, iteration)
