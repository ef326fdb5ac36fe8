"""How long an export of marks takes: 500 students, 200,000 contributions, every format."""

import time
from collections import Counter
from collections.abc import Callable

import psycopg

from bench.measure import interleaved, median, ratio
from bench.options import Options
from bench.report import Row, Section, at_most
from bench.school import school
from gan_core.exports import grades, rubric
from gan_core.store.engine import connect
from gan_core.store.viewers import work_done

LIMIT = 5.0  # seconds
BY_HAND = "all contributions fetched, images added up in Python"


def fill(connection: psycopg.Connection, students: int, contributions: int) -> None:
    """So many, spread over two machines each and four weeks; one in fifty is late or refused."""
    connection.execute(
        "INSERT INTO classgan.students (login, display_name) SELECT 's' || n, 'Student ' || n FROM generate_series(1, %s) AS n",
        (students,),
    )
    connection.execute(
        "INSERT INTO classgan.workers (student_id, name, boot_id, device, images_per_second)"
        " SELECT id, 'm' || n, gen_random_uuid(), CASE WHEN id % 5 = 0 THEN 'cuda:0' ELSE 'cpu' END, 50 + id % 200"
        " FROM classgan.students, generate_series(1, 2) AS n"
    )
    connection.execute("INSERT INTO classgan.trainings (name, plan) VALUES ('t', '{}')")
    connection.execute(
        "WITH w AS (SELECT array_agg(id ORDER BY id) AS ids FROM classgan.workers)"
        " INSERT INTO classgan.contributions (training_id, iteration, lease_id, worker_id, verdict, credited, first_ordinal, units,"
        " images, seconds, g_loss, d_loss, d_real_accuracy, d_fake_accuracy, submitted_at)"
        " SELECT t.id, n / 50, n, w.ids[1 + (n * 7919) %% cardinality(w.ids)],"
        " (CASE WHEN n %% 50 > 1 THEN 'accepted' WHEN n %% 50 = 1 THEN 'late' ELSE 'refused' END)::classgan.verdict, n %% 50 > 1,"
        " 0, 2, 200 + n %% 7, 3, 1, 1, 0.5, 0.5, '2026-01-05 08:00+00'::timestamptz + n * interval '28 days' / %s"
        " FROM w, classgan.trainings AS t, generate_series(1, %s) AS n",
        (contributions, contributions),
    )
    connection.execute("VACUUM ANALYZE classgan.contributions")


def run(options: Options) -> Section:
    students, contributions, rounds = (20, 2_000, 1) if options.quick else (500, 200_000, 3)
    rules = rubric.read()
    with school() as room, connect(room.url) as connection:
        fill(connection, students, contributions)

        def seconds(action: Callable[[], object]) -> float:
            began = time.perf_counter()
            action()
            return time.perf_counter() - began

        def by_hand() -> None:
            images = Counter[int]()
            for worker, count in connection.execute(
                "SELECT worker_id, images FROM classgan.contributions WHERE credited"
            ):
                images[worker] += count

        def export() -> None:
            grades.write_all(room.folder / "marks", grades.rows_of(connection, rules), rules)

        everything = "everything: work, marks, five files"
        taken = interleaved(
            {
                BY_HAND: lambda: seconds(by_hand),
                "work, added up in the database": lambda: seconds(lambda: work_done.done(connection)),
                everything: lambda: seconds(export),
            },
            rounds,
        )
    rows = tuple(
        Row(
            label=label,
            cells=(f"{median(times):.2f}",),
            figures={"seconds": median(times)},
            ratio=ratio(times, taken[BY_HAND]),
            judgement=at_most(median(times), LIMIT, "s") if label == everything else None,
        )
        for label, times in taken.items()
    )
    return Section(
        name="grades",
        title=f"{students} students, {contributions:,} contributions",
        columns=("seconds",),
        ratio="time",
        rows=rows,
        notes=("The first line gets one figure a machine, the others all of docs/grades.md.",),
    )
