"""A class in which somebody has done something, for tests of marks and of the files that hold them."""

import csv
import io
from uuid import uuid4

ODD = {
    "comma": "Lovelace, Ada",
    "quotes": 'Nuñez, José "Pepe"',
    "newline": "Line\nBreak, Ann",
    "emoji": "Zoë 🦉",
    "rtl": "עדה לאבלייס",
    "han": "李, 雷",
    "formula": "=1+1",
    "hidden": " @SUM(A1)",
    "zeros": "007",
}


def contribute(connection, login: str, *answers: tuple) -> None:
    """(day of January 2026, images, verdict, credited, reason) for each contribution; device and speed of a usual laptop."""
    training = connection.execute(
        "INSERT INTO classgan.trainings (name, plan) VALUES ('t', '{}') ON CONFLICT (name) DO UPDATE SET name = 't' RETURNING id"
    ).fetchone()[0]
    worker = connection.execute(
        "INSERT INTO classgan.workers (student_id, name, boot_id, device, images_per_second)"
        " SELECT id, 'm', %s, 'cpu', 100 FROM classgan.students WHERE login = %s"
        " ON CONFLICT (student_id, name) DO UPDATE SET device = 'cpu' RETURNING id",
        (uuid4(), login),
    ).fetchone()[0]
    for day, images, verdict, credited, reason in answers:
        connection.execute(
            "INSERT INTO classgan.contributions (training_id, iteration, lease_id, worker_id, verdict, credited, reason, first_ordinal,"
            " units, images, seconds, g_loss, d_loss, d_real_accuracy, d_fake_accuracy, submitted_at)"
            " SELECT %s, 1, coalesce(max(lease_id), 0) + 1, %s, %s, %s, %s, 0, 1, %s, 2, 0, 0, 0, 0, make_timestamptz(2026, 1, %s, 12, 0, 0, 'UTC')"
            " FROM classgan.contributions",
            (training, worker, verdict, credited, reason, images, day),
        )


def good(day: int, images: int) -> tuple:
    return day, images, "accepted", True, ""


def parsed(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
