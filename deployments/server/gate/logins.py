"""Who may come in at the class server, and how much each person may ask of it.

A secret is random with at least 128 bits, so one round of SHA-256 is enough: there is nothing to guess, slow or fast.
For the same reason nobody is ever locked out after wrong secrets, which would only let students lock each other out.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Send

from deployments.server.class_file import INSTRUCTOR

log = logging.getLogger("classgan.server")

REFRESH = 2.0  # seconds between two looks at who may come in: whoever is taken out is gone before they take new work
AGAIN = 1.0  # seconds between two looks, however many unknown logins ask for one
NOBODY = hashlib.sha256(
    b""
).hexdigest()  # what an unknown login is compared with, so that it takes as long as a known one


@dataclass(slots=True)
class Bucket:
    """A token bucket: `burst` at once, `rate` a second in the long run."""

    rate: float
    burst: float
    _left: float = field(default=-1.0)
    _filled: float = field(default_factory=time.monotonic)

    def take(self, amount: float = 1.0) -> bool:
        """Whether so much may be used now; if not, nothing is taken."""
        now = time.monotonic()
        left = self.burst if self._left < 0 else min(self.burst, self._left + (now - self._filled) * self.rate)
        granted = amount <= left
        self._left, self._filled = left - amount if granted else left, now
        return granted


@dataclass(eq=False)
class Person:
    """Somebody who is logged in, on however many machines, and what is left of what they may ask."""

    login: str
    secret_hash: str
    # A starting shift makes 30 requests, an idle worker one every two seconds; eight devices start at once.
    requests: Bucket = field(default_factory=lambda: Bucket(8, 400))
    frames: Bucket = field(default_factory=lambda: Bucket(8, 400))
    written: Bucket = field(default_factory=lambda: Bucket(16_000, 1_000_000))  # bytes of logs and artifacts
    claims: Bucket = field(default_factory=lambda: Bucket(0.2, 32))  # a shift lasts minutes
    shifts: Bucket = field(default_factory=lambda: Bucket(50, 500))  # what 32 machines at work ask of the class
    at_door: int = 0  # requests of theirs
    in_flight: int = 0  # HTTP requests, but for polls
    polls: int = 0  # that are held open
    sockets: int = 0
    machines: set[str] = field(default_factory=set)  # names of workers seen
    out: asyncio.Event = field(default_factory=asyncio.Event)  # set when they may no longer be here

    @property
    def is_instructor(self) -> bool:
        return self.login == INSTRUCTOR


class NotReadyYet(Exception):
    """Nobody has said yet who the students are."""


class Logins:
    """Checks secrets, and throws out whoever may no longer be here.

    Args:
        instructor_hash: hex SHA-256 of the instructor's secret.
        student_hashes: login → hex SHA-256 of the secret; may block, may raise.
        refresh: seconds between two calls of it.
    """

    def __init__(
        self, instructor_hash: str, student_hashes: Callable[[], Mapping[str, str]], refresh: float = REFRESH
    ) -> None:
        self._ask, self._refresh = student_hashes, refresh
        self._instructor = Person(INSTRUCTOR, instructor_hash.lower())
        self._students: dict[str, Person] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._asked = 0.0
        self._is_blind = False  # the last question had no answer
        self._one_at_a_time = asyncio.Lock()

    def start(self) -> None:
        """Keep asking who the students are, from now on; more calls change nothing."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._keep_asking())

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await self._refreshing

    async def ask(self) -> None:
        """Ask once who the students are; the last answer stays if there is none."""
        self._asked = time.monotonic()
        try:
            found = dict(await asyncio.to_thread(self._ask))
        except Exception as exc:  # noqa: BLE001  whatever the database's driver raises: the class goes on
            if not self._is_blind:
                log.warning("The list of students can't be read now; the last one stays in use: %s", exc)
            self._is_blind = True
            return
        self._is_blind = False
        before = self._students or {}
        self._students = {
            login: person
            if (person := before.get(login)) and person.secret_hash == secret_hash.lower()
            else Person(login, secret_hash.lower())
            for login, secret_hash in found.items()
            if login != INSTRUCTOR
        }
        for login, person in before.items():
            if self._students.get(login) is not person:
                person.out.set()

    async def _keep_asking(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(self._refresh)

    @property
    def student_names(self) -> list[str]:
        return list(self._students or ())

    async def admit(self, login: str, secret: str) -> Person | None:
        """As `check`, but before the answer is no, the students are asked for anew: one may have been let in just now.
        At most once in `AGAIN` seconds, for all who wait together.
        """
        if (person := self.check(login, secret)) is not None:
            return person
        came = time.monotonic()
        async with self._one_at_a_time:
            if self._asked < came:  # an older answer may lack somebody
                await asyncio.sleep(max(0.0, self._asked + AGAIN - time.monotonic()))
                await self.ask()
        return self.check(login, secret)

    def check(self, login: str, secret: str) -> Person | None:
        """The person, or None if the secret isn't theirs.

        Raises:
            NotReadyYet: it isn't the instructor, and the list of students has never been there: neither yes nor no.
        """
        person = self._instructor if login == INSTRUCTOR else (self._students or {}).get(login)
        given = hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
        is_theirs = hmac.compare_digest(given.encode(), (person.secret_hash if person else NOBODY).encode())
        if person is None and self._students is None:
            raise NotReadyYet
        return person if is_theirs else None


async def while_in(
    person: Person,
    send: Send,
    serve: Callable[[Send], Coroutine[None, None, None]],
    refuse: Callable[[], Coroutine[None, None, None]],
) -> None:
    """Serve somebody as long as they may be here: what is held open for half a minute ends with that, too, and is refused."""
    has_begun = False

    async def sending(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    serving, out = asyncio.ensure_future(serve(sending)), asyncio.ensure_future(person.out.wait())
    try:
        await asyncio.wait({serving, out}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        out.cancel()
        serving.cancel()  # changes nothing if it is done
    with suppress(asyncio.CancelledError):
        await serving
    if person.out.is_set() and not has_begun:
        await refuse()


def credential_of(headers: list[tuple[bytes, bytes]]) -> tuple[str, str] | None:
    """Login and secret of a Basic authorization header; None if there is none that can be read."""
    given = dict(headers).get(b"authorization", b"")
    scheme, _, token = given.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        return split_credential(base64.b64decode(token.strip(), validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None


def with_authorization(scope: Any, authorization: str | None) -> Any:
    """An ASGI scope with this authorization header instead of whatever it has."""
    kept = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    return {**scope, "headers": kept + ([(b"authorization", authorization.encode())] if authorization else [])}


def split_credential(text: str) -> tuple[str, str]:
    """`login:secret` → both."""
    login, _, secret = text.partition(":")
    return login, secret
