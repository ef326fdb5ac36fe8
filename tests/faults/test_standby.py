"""Two coordinators for one training: one leads, the other stands by. Whoever lost the lead can't publish."""

import signal

import pytest
from faults.machines import Phase
from poll import wait_until

from gan_core.coordinator.leadership import SILENT

pytestmark = pytest.mark.slow


def await_standby(school, name) -> None:
    standing_by = (
        "SELECT 1 FROM classgan.coordinators AS c JOIN classgan.trainings AS t ON t.id = training_id"
        " WHERE name = %s AND NOT leads"
    )
    wait_until(lambda: school.ask(standing_by, name), 30, "the standby")


def test_a_standby_takes_over_within_ten_seconds_of_kill_9(school, grace, short, unbroken):
    leader = school.lead("killed", short, hold=Phase.GATHERED, at=2)
    leader.await_phase()
    standby = school.lead("killed", short)
    await_standby(school, "killed")
    leader.kill()
    ((killed,),) = school.ask("SELECT clock_timestamp()")
    school.await_iteration("killed", 3)
    school.await_success("killed")
    school.end(leader, standby)
    school.assert_nothing_lost_and_nothing_twice("killed", short)
    school.assert_weights_equal("killed", unbroken)
    told = school.ask(
        "SELECT text, at < %s + interval '10 seconds' FROM classgan.events WHERE kind = 'take-over'", killed
    )
    assert any(in_time and "took over the lead from" in text for text, in_time in told)


@pytest.mark.parametrize("phase", [pytest.param(Phase.GATHERED, marks=pytest.mark.rehearsal), Phase.BEFORE_COMMIT])
def test_a_leader_that_was_stopped_and_wakes_up_publishes_nothing(school, grace, short, unbroken, phase):
    """The standby has led meanwhile and is in the middle of the next iteration: the most tempting moment."""
    name = f"stopped-{phase.name.lower()}"
    old = school.lead(name, short, hold=phase, at=2)
    old.await_phase()
    new = school.lead(name, short, hold=Phase.CREATED, at=3)
    await_standby(school, name)
    old.send(signal.SIGSTOP)
    new.await_phase(seconds=SILENT + 30)
    published = school.ask("SELECT iteration, images, term FROM classgan.trainings WHERE name = %s", name)
    weights = school.ask("SELECT iteration, md5(payload) FROM classgan.weights ORDER BY training_id, iteration")
    old.send(signal.SIGCONT)
    old.go_on()
    await_standby(school, name)  # it comes back, finds another leading, and stands by itself
    assert school.ask("SELECT iteration, images, term FROM classgan.trainings WHERE name = %s", name) == published
    assert school.ask("SELECT iteration, md5(payload) FROM classgan.weights ORDER BY training_id, iteration") == weights
    new.kill()  # and now the old one, whose state is old, has the lead again: it must start from what is durable
    school.await_success(name)
    school.end(old, new)
    school.assert_nothing_lost_and_nothing_twice(name, short)
    school.assert_weights_equal(name, unbroken)


def test_a_pause_is_no_reason_to_take_over(school, grace, short):
    """The leader ends because a person paused the training; the standby doesn't go on with it."""
    leader = school.lead("paused", short.changed(iterations=500))
    school.await_iteration("paused", 1)
    standby = school.lead("paused", short.changed(iterations=500))
    await_standby(school, "paused")
    school.ask(
        "SELECT classgan.control(id, 'paused', 'a test', 'a test paused it') FROM classgan.trainings WHERE name = 'paused'"
    )
    for machine in (leader, standby):
        machine.process.join(30)
        assert not machine.is_alive
    assert school.state("paused") == "paused"
    mine = "SELECT 1 FROM classgan.coordinators AS c JOIN classgan.trainings AS t ON t.id = training_id WHERE name = 'paused'"
    assert not school.ask(mine)
    school.end(leader, standby)
