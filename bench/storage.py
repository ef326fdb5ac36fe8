"""What stays the same however long a training runs: tables of blobs, units and leases, and everybody's memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil
from psycopg import Connection

from bench.children import Child
from bench.options import Options
from bench.report import Judgement, Row, Section, at_most
from bench.school import School, school
from gan_core.plan import Plan
from gan_core.store.engine import connect

WORKERS = ("ada", "grace")
CONTRIBUTIONS = 3  # an iteration
# The smallest plan that is still a GAN: three units an iteration, one a lease.
TINY = Plan(
    latent_dim=4, generator_width=4, discriminator_width=4, batch_size=8, images_per_unit=16, quorum=16 * CONTRIBUTIONS,
    max_units_per_lease=1, codec="float32", checkpoint_interval=10, iterations=10**7,
)  # fmt: skip
BOUNDED = ("gradients", "weights", "checkpoints", "units", "leases")
LEDGER = ("contributions", "iterations")  # grow by design: a row each, for ever
LOOKS = 20  # iterations over which the most counts: two rounds of checkpoints, which drop what they make unnecessary
TABLES_LIMIT, MEMORY_LIMIT = 1.5, 1.1


@dataclass(frozen=True, slots=True)
class Look:
    """The most that there was within LOOKS iterations: bytes."""

    held: Mapping[str, int]  # in the rows of each table
    files: Mapping[str, int]  # of each table, with its indexes and blobs
    database: int
    memory: Mapping[str, int]  # of each process


def run(options: Options) -> Section:
    early, late = (20, 60) if options.quick else (200, 2_000)
    with school() as room, room.leader("storage", TINY) as leader, room.workers(*WORKERS) as workers:
        processes = {"coordinator": leader, **dict(zip(WORKERS, workers, strict=True))}
        leader.ask("open")
        before = look_after(early, room, leader, processes)
        after = look_after(late - early, room, leader, processes)
        leader.ask("close")
    tables, memory = (None, None) if options.quick else (TABLES_LIMIT, MEMORY_LIMIT)
    rows = [_row(f"rows of {t}", before.held[t], after.held[t]) for t in BOUNDED]
    rows.append(_row("all of these rows", *(sum(look.held[t] for t in BOUNDED) for look in (before, after)), tables))
    rows.append(_row("files of these tables", *(sum(look.files[t] for t in BOUNDED) for look in (before, after))))
    rows += [_row(f"files of the ledger: {t}", before.files[t], after.files[t]) for t in LEDGER]
    rows.append(_row("files of the database", before.database, after.database))
    rows += [_row(f"memory of {name}", before.memory[name], after.memory[name], memory) for name in processes]
    growth = {t: (after.files[t] - before.files[t]) / (late - early) for t in LEDGER}
    contribution = growth["contributions"] / CONTRIBUTIONS
    return Section(
        name="storage",
        title=f"{late:,} iterations of a tiny model, {TINY.quorum} images each, two workers",
        columns=(f"MB after {early:,}", f"MB after {late:,}"),
        ratio="growth",
        rows=tuple(rows),
        notes=(
            f"The ledger grows by design: {contribution:.0f} bytes a contribution and {growth['iterations']:.0f} an iteration, indexes included.",
            "Files hold indexes, too, and the room of deleted rows until autovacuum has freed it, every ten seconds: they follow the speed of the moment.",
            "Memory is what the system has given the process (RSS), most of it PyTorch. Without Prefect, samples and pushes.",
        ),
    )  # fmt: skip


def look_after(iterations: int, room: School, leader: Child, processes: Mapping[str, Child]) -> Look:
    """Let so many iterations happen, and look at the last ones."""
    for _ in range(iterations - LOOKS):
        leader.ask("turn")
    looks = []
    for _ in range(min(LOOKS, iterations)):
        leader.ask("turn")
        looks.append(look(room, processes))
    return Look(
        held=_most(look.held for look in looks),
        files=_most(look.files for look in looks),
        database=max(look.database for look in looks),
        memory=_most(look.memory for look in looks),
    )


def look(room: School, processes: Mapping[str, Child]) -> Look:
    with connect(room.url) as connection:
        found = connection.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relnamespace = 'classgan'::regnamespace AND relkind = 'r'"
        ).fetchall()
        held = {
            t: _one(connection, f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM classgan.{t} AS t") for t in BOUNDED
        }
        database = _one(connection, "SELECT pg_database_size(current_database())")
    memory = {name: psutil.Process(child.process.pid).memory_info().rss for name, child in processes.items()}
    return Look(held, dict(found), database, memory)


def _one(connection: Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _most(figures: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest of each."""
    looks = list(figures)
    return {name: max(look[name] for look in looks) for name in looks[0]}


def _row(label: str, before: int, after: int, limit: float | None = None) -> Row:
    judgement: Judgement | None = at_most(after / before, limit) if limit else None
    return Row(
        label=label,
        cells=(f"{before / 1e6:,.2f}", f"{after / 1e6:,.2f}"),
        figures={"before": before, "after": after},
        ratio=after / before,
        judgement=judgement,
    )
