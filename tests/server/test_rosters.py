"""A roster is what the gradebook exports; everybody in it gets a login, the same each time it is read."""

import subprocess
import sys

import pytest
from systems import is_only_its_owners

from deployments.server import class_file, rosters
from deployments.server.rosters import checked_login
from gan_core.errors import RosterError
from gan_core.exports import gradebooks, grades, rubric
from gan_core.settings import settings
from gan_core.store import logins
from gan_core.store.logins import Person

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


GERMAN = """\
Vorname,Nachname,E-Mail-Adresse,Rollen,Gruppen,Letzter Kurszugriff
Ada,Lovelace,ada@example.edu,Student/in,A,jetzt
Bob,Ott,bob@example.edu,Student/in,,nie
Grace,Hopper,grace@example.edu,Trainer/in,,3 Tage 2 Stunden
Alan,Turing,alan@example.edu,"Trainer/in, Student/in",,nie
"""


def read(path, known):
    return list(rosters.read(path, known).entries)


def known(login: str, *keys: str, name: str = "", email: str = "") -> dict[str, Person]:
    return {login: Person(name, email, frozenset(keys))}


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
    first = {entry.login: Person("", "", frozenset({entry.key})) for entry in read(written(MOODLE), {})}
    later = MOODLE.replace("Ada,Lovelace,7", "Augusta,King,7") + "Ada,Third,10,ada@example.net,C\n"
    assert [entry.login for entry in read(written(later), first)] == ["ada", "ada2", "s9lives", "ada3"]


def test_a_login_that_somebody_else_has_is_not_given_twice(written):
    (entry,) = read(written("First name,Email address\nAda,ada@example.edu\n"), known("ada", "plain:ada"))
    assert entry.login == "ada2"
    with pytest.raises(RosterError, match="line 3: somebody else in the class has the login 'ada'"):
        read(written("login,name\neve,Eve\nada,Ada\n"), known("ada", "Moodle:x"))


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
    with pytest.raises(RosterError, match="Its columns: none"):
        read(written(""), {})
    with pytest.raises(RosterError, match=r"Its columns: a, b, c\."):
        read(written("a;b;c\n"), {})
    with pytest.raises(RosterError, match="names no student: below the columns' names, each needs a line"):
        read(written("login,name,email\n"), {})
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


# The same person in another gradebook's list


def test_one_address_is_one_person_in_every_list(written):
    lists = ("Student,ID,SIS User ID,SIS Login ID,Section\n\"Lovelace, Ada\",1001,S1,Ada@Example.edu,G\n", MOODLE, "login,name,email\nada,Ada,ADA@example.edu\n")  # fmt: skip
    for first in lists:
        (ada, *_) = read(written(first), {})
        for second in lists:
            entries = read(written(second), known(ada.login, ada.key, email=ada.email))
            assert entries[0].login == ada.login
    (again,) = read(
        written("First name,Email address\nAda,other@example.edu\n"), known("ada", "Moodle:OTHER@example.edu")
    )
    assert again.login == "ada"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("login,name,email\nadele,Ada,ada@example.edu\n", "line 2: 'ada' in the class has the same address, ada@example.edu. If this is the same person, write the login ada"),
        ("Student,ID,SIS Login ID,Section\nAda,1,x@example.edu,G\nBob,2,X@example.edu,G\n", "lines 2 and 3: two people with the address X@example.edu"),
        ("First name,Email address\nZoe,zoe@example.edu\n", "line 2: zoe and zoe2 in the class have this address, zoe@example.edu, both"),
    ],
)  # fmt: skip
def test_where_an_address_leaves_it_open_the_instructor_is_asked(written, text, sentence):
    there = known("ada", "Canvas:1001", email="ada@example.edu")
    there |= known("zoe", "Canvas:3", email="zoe@example.edu") | known("zoe2", "Canvas:4", email="Zoe@example.edu")
    with pytest.raises(RosterError, match=sentence):
        read(written(text), there)


def test_a_second_login_for_a_name_is_never_made_without_a_word(written):
    there = known("ada", "Canvas:1001", name="Lovelace, Ada")
    (said,) = rosters.read(written("First name,Last name,Email address\nAda,Lovelace,ada@example.edu\n"), there).remarks
    assert said.startswith("ada2 and ada are both called Ada Lovelace, and no address tells")
    roster = rosters.read(written('Student,ID,Section\n"Lovelace, Ada",7,G\n'), there)
    assert roster.remarks == ()  # Canvas's numbers tell them apart


