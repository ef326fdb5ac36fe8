"""The class's service from Python: submit a training, wait for it, fetch what it made. Only httpx, and the class's certificate.

from deployments.server.client import Class

with Class.joined() as mine:                                   # on a machine that has joined
    name = mine.submit({"name": "digits-2", "plan": "demo"})["name"]
    for status in mine.follow(name):
        print(status["state"], status["message"])
    mine.save_generator(name, Path("digits-2.safetensors"))
"""

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from deployments.server.class_file import INSTRUCTOR, ClassFile
from deployments.student.addresses import host_in_url
from gan_core.errors import StackError, StoreUnreachable, TrainingError
from gan_core.settings import settings

PREFIX = "/classgan/v1"
WAIT = 25  # seconds of a long poll: the server's limit is 30
ENDED = ("succeeded", "failed", "cancelled")


class Class:
    """The service of one class, for one person. Use as a context manager.

    Args:
        server: address, as https://HOST:PORT.
        login, secret: as in the invite.
        certificate: the class's (PEM); it alone is believed.

    Every method raises TrainingError with the service's sentence if it refuses, and StoreUnreachable if nobody answers or
    the database is away: then asking again later may help.
    """

    def __init__(self, server: str, login: str, secret: str, certificate: Path | None = None) -> None:
        trust = ssl.create_default_context(cafile=str(certificate)) if certificate else True
        self._http = httpx.Client(
            base_url=f"{server}{PREFIX}", auth=(login, secret), verify=trust, timeout=60, follow_redirects=False
        )

    @classmethod
    def joined(cls) -> Self:
        """As the student whose invite this machine joined with. Raises InviteError if it never did."""
        from deployments.student.join import Membership

        mine = Membership(settings().home)
        invite = mine.invite()
        return cls(f"https://{host_in_url(invite.host)}:{invite.port}", invite.login, invite.secret, mine.pem)

    @classmethod
    def led(cls) -> Self:
        """As the instructor, on the machine of the class. Raises StackError if `classgan init` never made one here."""
        home = settings().home
        if (class_file := ClassFile.load(home)) is None:
            raise StackError(
                f"No class with a class server was made in {home.resolve()}. Make one: classgan init --address HOST"
            )
        return cls(class_file.local_server, INSTRUCTOR, class_file.instructor_secret, home / "class.pem")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._http.close()

    def submit(self, training: Mapping[str, Any], key: str = "") -> dict[str, Any]:
        """Take a training into the queue; its status. With a key, it may be repeated: the same key is the same training."""
        headers = {"idempotency-key": key} if key else {}
        return self._ask("POST", "/trainings", json=dict(training), headers=headers).json()

    def status(self, name: str) -> dict[str, Any]:
        return self._ask("GET", f"/trainings/{name}").json()

    def follow(self, name: str) -> Iterator[dict[str, Any]]:
        """Its status now and after every change, until it has ended."""
        known = ""
        while True:
            answer = self._ask("GET", f"/trainings/{name}", params={"since": known, "wait": WAIT if known else 0})
            if answer.status_code == httpx.codes.NOT_MODIFIED:
                continue
            known, status = answer.headers["etag"], answer.json()
            yield status
            if status["state"] in ENDED:
                return

    def act(self, name: str, action: str, **values: Any) -> str:
        """pause, resume, cancel, retry; priority with `priority=`, move with `after=`. Returns what was done, in a sentence."""
        return self._ask("POST", f"/trainings/{name}/{action}", json=values or None).json()["message"]

    def trainings(self, **wanted: Any) -> Iterator[dict[str, Any]]:
        """All that are theirs, the newest first; `state=` chooses."""
        return self._pages("/trainings", wanted)

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        return self._pages(f"/trainings/{name}/events", {})

    def metrics(self, name: str) -> Iterator[dict[str, Any]]:
        """Every closed iteration, the oldest first."""
        return self._pages(f"/trainings/{name}/metrics", {})

    def workers(self) -> list[dict[str, Any]]:
        return self._ask("GET", "/workers").json()

    def samples(self, name: str, iteration: int) -> bytes:
        """The grid that was drawn after an iteration, as PNG."""
        return self._ask("GET", f"/trainings/{name}/samples/{iteration}").content

    def save_generator(self, name: str, path: Path) -> None:
        """The newest generator, as a file for `classgan generate`; whole or not at all."""
        content = self._ask("GET", f"/trainings/{name}/generator").content
        working = path.with_name(f".{path.name}.part")
        working.write_bytes(content)
        working.replace(path)

    def _pages(self, path: str, wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        more: dict[str, Any] = {}
        while True:
            page = self._ask("GET", path, params={**wanted, **more, "limit": 200}).json()
            yield from page["items"]
            if page["next"] is None:
                return
            more = {"after": page["next"]}

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as exc:
            raise StoreUnreachable(f"The class server at {self._http.base_url.host} does not answer: {exc}.") from exc
        if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
            return answer
        is_ours = answer.headers.get("content-type", "").startswith(("application/json", "application/problem+json"))
        said = answer.json().get("detail") if is_ours else f"The server answered {answer.status_code}."
        raise (StoreUnreachable if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else TrainingError)(str(said))
