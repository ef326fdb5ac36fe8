"""Files for Canvas, Moodle and nbgrader, read as these programs read them: every mark reaches its own student, or nobody."""

import csv
import io

import pytest
from marked import ODD, contribute, good, parsed

from gan_core.exports import gradebooks, grades, rubric
from gan_core.store import logins
from gan_core.store.migrate import add_student


def test_canvas_finds_every_row_by_its_id(odd):
    """As its importer reads: Student, ID, SIS columns, Section in this order, a number that is the user's id, marks with a point."""
    rules = rubric.read()
    header, possible, *lines = parsed(gradebooks.canvas(grades.rows_of(odd, rules), rules))
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "classgan"]
    assert ("Points Possible" in possible[0], possible[-1]) == (True, "100")
    by_id = {line[1]: line for line in lines if line[1]}
    for number, name in enumerate(ODD.values()):
        line = by_id[str(1000 + number)]
        assert line[0] == (f"'{name}" if number in (6, 7) else name)
        assert (line[2], line[4], line[5]) == (f"00{number}", "'=S", "0")
    assert len(lines) == len(ODD)  # the others have the same names, by which Canvas would find these here
    assert not gradebooks.canvas([], rules).startswith(b"\xef\xbb\xbf")


def test_moodle_finds_every_row_although_a_cell_is_guarded(odd):
    """As its importer reads: cells are trimmed, and the address must then be exactly the person's."""
    add_student(odd, "stranger")
    rules = rubric.read()
    rows = grades.rows_of(odd, rules)
    header, *lines = parsed(gradebooks.moodle(rows, rules))
    assert header == ["First name", "Last name", "Email address", "classgan"]
    found = {line[2].strip(" \t\n\r\0\x0b"): [cell.strip() for cell in line] for line in lines}
    for login, name in ODD.items():
        line = found["=1+1@example.edu" if login == "formula" else f"{login}@example.org"]
        assert (line[0], line[3]) == (name.strip(), "0")
    assert not any("stranger" in line[0] for line in lines)


def in_moodle(content: bytes, key: str, people: dict[str, str]) -> dict[str, float]:
    """Whose mark becomes what, as its importer goes on: a blank key, or 0, leaves the student of the row before."""
    header, *lines = parsed(content)
    column, student, marks = header.index(key), "", {}
    for line in lines:
        if (value := line[column].strip()) not in ("", "0"):
            student = people[value]
        assert student, "the import ends at a row without a student"
        marks[student] = float(line[-1])
    return marks


@pytest.fixture
def patchy(connection):
    """A Moodle roster in which one lacks the address, one the number, one has the number 0; and one who came by hand."""
    people = {"ada": ("ada@x.edu", "1"), "bob": ("", "2"), "eve": ("eve@x.edu", ""), "joe": ("joe@x.edu", "0")}
    for days, (login, (email, number)) in enumerate(people.items(), 1):
        columns = {"First name": login, "ID number": number, "Email address": email}
        logins.issue(connection, login, login, {"key": f"Moodle:{login}", "email": email, "columns": columns})
        contribute(connection, login, good(1, 10_000 * days))
    add_student(connection, "hand")
    contribute(connection, "hand", good(1, 70_000))
    return connection


def test_in_moodle_no_mark_lands_on_another_student(patchy):
    rules = rubric.read()
    rows = grades.rows_of(patchy, rules)
    right = {one.login: mark.points for one, mark in rows}
    content = gradebooks.moodle(rows, rules)
    header = parsed(content)[0]
    people = {"ada@x.edu": "ada", "eve@x.edu": "eve", "joe@x.edu": "joe", "1": "ada", "2": "bob"}
    for key in set(header) & set(gradebooks.MOODLE_KEYS):  # whichever the instructor chooses
        marks = in_moodle(content, key, people)
        assert marks == {login: right[login] for login in marks}
    assert set(marks) == {"ada", "eve", "joe"}
    which, who = gradebooks.remarks(["moodle"], rows, rules)
    assert which == "In Moodle, choose 'Email address' in both Map from and Map to: every line of the file has it."
    assert who.startswith("Not in Moodle's file, since no roster gave their Email address: hand, bob.")


