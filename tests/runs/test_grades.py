"""Grades: every student a row, names as they are, nothing a spreadsheet would run."""

import csv

import psycopg

from gan_core.exports import grades
from gan_core.store import ledger
from gan_core.store.migrate import add_student


def test_the_sheet_holds_what_was_accepted_and_who_did_nothing(classroom, tiny, tmp_path):
    with classroom.working(2):
        classroom.train(tiny)
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        add_student(connection, "idle", 'Zoë "O\'Neil", née Ångström')
        add_student(connection, "crafty", "=1+1")
        credits = ledger.credits(connection)
    path = tmp_path / "a folder" / "grades.csv"
    grades.write_csv(path, credits)
    rows = {row["login"]: row for row in csv.DictReader(path.open(encoding="utf-8-sig", newline=""))}
    assert sum(int(row["images"]) for row in rows.values()) == tiny.iterations * tiny.quorum
    assert rows["idle"]["name"] == 'Zoë "O\'Neil", née Ångström'
    assert rows["idle"]["images"] == "0"
    assert rows["crafty"]["name"] == "'=1+1"
    assert [p.name for p in path.parent.iterdir()] == ["grades.csv"]
