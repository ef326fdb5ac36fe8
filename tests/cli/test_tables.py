"""Every table that a command prints: in a terminal of 80 columns no word is cut, and into a pipe goes everything."""

import io
import sys
from datetime import datetime

import pytest
from crowd import fill
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from deployments.cli import output
from deployments.cli.server import kubernetes
from deployments.cli.tables import Listing
from deployments.kubernetes import cluster
from deployments.kubernetes.pods import Fate, Pod
from gan_core.store.coordinator import runs, versions
from gan_core.store.scheduler import submissions

LONG = "faces-of-people-who-agreed-to-be-learned-from-2026"
assert len(LONG) == 50  # as long as a training's name may be
OTHER = LONG.replace("2026", "2027")
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
MESSAGE = "No space left on device: the folder of resized images needs 3,000 MB more than this disk has"
REASON = "the instructor wants to know first why three answers in a row were copies of a neighbour's"
COMMANDS = (
    ("queue",),
    ("workers",),
    ("runs", "list"),
    ("runs", "show", LONG),
    ("runs", "compare", LONG, OTHER),
    ("status",),
    ("leaderboard",),
    ("events",),
    ("students", "list"),
    ("models", "list"),
    ("models", "show", LONG),
    ("explain", LONG),
    ("plan",),
    ("data", "versions"),
    ("kubernetes", "status"),
    ("export-grades", "--explain", "login0"),
)


@pytest.fixture
def long_names(connection, tiny, monkeypatch, tmp_path) -> None:
    """A class in which everything has the longest name that it may have."""
    monkeypatch.chdir(tmp_path)
    plan = tiny.model_dump(mode="json")
    training = fill(connection, 6, 30, tiny, name=LONG)
    run = runs.begin(connection, training, plan)
    connection.execute("SELECT classgan.end_run(%s, 'failed', %s)", (training, MESSAGE))
    versions.add_model(connection, LONG, training, 30, 1_440, {"generator.safetensors": b"weights"})
    fingerprint = HASH[:32]
    connection.execute(
        "UPDATE classgan.trainings SET data_source = %s, data_fingerprint = %s", (f"huggingface:{LONG}", fingerprint)
    )
    versions.add_data(connection, LONG, f"huggingface:{LONG}/{LONG}@{HASH[:40]}", fingerprint, 5_000, "instructor")
    connection.execute(
        "UPDATE classgan.students SET display_name = 'Ada Augusta King, Countess of Lovelace', suspended = %s WHERE login = 'login0'",
        (REASON,),
    )
    connection.execute("UPDATE classgan.workers SET message = %s WHERE name = 'login0-laptop'", (MESSAGE,))
    connection.execute("SELECT classgan.note(%s, 9, 'failed', %s)", (training, MESSAGE))
    connection.execute(
        "INSERT INTO classgan.placements (worker_id, training_id, reason) SELECT id, %s, %s FROM classgan.workers",
        (training, "one of the 2 workers that it needs at least, and the one with which the others wait least"),
    )
    asked = {"gpus": 2, "memory_mb": 80_000, "min_workers": 3, "priority": 7, "max_workers": None}
    submissions.submit(connection, OTHER, plan | {"learning_rate_g": 0.1}, asked, owner="instructor", key="")
    pod = Pod(name=f"{LONG}-0-x7k2p", job=LONG, training=LONG, rank="0", run=str(run), fate=Fate.STUCK,
              reason=MESSAGE, since=datetime.now().astimezone())  # fmt: skip
    monkeypatch.setattr(cluster, "pods", lambda namespace, training: [pod])
    monkeypatch.setattr(kubernetes, "_ended_runs", list)


@pytest.fixture
def narrow(classgan, monkeypatch):
    """Runs a command in a terminal of 80 columns; returns what is on it."""

    def run(*arguments: str) -> str:
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=True, width=80, color_system=None, _environ={})
        with monkeypatch.context() as patch:
            for name, module in list(sys.modules.items()):
                if name.startswith("deployments.cli") and getattr(module, "console", None) is output.console:
                    patch.setattr(module, "console", console) if module is not output else None
            patch.setattr(output, "console", console)
            classgan(*arguments)
        return screen.getvalue()

    return run


def words_of(text: str) -> set[str]:
    """Words, without figures, which move on between two looks."""
    return {word for word in text.split() if sum(map(str.isalpha, word)) > 2 and not word.startswith("http")}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_word_is_cut_and_into_a_pipe_goes_everything(command, classgan, narrow, long_names):
    piped, shown = classgan(*command), narrow(*command)
    assert not [mark for mark in "│┃━─\x1b…" if mark in piped]
    assert "…" not in shown
    assert words_of(shown) <= words_of(piped)  # a piece of a word would be a word that the pipe doesn't have
    too_long = {line.rstrip() for line in shown.splitlines() if cell_len(line.rstrip()) > 80}
    whole = {*(line.strip() for line in piped.splitlines()), *piped.split()}
    assert {line.strip() for line in too_long} <= whole  # sentences and words that the terminal folds


def test_what_is_long_is_there_as_a_whole(classgan, narrow, long_names):
    for command, wanted in (
        ("workers", MESSAGE),
        ("events", MESSAGE),
        ("runs list", LONG),
        ("kubernetes status", LONG),
    ):
        assert wanted in classgan(*command.split()), command
        assert wanted in " ".join(narrow(*command.split()).split()), command
    (row,) = [line for line in classgan("runs", "list").splitlines() if LONG in line]
    assert MESSAGE in row  # a row is one line


def listing(name: str) -> Listing:
    table = Listing("place", "training", "owner", "in words", folds=["in words"], spare=["owner"], title="training")
    table.add("1", name, "countess", "it waits\nfor [bold] workers and for all that they bring along")
    table.add("2", "other", "ada", Text("runs", "green"))
    return table


def printed(table: Listing, width: int) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=True, color_system=None, _environ={}).print(table, crop=False)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_words_fold_then_columns_go_then_each_row_is_a_block():
    assert printed(listing("faces"), 55) == [
        "place  training  owner     in words",
        "──────────────────────────────────────────────────────",
        "1      faces     countess  it waits for [bold] workers",
        "                           and for all that they bring",
        "                           along",
        "2      other     ada       runs",
    ]
    assert printed(listing("faces"), 42)[0] == "place  training  in words"
    assert printed(listing("x" * 40), 50) == [
        "x" * 40,
        "    place     1",
        "    owner     countess",
        "    in words  it waits for [bold] workers and for",
        "              all that they bring along",
        "other",
        "    place     2",
        "    owner     ada",
        "    in words  runs",
    ]
    assert list(listing("faces").lines())[1:] == [
        "1      faces     countess  it waits for [bold] workers and for all that they bring along",
        "2      other     ada       runs",
    ]


def test_a_value_longer_than_the_screen_is_left_to_the_terminal():
    table = Listing("version", "source")
    table.add("faces@1", HASH)
    assert printed(table, 40) == ["faces@1", "    source", f"    {HASH}"]