def test_nobody_gets_the_login_of_the_clusters_pods(written):
    (entry,) = read(written("First name,Email address\nC,cluster@example.edu\n"), {})
    assert entry.login == "cluster2"
    with pytest.raises(RosterError, match="somebody else in the class has the login 'cluster'"):
        read(written("login,name\ncluster,C\n"), {})


# Lists that look different


def test_canvas_may_give_the_two_names_a_column_each(written):
    text = "LastName,FirstName,ID,SIS User ID,SIS Login ID,Section,Lab (1)\n    Points Possible,,,,,,10\nLovelace,Ada,1001,S1,ada@example.edu,G,9\nStudent,Test,9,,,G,\n"
    (ada,) = read(written(text), {})
    assert (ada.login, ada.name, ada.key) == ("ada", "Lovelace, Ada", "Canvas:1001")
    assert (ada.identity["Student"], ada.identity["ID"]) == ("Lovelace, Ada", "1001")
    (ada,) = read(written("LastName,FirstName,ID\nLovelace,Ada,1001\n"), {})
    assert ada.login == "lovelace_ada"


def test_moodle_is_read_in_every_language_and_teachers_are_no_students(written):
    roster = rosters.read(written(GERMAN), {})
    assert [entry.login for entry in roster.entries] == ["ada", "bob", "alan"]
    assert dict(roster.entries[0].identity) == {"First name": "Ada", "Last name": "Lovelace", "Email address": "ada@example.edu"}  # fmt: skip
    assert roster.remarks == ("Left out, since they have another role than students: Grace Hopper (Trainer/in).",)
    japanese = "名,姓,メールアドレス,ロール\n花子,山田,hanako@example.jp,学生\n太郎,鈴木,taro@example.jp,学生\n一郎,佐藤,ichiro@example.jp,教師\n"
    assert [entry.login for entry in read(written(japanese), {})] == ["hanako", "taro"]
    english = "First name,Last name,Email address,Roles\nAda,L,ada@x.edu,Student\nEve,T,eve@x.edu,Teacher\nJoe,T,joe@x.edu,Teacher\n"
    assert [entry.login for entry in read(written(english), {})] == ["ada"]


# The command


@pytest.fixture
def a_class(classgan):
    class_file.make(settings().home, ("class.example",), "127.0.0.1", 4242, "")
    return classgan


def test_a_roster_is_read_again_with_nobody_new_and_tells_more_of_those_it_knows(
    a_class, written, tmp_path, connection
):
    out = tmp_path / "invites.csv"
    arguments = ("students", "add", "--out", str(out), "--roster")
    said = a_class(*arguments, str(written(CANVAS)))
    assert "The roster has no address of s3: hand these their lines over yourself." in said
    invites = out.read_bytes()
    assert "Everybody in this roster is in the class already" in a_class(*arguments, str(written(CANVAS)))
    moodle = "First name,Last name,ID number,Email address\nAda,Lovelace,7,ada@example.edu\n"
    assert "Everybody in this roster is in the class already" in a_class(*arguments, str(written(moodle)))
    assert out.read_bytes() == invites
    rules = rubric.read()
    rows = [row for row in grades.rows_of(connection, rules) if row[0].login == "ada"]
    assert b"Ada,Lovelace,ada@example.edu,0" in gradebooks.moodle(rows, rules)
    assert b'"Lovelace, Ada",1001,S1' in gradebooks.canvas(rows, rules)
    assert logins.people(connection)["ada"].keys == {"Canvas:1001", "Moodle:ada@example.edu"}
    new = "First name,Email address\nNew,new@example.edu\n"
    assert "exists, and the invites in it can't be made again" in a_class(*arguments, str(written(new)))


def test_an_invite_that_is_printed_into_a_file_is_only_its_owners(a_class, tmp_path):
    path = tmp_path / "invite.txt"
    path.touch(0o644)
    with path.open("w", encoding="utf-8") as out:
        command = [sys.executable, "-P", "-m", "deployments.cli", "students", "add", "ada"]
        subprocess.run(command, stdout=out, check=True, cwd=tmp_path)
    assert "classgan join" in path.read_text(encoding="utf-8")
    assert is_only_its_owners(path)