def test_moodle_is_told_of_the_key_that_most_have(patchy):
    for login in ("una", "vic", "wim"):
        logins.issue(patchy, login, "", {"key": login, "columns": {"First name": login, "Username": f"{login}1"}})
    rows = grades.rows_of(patchy, rules := rubric.read())
    patchy.execute(
        "UPDATE classgan.students SET roster = jsonb_set(roster, '{columns,Username}', '\"ada1\"') WHERE login = 'ada'"
    )
    rows = grades.rows_of(patchy, rules)
    assert parsed(gradebooks.moodle(rows, rules))[0] == ["First name", "Username", "classgan"]
    assert "choose 'Username'" in gradebooks.remarks(["moodle"], rows, rules)[0]


@pytest.mark.parametrize("book", ["canvas", "moodle"])
def test_of_two_logins_with_one_address_neither_gets_the_others_mark(connection, book):
    for login, email in (("ada", "ada@x.edu"), ("ada2", "Ada@x.edu"), ("bob", "bob@x.edu")):
        logins.issue(connection, login, login, {"key": login, "email": email, "columns": {}})
    rows = grades.rows_of(connection, rules := rubric.read())
    _, *lines = parsed(grades.FORMATS[book][1](rows, rules))
    assert [line[0] for line in lines if "Points" not in line[0]] == ["bob"]
    assert f"Not in {book.title()}'s file, since another login has the same" in (
        said := gradebooks.remarks([book], rows, rules)[-1]
    )
    assert "ada, ada2" in said


def test_canvas_never_goes_by_a_name_that_two_have(connection):
    """Without a number it tries the address, then the name: this mark would be another Ada's."""
    logins.issue(
        connection, "ada", "Lovelace, Ada", {"key": "Canvas:1", "columns": {"Student": "Lovelace, Ada", "ID": "1"}}
    )
    logins.issue(connection, "ada2", "Ada Lovelace", {"key": "Moodle:2", "email": "other@x.edu", "columns": {}})
    add_student(connection, "hand", "By Hand")
    rows = grades.rows_of(connection, rules := rubric.read())
    assert [line[1] for line in parsed(gradebooks.canvas(rows, rules))[2:]] == ["1"]
    (said,) = gradebooks.remarks(["canvas"], rows, rules)
    assert "ada2, hand" in said


@pytest.mark.parametrize("title", ["Final Grade of the GAN lab", "Semifinal", "Current Score", "override status", "Section", "ID", "Student"])  # fmt: skip
def test_a_title_that_canvas_drops_or_misreads_is_told(title):
    rules = rubric.read().model_copy(update={"title": title})
    (said,) = gradebooks.remarks(["canvas"], [], rules)
    assert repr(title) in said
    assert said.endswith("Give the rubric another title.")
    assert gradebooks.remarks(["moodle", "nbgrader", "csv"], [], rules) == []
    assert gradebooks.remarks(["canvas"], [], rules.model_copy(update={"title": "GAN lab (123)"})) == []


def test_more_points_than_moodle_takes_are_told():
    rules = rubric.read().model_copy(update={"points": 120})
    (said,) = gradebooks.remarks(["moodle"], [], rules)
    assert "up to 120 points, and Moodle refuses a file with more than 100" in said
    assert gradebooks.remarks(["canvas", "nbgrader"], [], rules) == []


def test_nbgrader_reads_the_header_and_one_login_each(odd):
    """As `nbgrader db student import` reads: csv.DictReader on plain UTF-8, `id` required, no column with that mark before it."""
    rules = rubric.read()
    rows = list(
        csv.DictReader(io.StringIO(gradebooks.nbgrader(grades.rows_of(odd, rules), rules).decode("utf-8"), newline=""))
    )
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == 2 * len(ODD)
    assert (by_id["c_comma"]["last_name"], by_id["c_comma"]["first_name"]) == ("Lovelace", "Ada")
    assert (by_id["c_comma"]["lms_user_id"], by_id["m_zeros"]["lms_user_id"]) == ("1000", "008")
    assert (by_id["c_han"]["score"], by_id["c_han"]["max_score"]) == ("0", "100")
