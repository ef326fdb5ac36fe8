"""The one door of a class: HTTPS to its class server, which asks PostgreSQL in the student's name.

Questions travel as JSON under the names of the functions of `student`. Weights come under the SHA-256 of their bytes and
contributions go up in one stream; either goes on where it was cut.
"""

import hashlib
import inspect
import logging
import random
import ssl
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from uuid import UUID

import httpx
from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from gan_core.errors import StoreError, StoreUnreachable
from gan_core.units import Measures, Submission, Verdict

log = logging.getLogger("classgan.shift")

PREFIX = "/classgan/student"
PIECE = 1 << 16  # bytes that are sent at once: each must be gone within SEND_SECONDS
TRAIL_BYTES = 1 << 18  # of a longer trail PostgreSQL makes no use
CONNECT_SECONDS, SEND_SECONDS, ANSWER_SECONDS = 10.0, 30.0, 60.0
IDLE_SECONDS = 20.0  # that a connection is kept for the next question: longer than between two heartbeats
STORED_SECONDS = 180.0  # until a contribution is stored: a whole class may hand in at the same moment
HOLD = 3.0  # seconds that a question for work is held; Ctrl-C waits as long
LONGEST_HOLD = 30.0
LONGEST_ASKED = 20.0  # seconds of a Retry-After that are believed: a proxy may say an hour
PASSING = (408, 409, 425, 429)  # statuses that are over sooner or later, beside those of 500 and more

T = TypeVar("T")


class Call(Generic[T]):
    """A function of `student`, and how its arguments and its answer travel as JSON."""

    def __init__(self, work: Callable[..., T]) -> None:
        self.work, self.name = work, str(work.__name__)  # ty: ignore[missing-attribute]
        self._signature = inspect.signature(work)

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """What is asked: all parameters but the connection."""
        fields: dict[str, Any] = {
            name: (parameter.annotation, ... if parameter.default is parameter.empty else parameter.default)
            for name, parameter in list(self._signature.parameters.items())[1:]
        }
        return create_model(self.name, __config__=ConfigDict(extra="forbid", ser_json_inf_nan="constants"), **fields)

    @cached_property
    def answer(self) -> TypeAdapter[T]:
        return TypeAdapter(self._signature.return_annotation)

    def body(self, *args: object, **kwargs: object) -> bytes:
        """These arguments as JSON."""
        given = self._signature.bind(None, *args, **kwargs).arguments
        return self.arguments(**dict(list(given.items())[1:])).model_dump_json().encode()


