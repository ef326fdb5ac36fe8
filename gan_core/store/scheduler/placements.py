"""Reads machines and trainings for placement, and writes its decisions. Of a machine, only the hardware is the student's own word."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from gan_core.machines import Machine, Placement, Wanted
from gan_core.plan import checked_plan
from gan_core.units import TrainingState

LOCK = 0x71756575  # "queu": one look at a time
CALL_SECONDS = 180  # that a coordinator may take to come up before Prefect is asked again
SETTLED_SECONDS = 300  # that a worker stays where it was placed, unless somebody comes first
USED_HOURS = 4  # over which an owner's share is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A training in the queue, with what only the store knows of it."""

    wanted: Wanted
    state: TrainingState
    plan: dict[str, Any]  # as its next coordinator is to be given it
    calls: int
    is_led: bool
    is_called: bool  # its coordinator was started by the queue
    silent: float  # seconds since a coordinator's last heartbeat


def machines(connection: Connection) -> list[Machine]:
    """Every worker of the last 30 days whose student may contribute."""
    rows = connection.execute(
        "WITH failed AS ("  # took three leases of a training within the hour, gave all back, and none was accepted
        "  SELECT l.worker_id, l.training_id FROM classgan.leases AS l JOIN classgan.trainings AS t ON t.id = l.training_id"
        "  WHERE t.state = 'running' AND l.ended_at > now() - interval '1 hour' GROUP BY 1, 2"
        "  HAVING count(*) FILTER (WHERE l.outcome IN ('spoiled', 'given back')) >= 3 AND count(*) FILTER (WHERE l.outcome = 'accepted') = 0"
        ") SELECT w.id, w.name, s.login, w.device, w.hardware, coalesce(w.images_per_second, 0),"
        " w.last_seen > now() - interval '20 seconds' AND w.drained = '', p.training_id,"
        " coalesce(p.decided_at > now() - make_interval(secs => %s), false),"
        " array(SELECT training_id FROM failed WHERE worker_id = w.id),"
        " array(SELECT id FROM classgan.trainings WHERE state IN ('queued', 'launching', 'running')"
        "   AND step_mb > classgan.room_mb(w.device, w.hardware))"
        " FROM classgan.workers AS w JOIN classgan.students AS s ON s.id = w.student_id"
        " LEFT JOIN classgan.placements AS p ON p.worker_id = w.id AND p.ended_at IS NULL"
        " WHERE s.suspended = '' AND w.last_seen > now() - interval '30 days' ORDER BY w.id",
        (SETTLED_SECONDS,),
    ).fetchall()
    found = []
    for number, name, owner, device, hardware, speed, online, training, settled, failed, too_large in rows:
        gpus, memory = gpus_of(device, hardware)
        found.append(
            Machine(
                id=number,
                name=name,
                owner=owner,
                device=device,
                gpus=gpus,
                memory_mb=memory,
                speed=speed,
                online=online,
                training=training,
                settled=settled,
                failed=frozenset(failed),
                too_large=frozenset(too_large),
            )
        )
    return found


def heard(connection: Connection, names: Collection[str]) -> None:
    """Note that Prefect hears of these workers, whether they have a shift or not."""
    connection.execute(
        "INSERT INTO classgan.joined (name) SELECT DISTINCT left(n, 100) FROM unnest(%s::text[]) AS n"
        " ON CONFLICT (name) DO UPDATE SET last_seen = now()",
        (list(names),),
    )
    connection.execute("DELETE FROM classgan.joined WHERE last_seen < now() - interval '1 day'")


def waiting(connection: Connection) -> int:
    """Workers that are there and have no shift; what they can do is known once they have one."""
    row = connection.execute("SELECT count(*) FROM classgan.waiting").fetchone()
    return row[0] if row else 0


def gpus_of(device: str, hardware: object) -> tuple[int, int]:
    """GPUs that a worker computes on, and the memory of the smallest in MB.

    Args:
        device: as the worker registered: "cpu", "mps", "cuda:0", or several: "cuda:0,cuda:1".
        hardware: as machine.hardware() reports it; whatever doesn't look like that counts as nothing.
    """
    if device.startswith("mps"):
        return 1, 0
    listed = hardware.get("gpus") if isinstance(hardware, dict) else None
    memories = [g.get("memory_mb") for g in listed if isinstance(g, dict)] if isinstance(listed, list) else []
    numbers = {int(n or 0) for n in re.findall(r"cuda(?::(\d{1,4}))?", device)}
    used = [memories[n] for n in numbers if n < len(memories) and isinstance(memories[n], int)]
    return len(used), min(used, default=0)


