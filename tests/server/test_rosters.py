"""A roster is what the gradebook exports; everybody in it gets a login, the same each time it is read."""

import pytest

from deployments.server.rosters import checked_login, read
from gan_core.errors import RosterError

CANVAS = '''\
Student,ID,SIS User ID,SIS Login ID,Section,Homework 1 (123)
    Points Possible,,,,,10
"Lovelace, Ada",1001,S1,ada@example.edu,GAN-1,9
"Nuñez, José ""Pepe""",1002,S2,jose.nunez@example.edu,GAN-1,
"李, 雷",1003,S3,,GAN-1,
"Student, Test",1004,,,GAN-1,
'''

MOODLE = """\
First name,Last name,ID number,Email address,Groups
Ada,Lovelace,7,ada@example.edu,A
Ada,Byron,8,ada@example.org,A
Ærøskøbing,Ö,9,9lives@example.edu,B
"""


@pytest.fixture
def written(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "roster.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def test_a_canvas_export_is_known_without_being_told(written):
    ada, jose, lei = read(written(CANVAS), {})
    assert (ada.login, ada.name, ada.email) == ("ada", "Lovelace, Ada", "ada@example.edu")
    assert (jose.login, jose.name) == ("jose_nunez", 'Nuñez, José "Pepe"')
    assert (lei.login, lei.name, lei.email) == ("s3", "李, 雷", "")
    assert dict(ada.identity) == {
        "Student": "Lovelace, Ada", "ID": "1001", "SIS User ID": "S1", "SIS Login ID": "ada@example.edu", "Section": "GAN-1",
    }  # fmt: skip


def test_a_moodle_export_is_known_and_two_adas_get_two_logins(written):
    entries = read(written(MOODLE), {})
    assert [entry.login for entry in entries] == ["ada", "ada2", "s9lives"]
    assert entries[1].name == "Ada Byron"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_every_way_a_spreadsheet_writes_is_read(written, encoding, delimiter):
    text = f"login{delimiter}name{delimiter}email\nada{delimiter}Adèle{delimiter}ada@example.edu\n"
    (entry,) = read(written(text, encoding), {})
    assert (entry.login, entry.name, entry.email) == ("ada", "Adèle", "ada@example.edu")


def test_who_is_in_the_class_keeps_the_login_when_the_roster_is_read_again(written):
    first = {entry.login: entry.key for entry in read(written(MOODLE), {})}
    later = MOODLE.replace("Ada,Lovelace,7", "Augusta,King,7") + "Ada,Third,10,ada@example.net,C\n"
    assert [entry.login for entry in read(written(later), first)] == ["ada", "ada2", "s9lives", "ada3"]


def test_a_login_that_somebody_else_has_is_not_given_twice(written):
    (entry,) = read(written("First name,Email address\nAda,ada@example.edu\n"), {"ada": "plain:ada"})
    assert entry.login == "ada2"
    with pytest.raises(RosterError, match="line 3: somebody else in the class has the login 'ada'"):
        read(written("login,name\neve,Eve\nada,Ada\n"), {"ada": "Moodle:x"})


def test_who_stands_in_a_roster_twice_gets_one_login_or_is_asked_about(written):
    twice = MOODLE + "Ada,Lovelace,7,ada@example.edu,B\n"
    assert [entry.login for entry in read(written(twice), {})] == ["ada", "ada2", "s9lives"]
    with pytest.raises(RosterError, match="lines 2 and 4: both have the login 'ada'"):
        read(written("login,name\nada,Ada\neve,Eve\nada,Third\n"), {})


def test_what_is_wrong_names_its_line(written):
    with pytest.raises(RosterError, match=r"roster\.csv, line 3: 'A B' can't be a login"):
        read(written("login,name\nada,Ada\nA B,Eve\n"), {})


@pytest.mark.parametrize("content", [b"PK\x03\x04\x14\x00\x00\x00", b"\x89PNG\r\n\x1a\n\x00\x00", b"\xff\xfe\x00"])
def test_a_workbook_is_no_roster(tmp_path, content):
    (tmp_path / "roster.xlsx").write_bytes(content)
    with pytest.raises(RosterError, match=r"save it as CSV|no roster"):
        read(tmp_path / "roster.xlsx", {})


def test_another_table_is_refused_with_what_was_expected(written):
    with pytest.raises(
        RosterError, match=r"Its columns: age, colour\. Expected, among others, Canvas: ID, Section, Student"
    ):
        read(written("colour,age\nred,3\n"), {})
    with pytest.raises(RosterError, match="no roster"):
        read(written(""), {})
    with pytest.raises(RosterError, match="names no student"):
        read(written("login,name\n,\n"), {})


@pytest.mark.parametrize(
    "login", ["instructor", "pg_monitor", "classgan_owner", "Ada", "1a", "a" * 32, "", "a-b", "postgres", 'x"; DROP']
)
def test_a_login_that_means_something_else_can_not_be_given(login):
    with pytest.raises(RosterError, match="can't be a login"):
        checked_login(login)


@pytest.mark.parametrize("mail", ["instructor@example.edu", "pg_x@example.edu", "classgan@example.edu"])
def test_an_address_that_looks_like_one_of_ours_gets_a_login_beside_it(written, mail):
    (entry,) = read(written(f"First name,Email address\nX,{mail}\n"), {})
    assert checked_login(entry.login) == entry.login
