"""Every fault that a class produces, in every phase in which it can strike. Afterwards the same things hold, always."""

import signal
import time
from enum import StrEnum

import pytest
from faults.machines import Phase, Quirks
from faults.proxy import Proxy
from poll import wait_until

from gan_core.networks.models import layout_of
from gan_core.policies.codecs import payload_size

pytestmark = pytest.mark.slow


class Fault(StrEnum):
    """What can happen to a class. The words are those of the table."""

    KILL = "worker: kill -9"
    SLEEP = "worker: asleep for longer than its lease"
    SLOW = "worker: ten times slower than usual"
    FULL_DISK = "worker: disk full"
    CUT = "worker: network cut"
    CUT_BLOB = "worker: network cut in the middle of a blob"
    LOST_ANSWER = "worker: network cut before the answer"
    CLOCK = "worker: clock an hour off"
    LEADER_KILL = "coordinator: kill -9"
    RESTART = "database: killed, started again"
    DROPPED = "database: every connection cut"
    AWAY = "database: away for a minute"
    FULL = "database: disk full"
    SERVER = "class server: away for longer than a lease"


CASES = [  # each fault once but for the longest; `make rehearsal` adds that one and the other phases
    (Fault.KILL, Phase.COMPUTING),
    (Fault.SLEEP, Phase.COMPUTING),
    (Fault.SLOW, Phase.COMPUTING),
    (Fault.FULL_DISK, Phase.CLAIMED),
    (Fault.CUT, Phase.SUBMITTED),
    (Fault.CUT_BLOB, Phase.SUBMITTING),
    (Fault.LOST_ANSWER, Phase.SUBMITTING),
    (Fault.CLOCK, Phase.COMPUTING),
    (Fault.LEADER_KILL, Phase.BEFORE_COMMIT),
    (Fault.RESTART, Phase.COMPUTING),
    (Fault.DROPPED, Phase.BEFORE_COMMIT),
    (Fault.FULL, Phase.SUBMITTING),
    (Fault.SERVER, Phase.COMPUTING),
]
MORE = [
    (Fault.LEADER_KILL, Phase.GATHERED),
    (Fault.KILL, Phase.CLAIMED),
    (Fault.KILL, Phase.SUBMITTING),
    (Fault.KILL, Phase.SUBMITTED),
    (Fault.SLEEP, Phase.SUBMITTING),
    (Fault.CUT, Phase.COMPUTING),
    (Fault.CUT, Phase.SUBMITTING),
    (Fault.LEADER_KILL, Phase.CREATED),
    (Fault.LEADER_KILL, Phase.AFTER_COMMIT),
    (Fault.RESTART, Phase.SUBMITTING),
    (Fault.RESTART, Phase.CREATED),
    (Fault.RESTART, Phase.BEFORE_COMMIT),
    (Fault.RESTART, Phase.AFTER_COMMIT),
    (Fault.DROPPED, Phase.COMPUTING),
    (Fault.DROPPED, Phase.SUBMITTING),
    (Fault.AWAY, Phase.COMPUTING),
    (Fault.SERVER, Phase.SUBMITTING),
]
OF_COORDINATOR = {Phase.CREATED, Phase.GATHERED, Phase.BEFORE_COMMIT, Phase.AFTER_COMMIT}
AWAY_SECONDS = 60.0
QUIRKS = {Fault.SLOW: Quirks(slow=0.5), Fault.FULL_DISK: Quirks(full_disk=True), Fault.CLOCK: Quirks(clock=3600)}


@pytest.mark.parametrize(
    ("fault", "phase"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.rehearsal) for case in MORE)],
    ids=[f"{f.value}, {p.value}" for f, p in (*CASES, *MORE)],
)
def test_a_class_survives(school, grace, short, unbroken, told, tmp_path, fault, phase):
    name = f"case-{(*CASES, *MORE).index((fault, phase))}"
    with Proxy(school.student_url("ada")) as network:
        if phase in OF_COORDINATOR:
            held = leader = school.lead(name, short, hold=phase, at=2)
            held.await_phase()
        else:  # ada is at work before there is any, so that she gets a unit
            quirks = QUIRKS.get(fault, Quirks())
            cache = tmp_path / "cache" if fault is Fault.FULL_DISK else None
            hold = None if fault is Fault.FULL_DISK else phase
            held = school.ready_worker("ada", hold, quirks, network.url, cache)
            leader = school.lead(name, short)
            if hold:
                held.await_phase()
        before, struck = school.iteration(name), time.monotonic()
        strike(fault, school, held, network, short, name)
        if fault is Fault.LEADER_KILL:
            leader = school.lead(name, short)
        told(fault, phase, school.seconds_until_moved(name, struck, before))
        recover(fault, held)
        school.await_success(name)
        school.end(*{held, leader})
    school.assert_nothing_lost_and_nothing_twice(name, short)
    school.assert_weights_equal(name, unbroken)
    if fault is Fault.FULL_DISK:  # everybody can see why
        sentences = [text for (text,) in school.ask("SELECT text FROM classgan.events WHERE kind = 'given back'")]
        assert any("ada gave unit" in text and "File too large" in text for text in sentences), sentences
    assert grace.is_alive


def strike(fault, school, held, network, plan, name) -> None:
    """Let it happen, then let whoever is held go on; a machine that is dead or asleep can't."""
    match fault:
        case Fault.KILL | Fault.LEADER_KILL:
            held.kill()
        case Fault.SLEEP:
            held.send(signal.SIGSTOP)
        case Fault.CUT:
            network.cut()
        case Fault.CUT_BLOB:
            network.cut_after(payload_size(layout_of(plan), plan.codec) // 2)
        case Fault.LOST_ANSWER:
            network.lose_answer_after(payload_size(layout_of(plan), plan.codec))
        case Fault.RESTART:
            school.kill_database()
            held.go_on()
            school.postgres.start()
        case Fault.AWAY:
            school.kill_database()
            held.go_on()
            time.sleep(AWAY_SECONDS)  # this is the fault itself, not a wait for something
            school.postgres.start()
        case Fault.DROPPED:
            school.cut_every_connection()
        case Fault.FULL:
            fill_disk(school, held)
        case Fault.SERVER:
            school.door.stop()
            held.go_on()
            open_leases = "SELECT id FROM classgan.leases WHERE ended_at IS NULL"
            wait_until(lambda: not school.ask(open_leases), what="the end of every lease")
            school.door.start()
    held.go_on()
    if fault in (Fault.CUT_BLOB, Fault.LOST_ANSWER):
        wait_until(lambda: network.cuts, what="the cut")


def fill_disk(school, held) -> None:
    """The database says what it says when its disk is full, until there is room again."""
    school.tell(
        "CREATE FUNCTION public.no_room() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        " PERFORM nextval('public.refusals'); RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';"
        " END $$; CREATE SEQUENCE public.refusals;"
        " CREATE TRIGGER no_room BEFORE INSERT ON classgan.gradients EXECUTE FUNCTION public.no_room()"
    )
    held.go_on()
    wait_until(lambda: school.ask("SELECT last_value FROM public.refusals")[0][0] > 3, what="refused submits")
    school.tell(
        "DROP TRIGGER no_room ON classgan.gradients; DROP FUNCTION public.no_room; DROP SEQUENCE public.refusals"
    )


def recover(fault, held) -> None:
    """A machine that slept wakes up and hands in what it had: too late."""
    if fault is Fault.SLEEP:
        held.send(signal.SIGCONT)
        held.go_on()
