"""Grades: every student a row, names as they are, marks that add up, nothing a spreadsheet would run."""

import csv
import re
from dataclasses import replace

import openpyxl
import psycopg
import pytest
from marked import ODD, contribute, good, parsed
from systems import is_only_its_owners

from gan_core.errors import RubricError
from gan_core.exports import grades, rubric
from gan_core.store import logins
from gan_core.store.migrate import add_student
from gan_core.store.viewers import ledger, work_done


def test_the_sheet_holds_what_was_accepted_and_who_did_nothing(classroom, tiny, tmp_path):
    with classroom.working(2):
        classroom.train(tiny.changed(backup_leases=False))  # whose late answer would be credited, too
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        add_student(connection, "idle", 'Zoë "O\'Neil", née Ångström')
        add_student(connection, "crafty", "=1+1")
        rules = rubric.read()
        rows = grades.rows_of(connection, rules)
    path = tmp_path / "a folder" / "grades.csv"
    grades.write(path, "csv", rows, rules)
    found = {row["login"]: row for row in csv.DictReader(path.open(encoding="utf-8-sig", newline=""))}
    assert sum(int(row["images"]) for row in found.values()) == tiny.iterations * tiny.quorum
    assert found["idle"]["name"] == 'Zoë "O\'Neil", née Ångström'
    assert (found["idle"]["images"], float(found["idle"]["mark"])) == ("0", 0)
    assert found["crafty"]["name"] == "'=1+1"
    assert [p.name for p in path.parent.iterdir()] == ["grades.csv"]
    assert is_only_its_owners(path)


def test_what_counts_is_credited_and_the_rest_is_told_apart(connection):
    for login in ("even", "burst", "liar", "idle"):
        add_student(connection, login)
    contribute(connection, "even", *(good(day, 90_000) for day in (1, 2, 3, 4)))
    contribute(
        connection,
        "burst",
        good(1, 180_000),
        (1, 7, "late", True, ""),
        (1, 9, "late", False, "the iteration is closed"),
    )
    contribute(
        connection, "liar", good(2, 10), (2, 50, "refused", False, "NaN"), (2, 50, "accepted", False, "invalid: noise")
    )
    found = {one.login: one for one in work_done.done(connection)}
    assert [one.rank for one in found.values()] == [1, 2, 3, 4]
    assert (found["even"].images, found["even"].active_days, found["even"].consistency) == (
        360_000,
        4,
        pytest.approx(1),
    )
    assert (found["even"].hours, found["even"].devices) == (pytest.approx(1), "cpu")
    assert (found["burst"].images, found["burst"].consistency, found["burst"].late) == (180_007, pytest.approx(0), 1)
    assert (found["liar"].images, found["liar"].rejected_share) == (10, pytest.approx(2 / 3))
    assert (found["idle"].answers, found["idle"].first_at) == (0, None)


def test_equal_work_is_an_equal_rank_in_a_fixed_order(connection):
    for login in ("bob", "ada", "eve"):
        add_student(connection, login)
        contribute(connection, login, good(1, 5 if login == "eve" else 10))
    assert [(one.login, one.rank) for one in work_done.done(connection)] == [("ada", 1), ("bob", 1), ("eve", 3)]
    rules = rubric.read()
    first, second = (grades.FORMATS["csv"][1](grades.rows_of(connection, rules), rules) for _ in range(2))
    assert first == second


def test_a_laptop_earns_as_much_as_a_fast_device_in_the_same_time_and_nobody_gains_by_a_false_name(connection):
    for login in ("laptop", "gpu", "masked"):
        add_student(connection, login)
        contribute(connection, login, good(1, 100 * 3600 if login == "laptop" else 10_000 * 3600))
    connection.execute("INSERT INTO classgan.students (login, display_name) VALUES ('slow', 'slow')")
    contribute(connection, "slow", good(1, 100))
    connection.execute(
        "UPDATE classgan.workers AS w SET device = 'cuda:0', images_per_second = 10000 FROM classgan.students AS s WHERE s.id = student_id AND login = 'gpu'"
    )
    connection.execute(
        "UPDATE classgan.workers AS w SET images_per_second = 10000 FROM classgan.students AS s WHERE s.id = student_id AND login = 'masked'"
    )
    hours = {one.login: one.hours for one in work_done.done(connection)}
    assert hours["laptop"] == hours["gpu"] == hours["masked"] == pytest.approx(1)


def test_pods_of_a_cluster_are_no_student(connection, tmp_path):
    """They would lead the ranking, set the usual speed of a GPU, and add nights as periods in which others did nothing."""
    for login in ("ada", "bob"):
        add_student(connection, login)
        contribute(connection, login, good(1, 90_000), good(2, 90_000))
    before = grades.rows_of(connection, rules := rubric.read())
    logins.issue(connection, logins.CLUSTER_LOGIN, "Our cluster")  # also in 19_grades.sql
    contribute(connection, logins.CLUSTER_LOGIN, *(good(day, 9_000_000) for day in (1, 3, 4, 5)))
    connection.execute("UPDATE classgan.workers SET images_per_second = 9000 WHERE student_id IN (SELECT id FROM classgan.students WHERE login = 'cluster')")  # fmt: skip
    assert grades.rows_of(connection, rules) == before
    assert [one.rank for one, _ in before] == [1, 1]
    for file in grades.write_all(tmp_path, before, rules).values():
        assert b"cluster" not in file.read_bytes().lower()
    training = connection.execute("SELECT id FROM classgan.trainings").fetchone()[0]
    assert ledger.contributing_students(connection, training) == 2