def entries(connection: Connection) -> list[Entry]:
    """Every training that runs or is queued."""
    rows = connection.execute(
        "SELECT t.id, t.name, t.owner, t.priority, t.gpus, t.memory_mb, t.step_mb, t.min_workers, t.max_workers, t.plan, t.iteration,"
        " t.position, t.images, t.data_images, extract(epoch FROM t.queued_at)::float,"
        " t.waited_seconds + coalesce(extract(epoch FROM now() - t.waiting_since), 0)::float, t.place_in_queue, t.state, t.in_turn,"
        " coalesce(t.given, t.plan), t.calls, t.called_at IS NOT NULL,"
        " coalesce(t.called_at > now() - make_interval(secs => %s), false),"
        " coalesce((SELECT extract(epoch FROM now() - max(c.last_seen))::float FROM classgan.coordinators AS c WHERE c.training_id = t.id),"
        "   'infinity'),"
        " EXISTS (SELECT FROM classgan.coordinators AS c WHERE c.training_id = t.id AND c.last_seen > now() - interval '10 seconds')"
        " FROM classgan.trainings AS t WHERE t.state IN ('queued', 'launching', 'running') ORDER BY t.id",
        (CALL_SECONDS,),
    ).fetchall()
    found = []
    for row in rows:
        number, name, owner, priority, gpus, memory, step, least, most, raw, iteration, position, images = row[:13]
        data_images, queued_at, waited, place, state, in_turn, given, calls, is_called, recently, silent, is_led = row[
            13:
        ]
        plan = checked_plan(raw)
        useful = plan.useful_workers()
        wanted = Wanted(
            id=number,
            name=name,
            owner=owner,
            priority=priority,
            gpus=gpus,
            memory_mb=memory,
            step_mb=step,
            min_workers=least,
            max_workers=min((n for n in (most, useful) if n is not None), default=None),
            images_left=plan.images_left(iteration, position, images, data_images),
            queued_at=queued_at,
            waited=waited,
            place=place,
            started=state != TrainingState.QUEUED or recently or is_led,
            in_turn=in_turn,
        )
        found.append(
            Entry(
                wanted=wanted,
                state=TrainingState(state),
                plan=given,
                calls=calls,
                is_led=is_led,
                is_called=is_called,
                silent=silent,
            )
        )
    return found


def used(connection: Connection) -> dict[str, float]:
    """Share of the class's work that each owner's trainings had over the last hours, 0 to 1: machines by speed and time."""
    return dict(
        connection.execute(
            "WITH had AS (SELECT t.owner, sum(coalesce(w.images_per_second, 0) * extract(epoch FROM"
            "   coalesce(p.ended_at, now()) - greatest(p.decided_at, now() - make_interval(hours => %(hours)s))))::float AS images"
            " FROM classgan.placements AS p JOIN classgan.trainings AS t ON t.id = p.training_id"
            " JOIN classgan.workers AS w ON w.id = p.worker_id"
            " WHERE p.ended_at IS NULL OR p.ended_at > now() - make_interval(hours => %(hours)s) GROUP BY 1)"
            " SELECT owner, images / greatest(1, sum(images) OVER ()) FROM had",
            {"hours": USED_HOURS},
        ).fetchall()
    )


def record(
    connection: Connection, placements: Mapping[int, Placement], served: Collection[int], in_turn: Collection[int]
) -> None:
    """Write down who works for which training, and which trainings wait."""
    decided = list(placements.values())
    connection.execute(
        "SELECT classgan.record_placements(%s::bigint[], %s::bigint[], %s::text[])",
        ([p.machine for p in decided], [p.training for p in decided], [p.because for p in decided]),
    )
    connection.execute("SELECT classgan.record_turns(%s::bigint[], %s::bigint[])", (list(served), list(in_turn)))


def drain(connection: Connection, worker: str, by: str) -> int:
    """Give the workers of this name nothing more; again, if `by` is empty. Returns how many there are."""
    row = connection.execute("SELECT classgan.drain(%s, %s)", (worker, by)).fetchone()
    return row[0] if row else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One line of the queue's memory: who worked for what, when, and why."""

    worker: str
    student: str
    training: str
    reason: str
    decided_at: datetime
    ended_at: datetime | None


def decisions(connection: Connection, name: str, limit: int = 50) -> list[Decision]:
    """The latest decisions about a training or a worker of this name, the newest first."""
    with connection.cursor(row_factory=class_row(Decision)) as cursor:
        return cursor.execute(
            "SELECT w.name AS worker, s.display_name AS student, t.name AS training, p.reason, p.decided_at, p.ended_at"
            " FROM classgan.placements AS p JOIN classgan.workers AS w ON w.id = p.worker_id"
            " JOIN classgan.students AS s ON s.id = w.student_id JOIN classgan.trainings AS t ON t.id = p.training_id"
            " WHERE w.name = %s OR t.name = %s ORDER BY p.id DESC LIMIT %s",
            (name, name, limit),
        ).fetchall()
