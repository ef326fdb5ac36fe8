"""`classgan status` says what a training waits for, in a sentence with the next step; another one for each situation."""

import os
import signal
import subprocess
import sys

import pytest
from faults.machines import Phase
from poll import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def classgan(school):
    """Runs the command against the school's database; returns exit code and everything it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deployments.cli", *arguments],
            env={**os.environ, "COLUMNS": "250", "CLASSGAN_DATABASE_URL": school.url},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def says(classgan, name: str, *parts: str) -> None:
    """Wait for a status line with all of these parts: facts need a moment to come about."""

    def line() -> str:
        text = classgan("status", name)[1]
        return text if all(part in text for part in parts) else ""

    wait_until(line, 40, f"{parts} in {classgan('status', name)[1]}")


def test_each_situation_has_its_own_sentence_and_next_step(school, short, classgan):
    """One training's life: alone, at work, with a standby, its leader asleep, the database away, paused, done."""
    plan = short.changed(lease_seconds=30)
    leader = school.lead("life", plan, hold=Phase.GATHERED, at=2)
    says(
        classgan,
        "life",
        "waiting for workers: 0 online, 1 needed. Next: start one with `classgan worker NAME` on this machine",
    )

    held = school.worker("ada", Phase.COMPUTING)
    held.await_phase()
    says(
        classgan,
        "life",
        "waiting for quorum: 0 of 48 images of iteration 0 are in, 1 unit is being computed, 2 open, 1 worker online",
    )

    standby = school.lead("life", plan, hold=Phase.GATHERED, at=2)
    says(classgan, "life", "waiting for quorum", "Standing by: ", f"process {standby.pid}")

    school.kill_database()
    code, text = classgan("status", "life")
    assert code == 1
    assert "does not answer" in text
    assert "Workers and coordinators wait for it and go on by themselves; nothing is lost. Next: start it again" in text
    assert "Traceback" not in text
    school.postgres.start()

    held.go_on()
    wait_until(lambda: leader.has_come() or standby.has_come(), 60, "the phase")  # after a restart either may lead
    ((place,),) = school.ask(
        "SELECT place FROM classgan.coordinators AS c JOIN classgan.trainings AS t ON t.id = training_id WHERE leads AND name = 'life'"
    )
    asleep = leader if place.endswith(f"process {leader.pid}") else standby
    other = standby if asleep is leader else leader
    asleep.send(signal.SIGSTOP)
    other.send(signal.SIGSTOP)  # or it would take over before anybody could look
    school.ask("UPDATE classgan.coordinators SET last_seen = now() - interval '11 seconds' WHERE leads RETURNING 1")
    school.ask("UPDATE classgan.coordinators SET last_seen = now() WHERE NOT leads RETURNING 1")
    says(classgan, "life", f"its coordinator ({place}) has been silent for", "stands by and takes over within seconds")
    for machine in (other, asleep):
        machine.send(signal.SIGCONT)
        machine.go_on()

    school.await_success("life")
    says(classgan, "life", "done after 5 iterations. More images: classgan generate life")
    school.end(leader, standby, held)


def test_paused_failed_and_leaderless_trainings_say_how_to_go_on(school, short, classgan):
    school.ask("UPDATE classgan.workers SET last_seen = now() - interval '1 minute' RETURNING 1")
    leader = school.lead("halted", short)
    school.await_iteration("halted", 0)
    wait_until(lambda: school.state("halted") == "running", what="the training")
    assert classgan("pause", "halted") == (
        0,
        "halted pauses: units that are out are still accepted. `classgan resume halted` goes on.\n",
    )
    says(
        classgan,
        "halted",
        "paused after iteration 0; nothing is handed out. Why: paused by",
        "Next: classgan resume halted",
    )
    leader.process.join(30)

    code, text = classgan("change", "halted", "--set", "quorum=64", "--set", "learning_rate_g=0.002")
    assert (code, text) == (0, "halted, from its next iteration on: learning_rate_g 0.001 → 0.002, quorum 48 → 64.\n")
    code, text = classgan("change", "halted", "--set", "model=spectral")
    assert code == 1
    assert "model can't change once a training has begun" in text

    again = school.lead("halted", short, hold=Phase.CREATED, at=0)
    again.await_phase()
    says(classgan, "halted", "waiting for workers: 0 online, 1 needed")
    again.kill()
    school.ask("UPDATE classgan.coordinators SET last_seen = now() - interval '11 seconds' RETURNING 1")
    says(
        classgan,
        "halted",
        "has been silent for",
        "and nobody stands by. If that process is gone: classgan resume halted",
    )

    assert classgan("cancel", "halted")[0] == 0
    says(classgan, "halted", "ended for good after iteration 0")
    code, text = classgan("resume", "halted")
    assert code == 1
    assert "was cancelled for good" in text
    code, text = classgan("events", "halted")
    assert "Paused by" in text
    assert "Cancelled by" in text
    school.end(leader, again)


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "events", "status"])
def test_a_training_that_does_not_exist_gets_the_names_that_do(classgan, school, command):
    code, text = classgan(command, "nonsense")
    assert code == 1
    assert "There is no training called 'nonsense'. Trainings here: " in text