def test_no_cell_of_any_file_is_run(odd, tmp_path):
    rules = rubric.read()
    rows = grades.rows_of(odd, rules)
    for path in grades.write_all(tmp_path, rows, rules).values():
        assert is_only_its_owners(path)
        if path.suffix == ".csv":
            cells = [cell for line in parsed(path.read_bytes()) for cell in line]
            assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))], path.name
    sheet = openpyxl.load_workbook(tmp_path / "grades.xlsx").active
    names = {row[1].value: row[2] for row in sheet.iter_rows(min_row=2)}
    assert {name: names[f"c_{name}"].value for name in ODD} == ODD
    assert {cell.data_type for cell in names.values()} == {"s"}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(file for file, _ in grades.FORMATS.values())


def test_the_lines_of_a_mark_add_up_to_it(connection):
    add_student(connection, "ada")
    contribute(connection, "ada", *(good(day, 33_333) for day in (1, 2)), (3, 1, "refused", False, "NaN"))
    add_student(connection, "bob")
    contribute(connection, "bob", *(good(day, 1_000_000) for day in (1, 2, 3)))
    rules = rubric.read()
    marks = {one.login: mark for one, mark in grades.rows_of(connection, rules)}
    for mark in marks.values():
        assert round(sum(line.points for line in mark.lines), 2) == mark.points
    assert marks["bob"].points == 100
    hours = 2 * 33_333 / 100 / 3600
    quality = (2 / 3) / 0.95
    assert marks["ada"].points == pytest.approx(60 * hours + hours * (10 + 10 + 20 * quality), abs=0.006)


def test_a_little_work_is_not_a_third_of_a_mark(connection):
    add_student(connection, "ada")
    contribute(connection, "ada", good(1, 16))
    ((_, mark),) = grades.rows_of(connection, rubric.read())
    assert 0 <= mark.points < 0.1


def test_extra_work_makes_up_for_something_only_where_the_cap_says_so(connection):
    add_student(connection, "ada")
    contribute(connection, "ada", good(1, 720_000), (1, 1, "refused", False, "NaN"))
    strict = rubric.read()
    ((one, mark),) = grades.rows_of(connection, strict)
    assert mark.points < 100
    assert rubric.mark(strict.model_copy(update={"cap": 1.2}), one).points == 100
    assert rubric.mark(strict, replace(one, hours=one.hours * 9)).points == mark.points


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("points: 0", r"points: Input should be greater than 0 \(got 0\)"),
        ("work: {weight: -1}", r"work.weight: Input should be greater than or equal to 0 \(got -1\)"),
        ("colour: red", r"colour: a rubric has no such line. Lines: title, points"),
        ("quality: {full_at: 95}", r"quality.full_at is 95, but quality lies between 0 and 1"),
        ("time_zone: Mars/Phobos", r"time_zone: there is no such time zone"),
        ("title: '=1+1'", r"title: String should match pattern"),
        ("points: .nan", r"points: Input should be a finite number"),
        ("- a list", r"is no rubric: expected lines like `points: 100`"),
        ("a: [", r"is no YAML: while parsing"),
        (
            "{work: {weight: 0}, consistency: {weight: 0}, timeliness: {weight: 0}, quality: {weight: 0}}",
            "all weights are 0",
        ),
    ],
)
def test_a_rubric_that_makes_no_sense_is_refused_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "rubric.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RubricError, match=sentence):
        rubric.read(path)


def test_a_due_moment_is_meant_in_the_classs_time_zone(tmp_path, connection):
    path = tmp_path / "rubric.yaml"
    path.write_text("due: 2026-01-01 14:00\ntime_zone: Asia/Tokyo\n", encoding="utf-8")
    rules = rubric.read(path)
    assert rules.deadline.isoformat() == "2026-01-01T05:00:00+00:00"
    add_student(connection, "ada")
    contribute(connection, "ada", good(1, 10))  # at noon UTC
    ((one, _),) = grades.rows_of(connection, rules)
    assert (one.credited, one.in_time) == (1, 0)


def test_the_command_explains_a_mark_and_writes_what_was_asked_for(connection, tmp_path, classgan, monkeypatch):
    monkeypatch.chdir(tmp_path)
    add_student(connection, "ada", "[bold]Ada[/bold]")
    contribute(connection, "ada", good(1, 90_000), good(2, 90_000))
    classgan("export-grades", "--write-rubric", "mine.yaml")
    text = classgan("export-grades", "--rubric", "mine.yaml", "--explain", "ada")
    assert text.isascii()
    assert "[bold]Ada[/bold] (ada), rank 1" in text
    points = re.findall(r"^(?:work|consistency|timeliness|quality|mark)  .* ([\d.]+)$", text, flags=re.MULTILINE)
    assert points == ["30.00", "5.00", "5.00", "10.00", "50.00"]
    classgan("export-grades", "--format", "all", "--out", "marks")
    assert {p.name for p in (tmp_path / "marks").iterdir()} == {file for file, _ in grades.FORMATS.values()}
    for arguments, sentence in (
        (("--explain", "bob"), "There is no student with the login 'bob'. Students: ada."),
        (("--write-rubric", "mine.yaml"), "mine.yaml exists, and may have been edited."),
        (("--format", "canvas", "--out", "a.csv"), "a.csv is a csv table, and --format is canvas."),
        (("--format", "canvas", "--out", "x.txt"), "x.txt ends in .txt: the full table is written as .csv or .xlsx"),
        (("--out", "x.txt"), "x.txt ends in .txt"),
        (
            ("--format", "moodle", "--out", "books"),
            "Not in Moodle's file, since no roster gave their Email address: ada.",
        ),
    ):
        assert sentence in classgan("export-grades", *arguments)
    assert not (tmp_path / "x.txt").exists()
    assert "books/moodle.csv" in classgan("export-grades", "--format", "moodle", "--out", "books")
