"""Nobody waits for a slow machine: what it holds goes to whoever would be done before it. Time is simulated in the database."""

from uuid import uuid4

import pytest

from gan_core.coordinator.pace import quorum_for
from gan_core.plan import Plan
from gan_core.policies.sampling import cut_units
from gan_core.presets import preset
from gan_core.store import student
from gan_core.store.coordinator import events, trainings, unit_queue
from gan_core.store.migrate import add_student
from gan_core.units import EventKind, Lease, Measures, Verdict

PAYLOAD = bytes(100)
LAPTOP, GPUS = 15.0, [4_000.0] * 3  # images a second
LAPTOP_UNIT = 1_280 / LAPTOP  # seconds for a unit of `better`
TICK = 1.0  # seconds after which an idle machine asks again


class Machine:
    """One of a student's own machines; its speed is what it really computes at, whatever the class knows."""

    def __init__(self, connection, name: str, speed: float, known: bool) -> None:
        add_student(connection, "instructor")
        self.connection, self.speed, self.boot = connection, speed, uuid4()
        self.id = student.register(connection, name, self.boot, "cpu", {})
        connection.execute(
            "UPDATE classgan.workers SET images_per_second = %s WHERE id = %s", (speed if known else None, self.id)
        )
        self.lease: Lease | None = None
        self.left = 0.0  # seconds until its lease is computed

    def claim(self) -> Lease | None:
        self.lease = student.claim(self.connection, self.id, self.boot)
        self.left = self.lease.images / self.speed if self.lease else TICK
        return self.lease

    def answer(self) -> Verdict:
        lease, self.lease = self.lease, None
        assert lease is not None
        measures = Measures(
            images=lease.images, seconds=1, g_loss=1, d_loss=1, d_real_accuracy=0.5, d_fake_accuracy=0.5
        )
        return student.submit(self.connection, lease.id, self.boot, measures, PAYLOAD).verdict


class Class:
    """A training and its machines, round after round."""

    def __init__(self, connection, plan: Plan, speeds: list[float], unknown: int = 0) -> None:
        self.connection, self.plan = connection, plan
        self.id = trainings.create(connection, "test", plan.model_dump(mode="json")).id
        trainings.start(connection, self.id, "data", 10**6, len(PAYLOAD), b"weights")
        self.machines = [
            Machine(connection, f"machine {number}", speed, known=number >= unknown)
            for number, speed in enumerate(speeds)
        ]
        self.iteration = self.position = 0

    def pass_time(self, seconds: float) -> None:
        self.connection.execute(
            "UPDATE classgan.leases SET claimed_at = claimed_at - make_interval(secs => %s) WHERE ended_at IS NULL",
            (seconds,),
        )
        self.connection.execute("UPDATE classgan.workers SET last_seen = now()")
        for machine in self.machines:
            machine.left -= seconds

    def open(self) -> int:
        """Open the next iteration; returns its units."""
        quorum, seconds = quorum_for(self.plan, unit_queue.pace(self.connection, self.id))
        units, self.position = cut_units(self.plan, self.position, 10**6, None, quorum)
        unit_queue.create_units(self.connection, self.id, self.iteration, quorum, self.position, units, seconds)
        return len(units)

    def round(self) -> float:
        """One iteration to its full quorum; returns the seconds that it took."""
        units = self.open()
        clock = 0.0
        for machine in self.machines:
            machine.claim()  # the slowest first
        while unit_queue.progress(self.connection, self.id, self.iteration).done < units:
            wait = max(0.0, min(machine.left for machine in self.machines))
            self.pass_time(wait)
            clock += wait
            for machine in self.machines:
                if machine.left <= 1e-9:
                    if machine.lease is not None:
                        machine.answer()
                    machine.claim()
        arrivals = [a.id for a in unit_queue.arrivals(self.connection, self.id, self.iteration)]
        trainings.publish(self.connection, self.id, 0, self.iteration, arrivals, 0, self.position, b"weights")
        self.iteration += 1
        return clock

    def backups(self) -> int:
        return [event.kind for event in events.latest(self.connection)].count(EventKind.BACKUP)


def test_a_round_of_three_fast_machines_does_not_wait_for_a_laptop(connection):
    """A laptop takes 85 s for a unit; the round lasts as long as it lasts without it, and a unit's time of a fast one."""
    plan = preset("better").changed(quorum=4 * 1_280)
    room = Class(connection, plan, [LAPTOP, *GPUS])
    alone = 2 * plan.images_per_unit / GPUS[0]
    assert [room.round() for _ in range(3)] == pytest.approx([alone] * 3, abs=TICK + plan.images_per_unit / GPUS[0])
    assert room.backups() >= 3


def test_a_laptop_that_nobody_knows_yet_is_waited_for_in_its_first_rounds_only(connection):
    """It has its chance to show what it can; each time that it isn't done, the class knows that it is no faster than that."""
    plan = preset("better").changed(quorum=4 * 1_280, target_seconds=10)
    room = Class(connection, plan, [LAPTOP, *GPUS], unknown=1)
    rounds = [room.round() for _ in range(6)]
    assert sum(rounds[:3]) < 1.2 * LAPTOP_UNIT
    assert max(rounds[3:]) < plan.target_seconds


def test_who_is_done_in_the_planned_time_is_not_raced(connection):
    """A slow student's work counts as long as it fits into the round: what isn't finished would earn nothing."""
    plan = preset("demo")
    room = Class(connection, plan, [plan.images_per_unit / 9, 400, 400])  # nine seconds for a unit, ten are planned
    room.round()
    assert room.backups() == 0


def test_nearly_equal_machines_compute_nothing_twice(connection):
    room = Class(connection, preset("demo"), [30, 31, 29])  # 20 s for a unit: what this computer takes doesn't matter
    for _ in range(3):
        room.round()
    assert room.backups() == 0


def test_only_who_would_be_done_before_the_holder_backs_it_up(connection):
    """The holder needs 85 s. After 5 s it has 80 s left: enough for a machine of 50 s and a half, not for one of 60."""
    plan = preset("better").changed(quorum=3 * 1_280)
    room = Class(connection, plan, [LAPTOP, 1_280 / 60, 1_280 / 50])
    room.open()
    laptop, slower, faster = room.machines
    for machine in room.machines:
        assert machine.claim() is not None
    room.pass_time(5)
    for machine in (slower, faster):  # as if it had begun earlier, and were done just now
        connection.execute(
            "UPDATE classgan.leases SET claimed_at = now() - make_interval(secs => %s) WHERE id = %s",
            (1_280 / machine.speed, machine.lease.id),
        )
        assert machine.answer() is Verdict.ACCEPTED
    assert slower.claim() is None
    held = laptop.lease
    connection.execute(
        "UPDATE classgan.leases SET claimed_at = now() - interval '5 seconds' WHERE id = %s", (held.id,)
    )  # whatever this computer took meanwhile
    assert faster.claim() is not None
    assert faster.lease.units == held.units
