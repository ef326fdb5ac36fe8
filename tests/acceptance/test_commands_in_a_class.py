"""The commands of the pages that need a class which is up, on one that is."""

import signal
import subprocess
import sys

import pytest
from pages import commands
from poll import wait_until

from deployments.cli import app
from deployments.prefect_settings import clean_environment
from gan_core.settings import settings
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "typed"
ORDER = (
    "status",
    "events",
    "change",
    "pause",
    "resume",
    "export-grades",
    "generate",
    "cancel",
)  # one training survives it


@pytest.fixture
def here(school, tmp_path, monkeypatch):
    """Somebody sits in the class's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLASSGAN_HOME", str(school.stack.home))
    monkeypatch.setenv("CLASSGAN_OUTPUTS", str(school.stack.outputs))
    settings.cache_clear()
    yield tmp_path
    settings.cache_clear()
    school.cancel(NAME)  # whatever became of the test, it mustn't keep the class busy


def test_the_commands_of_the_pages_steer_a_training(school, here, tiny, capsys):
    """Each is typed as the pages have it, with this training's name."""
    school.start(NAME, tiny.changed(iterations=5000, push_interval=1))
    school.await_iteration(NAME, 2)
    wait_until((school.stack.outputs / NAME / "generator.safetensors").exists, 120, "the generator")
    wanted = [line.words[1:] for line in commands(*ORDER) if line.words[1] != "generate" or line.words[2] == "NAME"]
    for words in sorted(dict.fromkeys(wanted), key=lambda words: ORDER.index(words[0])):
        app([NAME if word == "NAME" else word for word in words], standalone_mode=False)
        if words[0] == "pause":
            wait_until(lambda: school.state(NAME) is TrainingState.PAUSED, 120, "the pause")
        if words[0] == "resume":
            assert (
                school.state(NAME) is not TrainingState.PAUSED
            )  # that it goes on, tests/acceptance/test_in_prefect.py shows
    said = " ".join(capsys.readouterr().out.split())
    assert "from its next iteration on: learning_rate_g 0.001 → 0.0005, quorum 48 → 3750" in said
    assert f"{NAME} is cancelled for good" in said
    assert school.state(NAME) is TrainingState.CANCELLED
    assert "ada" in (here / "grades.csv").read_text(encoding="utf-8")
    assert (here / "hundred.png").exists()


def test_one_more_worker_joins_from_another_terminal(school, here):
    (words,) = {line.words[1:] for line in commands("worker")}
    log = here / "log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "deployments.cli", *words],
            env={**clean_environment()},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    wait_until(lambda: "Worker 'mary' started!" in log.read_text(encoding="utf-8"), 60, "mary's worker")
    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 0
