"""How a student's machine asks a class server that has too much to do, or through a proxy that knows better."""

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from stand_ins import reply, stand_in

from gan_core.errors import StoreUnreachable
from gan_core.store import student
from gan_core.store.door import LONGEST_ASKED, Door
from gan_core.store.engine import Reconnecting
from gan_core.store.student import Class

CREDIT = b"[3, 48, 2.5]"


class Impatient(Reconnecting[Class]):
    """Notes how long it would have paused, and how often it made a connection."""

    def __init__(self, url: str) -> None:
        self.pauses: list[float] = []
        self.made = 0
        super().__init__(url, student.reach, on_connect=self._note)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def _note(self, made: Class) -> None:
        self.made += 1


def test_a_class_server_with_too_much_to_do_is_asked_again_when_it_says_over_the_same_connection(tmp_path: Path):
    """A connection costs it more than an answer: five hundred machines that make new ones would keep it down."""
    waits = [7, 3]

    def answer(request: BaseHTTPRequestHandler) -> None:
        if waits:
            reply(request, 503, b'{"detail": "busy"}', retry_after=waits.pop(0))
        else:
            reply(request, 200, CREDIT)

    with stand_in(tmp_path, answer) as server, Impatient(server.url) as link:
        assert link.call(student.my_credit) == (3, 48, 2.5)
        assert server.connections == link.made == 1
    first, second = link.pauses
    assert 7 < first < 8
    assert 3 < second < 4


def test_a_connection_that_broke_is_made_anew(tmp_path: Path):
    breaks = [True]

    def answer(request: BaseHTTPRequestHandler) -> None:
        if breaks:
            breaks.clear()
            request.close_connection = True
        else:
            reply(request, 200, CREDIT)

    with stand_in(tmp_path, answer) as server, Impatient(server.url) as link:
        assert link.call(student.my_credit) == (3, 48, 2.5)
        assert server.connections == link.made == 2
    assert len(link.pauses) == 1


@pytest.mark.parametrize(
    ("status", "said", "seconds"),
    [
        (429, "2", 2.0),
        (409, None, 0.0),
        (503, "3600", LONGEST_ASKED),  # a proxy's hour
        (503, "-5", 0.0),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
    ],
)
def test_what_an_answer_asks_for_is_passed_on_within_limits(tmp_path: Path, status, said, seconds):
    headers = {} if said is None else {"retry_after": said}
    with (
        stand_in(tmp_path, lambda request: reply(request, status, b"{}", **headers)) as server,
        Door(server.url) as home,
        pytest.raises(StoreUnreachable) as refused,
    ):
        student.my_credit(home)
    assert refused.value.answered
    assert refused.value.retry_after == seconds
