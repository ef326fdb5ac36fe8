"""`classgan status` says what a training waits for, in a sentence with the next step; another one for each situation."""

import signal

import pytest
from faults.machines import Phase
from poll import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def database(school) -> str:
    """Where the shared fixture `classgan` looks."""
    return school.url


def says(classgan, name: str, *parts: str) -> None:
    """Wait for a status line with all of these parts: facts need a moment to come about."""

    def line() -> str:
        text = classgan("status", name)
        return text if all(part in text for part in parts) else ""

    wait_until(line, 40, f"{parts} in {classgan('status', name)}")


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
    text = classgan("status", "life")
    assert "does not answer" in text
    assert "Workers and coordinators wait for it and go on by themselves; nothing is lost. Next: start it again" in text
    school.postgres.start()

    held.go_on()
    wait_until(lambda: leader.has_come() or standby.has_come(), 60, "the phase")  # after a restart either may lead
    here = "SELECT leads, place FROM classgan.coordinators AS c JOIN classgan.trainings AS t ON t.id = training_id WHERE name = 'life'"
    wait_until(lambda: sorted(leads for leads, _ in school.ask(here)) == [False, True], 60, "a leader and a standby")
    place = dict(school.ask(here))[True]
    asleep = leader if place.endswith(f"process {leader.pid}") else standby
    other = standby if asleep is leader else leader
    asleep.send(signal.SIGSTOP)
    other.send(signal.SIGSTOP)  # or it would take over before anybody could look
    school.ask("UPDATE classgan.coordinators SET last_seen = now() - interval '11 seconds' WHERE leads RETURNING 1")
    school.ask("UPDATE classgan.coordinators SET last_seen = now() + interval '1 minute' WHERE NOT leads RETURNING 1")
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
        "halted pauses: units that are out are still accepted. `classgan resume halted` goes on.\n"
    )
    says(
        classgan,
        "halted",
        "paused after iteration 0; nothing is handed out. Why: paused by",
        "Next: classgan resume halted",
    )
    leader.process.join(30)

    text = classgan("change", "halted", "--set", "quorum=64", "--set", "learning_rate_g=0.002")
    assert text == "halted, from its next iteration on: learning_rate_g 0.001 → 0.002, quorum 48 → 64.\n"
    text = classgan("change", "halted", "--set", "model=spectral")
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
        "If its process is gone, the class starts another one within half a minute; if that doesn't happen: classgan resume halted",
    )

    classgan("cancel", "halted")
    says(classgan, "halted", "ended for good after iteration 0")
    text = classgan("resume", "halted")
    assert "was cancelled for good" in text
    text = classgan("events", "halted")
    assert "Paused by" in text
    assert "Cancelled by" in text
    school.end(leader, again)


@pytest.mark.parametrize("command", ["pause", "resume", "cancel", "events", "status"])
def test_a_training_that_does_not_exist_gets_the_names_that_do(classgan, school, command):
    text = classgan(command, "nonsense")
    assert "There is no training called 'nonsense'. Trainings here: " in text
