"""`classgan doctor`: what a machine needs to take part, checked one by one, each with the next step if it is missing."""

import asyncio
import importlib.util
import json
import platform
import shutil
import ssl
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from deployments.student import pin
from deployments.student.addresses import host_in_url, student_url
from deployments.student.device_check import CheckFailed, find_device
from deployments.student.invites import Invite
from gan_core.errors import GanError, StoreError
from gan_core.files import write_private
from gan_core.store import student
from gan_core.units import counted

ROOM = 2 << 30  # bytes: a cache of CelebA at 64x64 and what PyTorch unpacks
SKEW = 30.0  # seconds; Prefect's own times come from the student's clock
PATIENCE = 10.0  # seconds for each question to the network


class Outcome(StrEnum):
    GOOD = "good"
    DOUBTFUL = "doubtful"  # works, but not as it should
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, in a sentence."""

    check: str
    outcome: Outcome
    text: str

    def anchor(self) -> str:
        """Its section in docs/troubleshooting.md."""
        return f"check-{self.check.lower().replace(' ', '-')}"


class Doubt(Exception):
    """Raised by a check: it works, but not as it should."""


class Trouble(Exception):
    """Raised by a check: it can't work; the next checks make no sense if it says so."""


class Doctor:
    """The checks of one invite on this machine. The certificate is written where it is wanted, once it is the right one."""

    def __init__(self, invite: Invite, pem: Path) -> None:
        self.invite, self.pem = invite, pem
        self.server = f"https://{host_in_url(invite.host)}:{invite.port}"
        self.home = student_url(self.server, pem, invite.login, invite.secret)

    def checks(self) -> list[tuple[str, Callable[[], str]]]:
        """In an order in which the first bad one explains the others. docs/troubleshooting.md has a section for each."""
        return [
            ("Python", self.python),
            ("package", self.package),
            ("versions", self.versions),
            ("class server", self.reachable),
            ("certificate", self.pinned),
            ("login", self.login),
            ("websocket", self.websocket),
            ("database", self.database),
            ("clock", self.clock),
            ("disk", self.disk),
            ("device", self.device),
            ("data", self.data),
        ]

    def examine(self) -> Iterator[Finding]:
        """Make every check, until one fails without which the next make no sense."""
        for name, check in self.checks():
            try:
                yield Finding(name, Outcome.GOOD, check())
            except Doubt as exc:
                yield Finding(name, Outcome.DOUBTFUL, str(exc))
            except Trouble as exc:
                yield Finding(name, Outcome.BAD, str(exc))
                if name in ("class server", "certificate", "login"):
                    return  # nothing after it can be asked

    def python(self) -> str:
        found = platform.python_version()
        if not (3, 11) <= sys.version_info < (3, 14):
            raise Trouble(
                f"this is {found}; classgan needs 3.11, 3.12 or 3.13. Make an environment with one of them: "
                "python3.12 -m venv class"
            )
        return f"{found} on {platform.system()}"

    def package(self) -> str:
        """The flow that will run is this package's, not that of another one called `flows` or `tasks`."""
        ours = Path(__file__).resolve().parents[2]
        for name in ("gan_core", "tasks", "flows"):
            spec = importlib.util.find_spec(name)
            folder = Path(spec.origin).resolve().parents[1] if spec and spec.origin else None
            if folder != ours:
                raise Trouble(
                    f"Python imports `{name}` from {folder}, not from {ours}. Install classgan into an "
                    "environment of its own: python3 -m venv class"
                )
        return f"installed in {ours}"

    def versions(self) -> str:
        wanted = {"classgan": self.invite.classgan, "prefect": self.invite.prefect}
        other = {name: found for name in wanted if (found := version(name)) != wanted[name]}
        if other:
            here = ", ".join(f"{name} {found}" for name, found in other.items())
            raise Trouble(
                f"this machine has {here}, the class has another version. Install the class's: pip install "
                + " ".join(f"'{n}=={wanted[n]}'" for n in other)
            )
        return ", ".join(f"{name} {number}" for name, number in wanted.items())

    def reachable(self) -> str:
        try:
            self._presented = pin.fetch(self.invite.host, self.invite.port, PATIENCE)
        except OSError as exc:
            raise Trouble(
                f"{self.invite.host}:{self.invite.port} does not answer ({exc}). Is the class up, and are you in its network? "
                "If you are in another network, a firewall may block this port: ask your instructor."
            ) from exc
        return f"{self.invite.host}:{self.invite.port} answers"

    def pinned(self) -> str:
        if pin.pin_of(self._presented) != self.invite.pin:
            raise Trouble(
                f"{self.invite.host} shows a certificate that isn't the one in the invite: a proxy or an attacker "
                "is in between, or the instructor has made the class anew. Nothing was sent to it. Ask your "
                "instructor for a new invite."
            )
        write_private(self.pem, self._presented)
        return "is the one in the invite"

    def login(self) -> str:
        try:
            with self._ask("/api/work_pools/students") as answer:
                json.loads(answer.read(1 << 20))
        except urllib.error.HTTPError as exc:
            if exc.code == 401:
                raise Trouble(self._why_refused(exc.read(1 << 16))) from exc
            raise Trouble(f"the class server answers {exc.code} {exc.reason}. Tell your instructor.") from exc
        except (OSError, ValueError) as exc:
            raise Trouble(
                f"the class server did not answer: {exc}. Try again; if it goes on, tell your instructor."
            ) from exc
        return f"{self.invite.login} is known"

    def _why_refused(self, answer: bytes) -> str:
        """A student who is suspended is told the reason."""
        with suppress(ValueError, KeyError, TypeError):
            if "suspended" in (said := str(json.loads(answer)["detail"])):
                return said
        return f"the class no longer accepts {self.invite.login!r} with this invite. Ask your instructor for a new one."

    def websocket(self) -> str:
        try:
            asyncio.run(asyncio.wait_for(self._greet(), PATIENCE))
        except Exception as exc:
            raise Trouble(
                f"the connection can't be upgraded to a websocket ({exc!r}). A proxy may block it: use another "
                "network, or ask who runs the proxy to let `Upgrade` pass."
            ) from exc
        return "goes through"

    async def _greet(self) -> None:
        from websockets.asyncio.client import connect as open_socket

        context = ssl.create_default_context(cafile=str(self.pem))
        address = f"wss://{host_in_url(self.invite.host)}:{self.invite.port}/api/events/out"
        async with open_socket(address, ssl=context, subprotocols=["prefect"]) as socket:  # ty: ignore[invalid-argument-type]
            await socket.send(json.dumps({"type": "auth", "token": f"{self.invite.login}:{self.invite.secret}"}))
            if json.loads(await socket.recv()).get("type") != "auth_success":
                raise PermissionError("refused")

    def database(self) -> str:
        try:
            with student.reach(self.home) as home:
                _, images, _ = student.my_credit(home)
        except StoreError as exc:
            raise Trouble(f"{exc} Ask your instructor.") from exc
        return f"lets {self.invite.login} in, with {counted(images, 'image')} so far"

    def clock(self) -> str:
        try:
            with student.reach(self.home) as home:
                offset = (datetime.now(UTC) - student.clock(home)).total_seconds()
        except StoreError as exc:
            raise Doubt(f"could not be compared: {exc}") from exc
        if abs(offset) > SKEW:
            raise Doubt(
                f"{abs(offset):.0f} s {'fast' if offset > 0 else 'slow'}. Your work still counts. Let the system "
                "set the time automatically."
            )
        return f"{abs(offset):.1f} s off"

    def disk(self) -> str:
        free = shutil.disk_usage(self.pem.parent).free
        if free < ROOM:
            raise Doubt(
                f"{free / 1e9:.1f} GB free on the disk of {self.pem.parent}; resized images may need {ROOM / 1e9:.0f} "
                "GB. Free some space, or set CLASSGAN_HOME to a folder on a larger disk."
            )
        return f"{free / 1e9:.0f} GB free"

    def device(self) -> str:
        """Whether it computes what a CPU computes, with the model of a training that runs or else the demo's, and how fast."""
        from gan_core.plan import checked_plan
        from gan_core.presets import preset

        training, plan, step_mb = None, preset("demo"), 0
        with suppress(Doubt, GanError):  # a class that doesn't answer now, or has another version
            if training := next(iter(self._waiting().values()), None):
                plan, step_mb = checked_plan(training.plan), training.step_mb
        try:
            this = find_device(plan.model_dump_json(), step_mb)
        except CheckFailed as exc:
            raise Doubt(f"{exc}. `CLASSGAN_DEVICE=cpu` uses the CPU at once.") from exc
        found = f"{this.device}, {this.speed:,.0f} images/s of the demo's model"
        if not this.has_cuda and shutil.which("nvidia-smi"):
            raise Doubt(
                f"this machine has an NVIDIA GPU, and its PyTorch is the one for CPUs, as pip installs it on Windows. "
                f"https://pytorch.org/get-started/locally has the line that installs the other one. This machine computes on {found}."
            )
        if this.too_small and training:
            raise Doubt(
                f"{this.too_small}: this machine gets no work of {training.name!r}, and computes for trainings that fit. "
                f"It computes on {found}."
            )
        if this.unfit:
            others = "; ".join(f"{name} is not used: {fault}" for name, fault in this.unfit.items())
            raise Doubt(f"{others}. This machine computes on {found}.")
        return found

    def data(self) -> str:
        """Whether this machine has the images of the trainings that run now, or can fetch them."""
        from gan_core.data.decoding import Reading
        from gan_core.data.images import find_source, images_of
        from gan_core.plan import checked_plan
        from gan_core.settings import settings

        waiting = self._waiting()
        to_fetch: list[str] = []
        for name, training in waiting.items():
            plan = checked_plan(training.plan)
            try:
                if training.shards:  # fetched while it works: enough that it can be
                    source = find_source(
                        training.data_source or plan.data, Reading(plan.background), settings().cache, settings().data
                    )
                    to_fetch.append(f"{name} ({counted(len(source.parts), 'file')})")
                    continue
                images_of(plan, settings().cache, settings().data, training.data_fingerprint)
            except GanError as exc:
                raise Doubt(f"training {name!r}: {exc}") from exc
        if to_fetch:
            return f"the images of {', '.join(to_fetch)} can be fetched; this machine computes as soon as it has the first file"
        return f"the images of {', '.join(waiting)} are here" if waiting else "no training runs now"

    def _waiting(self) -> dict[str, student.Assignment]:
        """The trainings that want workers, by name."""
        try:
            with student.reach(self.home) as home:
                return {name: student.read_training(home, number) for number, name in student.trainings(home).items()}
        except StoreError as exc:
            raise Doubt(f"the class can't say which trainings run: {exc}") from exc

    def _ask(self, path: str):
        token = b64encode(f"{self.invite.login}:{self.invite.secret}".encode()).decode()
        request = urllib.request.Request(self.server + path, headers={"Authorization": f"Basic {token}"})
        context = ssl.create_default_context(cafile=str(self.pem))
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Straight())
        return closing(opener.open(request, timeout=PATIENCE))


class _Straight(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the login is for this server only."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None
