"""A class as its database shows it, without computing anything: as many students and iterations as a test wants."""

import psycopg
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from psycopg.types.json import Jsonb

from gan_core.plan import Plan
from gan_core.store.coordinator import trainings
from gan_core.store.migrate import add_student

# What must never be seen by whoever looks on.
SECRETS = ("login0", "TOP-SECRET-HASH", "0-Lovelace-ID", "ada@home.example", "/home/private", "copied from a neighbour")


def fill(
    connection: psycopg.Connection,
    students: int,
    iterations: int,
    plan: Plan,
    name: str = "faces",
    answers_for: int = 30,
    png: bytes = b"",
) -> int:
    """A running training with its history; returns its id.

    Every tenth machine is offline, every tenth idle. Student 0 is called Ada Lovelace and has a GPU, and secrets that
    nobody may see. The last `answers_for` iterations have one answer of each machine (at most 20).
    """
    row = trainings.create(connection, name, plan.model_dump(mode="json"))
    connection.execute(
        "UPDATE classgan.trainings SET state = 'running', iteration = %s, images = %s::bigint * 48, data_images = 5000,"
        " position = %s::bigint * 48 WHERE id = %s",
        (iterations, iterations, iterations, row.id),
    )
    if students:
        add_student(connection, "login0", "Ada Lovelace")
        connection.execute(
            "UPDATE classgan.students SET secret_hash = 'TOP-SECRET-HASH', roster = %s",
            (Jsonb({"email": "ada@home.example", "columns": {"ID": "0-Lovelace-ID"}}),),
        )
        connection.execute(
            "INSERT INTO classgan.students (login, display_name) SELECT 'login' || n, 'Student ' || n FROM generate_series(1, %s - 1) AS n",
            (students,),
        )
        connection.execute(
            "INSERT INTO classgan.workers (student_id, name, boot_id, device, hardware, images_per_second, last_seen, message)"
            " SELECT id, login || '-laptop', gen_random_uuid(), CASE login WHEN 'login0' THEN 'cuda:0' ELSE 'cpu' END, %s, 40 + n,"
            " now() - make_interval(secs => CASE n %% 10 WHEN 8 THEN 120 WHEN 9 THEN 7000 ELSE n %% 5 END),"
            " CASE n %% 10 WHEN 3 THEN 'No space left on device: /home/private/cache' WHEN 4 THEN 'another worker''s answer for the same units came first'"
            "   WHEN 5 THEN 'suspended: copied from a neighbour' ELSE '' END"
            " FROM (SELECT *, row_number() OVER (ORDER BY id) - 1 AS n FROM classgan.students) AS s",
            (Jsonb({"cores": 8, "memory_mb": 16_000, "gpus": [{"name": "Tesla T4", "memory_mb": 15_360}]}),),
        )
    connection.execute(
        "INSERT INTO classgan.iterations (training_id, number, quorum, position, opened_at, closed_at, images, contributions, workers,"
        " g_loss, d_loss, d_real_accuracy, d_fake_accuracy)"
        " SELECT %(id)s, n, 48, n * 48, now() - make_interval(secs => 2 * (%(n)s - n)), now() - make_interval(secs => 2 * (%(n)s - n) - 1.8),"
        " 48, least(%(w)s, 20), least(%(w)s, 20), 1.5 + 2 / (1 + n / 20.0) + 0.3 * sin(n), 0.6 + 0.2 * cos(n * 1.7), 0.8 + 0.05 * sin(n), 0.75 + 0.05 * cos(n)"
        " FROM generate_series(0, %(n)s - 1) AS n",
        {"id": row.id, "n": iterations, "w": max(1, students)},
    )
    connection.execute(
        "INSERT INTO classgan.iterations (training_id, number, quorum, position) VALUES (%s, %s, 48, 0)",
        (row.id, iterations),
    )
    connection.execute(
        "INSERT INTO classgan.units (training_id, iteration, ordinal, epoch, indices, images, seed)"
        " SELECT %s, %s, n, 0, '{1,2}', 16, n FROM generate_series(0, 2) AS n",
        (row.id, iterations),
    )
    connection.execute(
        "WITH done AS ("
        "   INSERT INTO classgan.leases (training_id, iteration, worker_id, boot_id, units, images, first_ordinal, units_of, claimed_at, leased_until, ended_at)"
        "   SELECT i.training_id, i.number, w.id, w.boot_id, 1, 16, 0, 0, i.opened_at, now(), now()"
        "   FROM (SELECT * FROM classgan.iterations WHERE training_id = %(id)s AND closed_at IS NOT NULL ORDER BY number DESC LIMIT %(k)s) AS i,"
        "     (SELECT * FROM classgan.workers ORDER BY id LIMIT 20) AS w RETURNING *"
        ") INSERT INTO classgan.contributions (training_id, iteration, lease_id, worker_id, verdict, credited, first_ordinal, units, images,"
        "   seconds, g_loss, d_loss, d_real_accuracy, d_fake_accuracy, submitted_at)"
        " SELECT training_id, iteration, id, worker_id, 'accepted', true, 0, 1, 16, 1.2, 1, 1, 0.5, 0.5, claimed_at + interval '1.5 seconds' FROM done",
        {"id": row.id, "k": answers_for},
    )
    connection.execute(
        "INSERT INTO classgan.coordinators (id, training_id, place, leads, last_seen)"
        " VALUES (gen_random_uuid(), %s, 'desk.school.example, process 1', true, now() + interval '1 hour')",  # there as long as a test takes
        (row.id,),
    )
    for kind, text in (
        ("silent", "Ada Lovelace (laptop) lost unit 3 of iteration 7: no heartbeat since 10:00:00."),
        (
            "given back",
            "Student 3 (laptop) gave unit 1 of iteration 9 back: No space left on device: /home/private/cache.",
        ),
        ("suspended", "Student 5 was suspended: copied from a neighbour."),
    ):
        connection.execute("SELECT classgan.note(%s, 9, %s, %s)", (row.id, kind, text))
    for iteration in range(0, iterations, max(1, iterations // 10)) if png else ():
        trainings.save_sample(connection, row.id, iteration, png)
    return row.id


def metrics_in(text: bytes) -> dict[str, Metric]:
    """What Prometheus reads in an answer, by name."""
    return {family.name: family for family in text_string_to_metric_families(text.decode())}