class Sent(BaseModel):
    """What is said of a contribution whose bytes have gone up."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    boot: UUID
    measures: Measures
    payload_bytes: int  # the first of what went up; the rest is the trail
    sha256: str  # of all of it


class Piece(BaseModel):
    """Bytes that are to be had under their hash."""

    sha256: str
    size: int


class Weights(Piece):
    """Where the weights of an iteration are to be had."""

    change: Piece | None = None  # what leads to them from those of the iteration before


class Door:
    """A class server, asked as one student. Not to be shared between threads.

    Args:
        url: as `deployments.student.addresses.student_url` makes it, with login, secret and the file of the certificate.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.place = f"{parts.hostname}:{parts.port or 443}"
        self.trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # this certificate, and no other
        self.trust.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.trust.load_verify_locations(parse_qs(parts.query)["certificate"][0])
        except (KeyError, OSError) as exc:
            raise StoreError(
                f"The certificate of the class at {self.place} is not here ({exc}). Join again: classgan join INVITE"
            ) from exc
        try:
            self._client = self._client_of(parts)
        except (ImportError, ValueError) as exc:
            raise StoreError(
                f"The proxy that this machine's environment names can't be used ({exc}). Set HTTPS_PROXY to http://HOST:PORT, or unset it."
            ) from exc
        self._notices = -1  # that were heard of

    def _client_of(self, parts: SplitResult) -> httpx.Client:
        return httpx.Client(
            base_url=f"https://{parts.netloc.rpartition('@')[2]}{PREFIX}",
            auth=(unquote(parts.username or ""), unquote(parts.password or "")),
            verify=self.trust,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, write=SEND_SECONDS),
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
        )

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    @property
    def closed(self) -> bool:
        return self._client.is_closed

    def call(self, call: Call[T], *args: object, **kwargs: object) -> T:
        """The answer of one of `student`'s functions.

        Raises:
            StoreUnreachable: the class server, or its database, doesn't answer now.
            StoreError: it refuses.
        """
        return call.answer.validate_json(self._ask("POST", f"/calls/{call.name}", content=call.body(*args, **kwargs)))

    def wait(self, seconds: float) -> None:
        """Until somebody has told the class of work, at most about so many seconds; at once if that was missed."""
        held = min(
            LONGEST_HOLD, max(seconds, HOLD) * random.uniform(0.7, 1.3)
        )  # spread: those who wait for nothing don't come back together
        answer = self._ask("POST", "/wait", json={"heard": self._notices, "seconds": held})
        self._notices = TypeAdapter(int).validate_json(answer)

    def weights(self, training_id: int, iteration: int, after: Callable[[bytes], bytes] | None = None) -> bytes | None:
        """The payload of these weights, or None if they are gone. A download that is cut goes on from there.

        Args:
            after: makes the payload of a change, for who has the weights of the iteration before.
        """
        found = TypeAdapter(Weights | None).validate_json(
            self._ask("POST", f"/trainings/{training_id}/weights/{iteration}")
        )
        if found is None:
            return None
        if after is not None and found.change is not None:
            payload = after(self._fetch(found.change))
            if _sha256(payload) == found.sha256:
                return payload
            log.warning("These weights can't be made of what changed, so all of them are fetched.")
        return self._fetch(found)

    def _fetch(self, wanted: Piece) -> bytes:
        payload = bytearray()
        while len(payload) < wanted.size:
            here = len(payload)
            try:
                self._fill(payload, wanted)
            except StoreUnreachable:
                if len(payload) <= here:  # nothing more came: this isn't a cut
                    raise
        if _sha256(payload) != wanted.sha256:
            raise StoreUnreachable(f"The weights came damaged from the class server at {self.place}.")
        return bytes(payload)

    def submit(self, lease_id: int, boot: UUID, measures: Measures, payload: bytes, trail: bytes) -> Submission:
        """Send what of a contribution isn't there yet, then hand it in."""
        trail = trail if len(trail) <= TRAIL_BYTES else b""
        whole, where = payload + trail, f"/uploads/{lease_id}?boot={boot}"
        there = TypeAdapter(int | None).validate_json(self._ask("GET", where))
        if there is None:
            return Submission(
                verdict=Verdict.FOREIGN, reason=f"lease {lease_id} doesn't belong to this start of your worker"
            )
        if there < len(whole):
            headers = {
                "content-range": f"bytes {there}-{len(whole) - 1}/{len(whole)}",
                "content-length": str(len(whole) - there),
            }
            self._ask("PUT", where, headers=headers, content=_cut(whole, there))
        sent = Sent(boot=boot, measures=measures, payload_bytes=len(payload), sha256=_sha256(whole))
        answer = self._ask("POST", f"/submissions/{lease_id}", content=sent.model_dump_json(), timeout=STORED_SECONDS)
        return TypeAdapter(Submission).validate_json(answer)

    def _ask(self, method: str, path: str, **more: Any) -> bytes:
        try:
            answer = self._client.request(method, path, **more)
        except httpx.TransportError as exc:
            raise self._fault(exc) from exc
        self._require_success(answer)
        return answer.content

    def _fill(self, payload: bytearray, wanted: Piece) -> None:
        """Add what is missing. Whoever answers with the whole although only the rest was asked for starts it anew."""
        try:
            asked = {"range": f"bytes={len(payload)}-"}
            with self._client.stream("GET", f"/weights/{wanted.sha256}", headers=asked) as answer:
                if not answer.is_success:
                    answer.read()
                self._require_success(answer)
                if answer.status_code != httpx.codes.PARTIAL_CONTENT:
                    payload.clear()
                for piece in answer.iter_raw(PIECE):
                    room = wanted.size - len(payload)
                    payload += piece[:room]
                    if len(piece) > room:  # not at the last byte: a connection that was read to its end is used again
                        return
        except httpx.TransportError as exc:
            raise self._fault(exc) from exc

    def _require_success(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            said = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):  # a proxy's page
            said = f"{answer.status_code} {answer.reason_phrase}"
        if answer.status_code in PASSING or answer.status_code >= 500:
            raise StoreUnreachable(
                f"The class server at {self.place} can't serve now: {said}",
                answered=True,
                retry_after=_retry_after(answer),
            )
        raise StoreError(f"The class server at {self.place} refused: {said}")

    def _fault(self, exc: httpx.TransportError) -> StoreError:
        said = str(exc).rstrip(".") or type(exc).__name__
        if "certificate verify failed" in said:
            return StoreError(f"{self.place} shows a certificate that isn't your class's: {said}.")
        return StoreUnreachable(f"The class server at {self.place} does not answer: {said}.")


def _retry_after(answer: httpx.Response) -> float:
    """Seconds; 0 if it says nothing, or a date: nobody's clock is trusted."""
    said = answer.headers.get("retry-after", "")
    return min(LONGEST_ASKED, float(said)) if said.isascii() and said.isdigit() else 0.0


def _sha256(whole: bytes | bytearray) -> str:
    return hashlib.sha256(whole).hexdigest()


def _cut(whole: bytes, start: int) -> Iterator[bytes]:
    view = memoryview(whole)
    for at in range(start, len(whole), PIECE):
        yield bytes(view[at : at + PIECE])
