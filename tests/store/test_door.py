"""How a student's machine asks a class server that has too much to do, or through a proxy that knows better."""

import hashlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from stand_ins import reply, stand_in

from gan_core.errors import StoreUnreachable
from gan_core.store import student
from gan_core.store.door import LONGEST_ASKED, Door, Weights
from gan_core.store.engine import Reconnecting
from gan_core.store.student import Class

CREDIT = b"[3, 48, 2.5]"
WEIGHTS = bytes(range(256)) * 4_000  # 1 MB


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


def find_weights(request: BaseHTTPRequestHandler) -> bool:
    """Answers which weights there are; False if their bytes are asked for."""
    if request.command == "POST":
        found = Weights(sha256=hashlib.sha256(WEIGHTS).hexdigest(), size=len(WEIGHTS))
        reply(request, 200, found.model_dump_json().encode())
    return request.command == "POST"


def test_weights_that_are_cut_come_whole_through_a_proxy_that_knows_no_ranges(tmp_path: Path):
    """It answers with all of them, whatever was asked for."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        if find_weights(request):
            return
        asked.append(request.headers["range"])
        if len(asked) == 1:  # cut in the middle
            reply(request, 200, WEIGHTS[:300_000], content_length=len(WEIGHTS))
            request.close_connection = True
        else:
            reply(request, 200, WEIGHTS)

    with stand_in(tmp_path, answer) as server, Door(server.url) as home:
        assert home.weights(1, 0) == WEIGHTS
    assert len(asked) == 2
    assert asked[1] != asked[0] == "bytes=0-"


def test_more_than_the_weights_is_not_taken(tmp_path: Path):
    """A body without an end would fill the machine's memory."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        if not find_weights(request):
            reply(request, 206, WEIGHTS + bytes(1 << 24), content_length=1 << 40)

    with stand_in(tmp_path, answer) as server, Door(server.url) as home:
        assert home.weights(1, 0) == WEIGHTS
