"""`classgan join`: joins a class with one line of text, and keeps this machine at work for it."""

import platform
import re
import shlex
import subprocess
import sys
import time
from getpass import getpass
from pathlib import Path

from rich.console import Console

from deployments.ctrl_c import hand_on, heed_all, pause, start_apart, wait_for
from deployments.prefect_settings import CLIENT, PREFECT, clean_environment
from deployments.student.addresses import reach
from deployments.student.doctor import Doctor, Outcome
from deployments.student.invites import Invite
from deployments.troubleshooting import more
from gan_core.errors import InviteError
from gan_core.files import write_private
from gan_core.settings import settings

console = Console()
LONGEST_PAUSE = 30.0  # seconds between attempts while the class is away
COLOURS = {Outcome.GOOD: "green", Outcome.DOUBTFUL: "yellow", Outcome.BAD: "red"}


class Membership:
    """What this machine knows of its class, in a folder that only its owner may read."""

    def __init__(self, home: Path) -> None:
        self.folder = home.resolve() / "student"
        self.pem = self.folder / "class.pem"

    def remember(self, invite: Invite, machine: str) -> None:
        """Keep the invite, and Prefect's and our settings as lines that a shell can read."""
        facts = self.environment(invite, machine)
        write_private(self.folder / "invite", invite.line.encode())
        write_private(
            self.folder / "settings.env", "".join(f"{k}={shlex.quote(v)}\n" for k, v in facts.items()).encode()
        )

    def invite(self) -> Invite:
        """The invite that this machine joined with.

        Raises:
            InviteError: it never did.
        """
        try:
            return Invite.parse((self.folder / "invite").read_text(encoding="utf-8"))
        except FileNotFoundError as exc:
            raise InviteError(
                "This machine hasn't joined a class yet. Join one: classgan join INVITE, with the line from your instructor."
            ) from exc

    def environment(self, invite: Invite, machine: str) -> dict[str, str]:
        doctor = Doctor(invite, self.pem)
        return {
            **CLIENT,
            **reach(doctor.server, self.pem, invite.login, invite.secret),
            "PREFECT_HOME": str(self.folder / "prefect"),
            "CLASSGAN_DATABASE_URL": doctor.home,
            "CLASSGAN_HOME": str(settings().home.resolve()),
            "CLASSGAN_DATA": str(settings().data.resolve()),
            "CLASSGAN_WORKER_NAME": worker_name(invite.login, machine),
        }

    def make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)


def line_of(argument: str) -> str:
    """The invite: the argument itself, or for `-` what the standard input says. Arguments stand in the process list."""
    if argument != "-":
        return argument
    return getpass("Invite (it isn't shown): ") if sys.stdin.isatty() else sys.stdin.read()


def join(line: str, machine: str, address: str, start: bool) -> None:
    """Check everything, keep what is needed, and work until Ctrl-C.

    Args:
        line: the invite.
        machine: what this one is called, beside the login.
        address: where the class is, if not where the invite says.
        start: whether to work; else the line that does it is printed.

    Raises:
        InviteError: the invite is damaged, the name can't be one, or a check failed.
    """
    if odd := [character for character in "/%" if character in machine]:
        raise InviteError(
            f"A machine's name can't have {' or '.join(odd)} in it: {machine}. Give it another one with --machine."
        )
    invite, mine = Invite.parse(line).moved(address), Membership(settings().home)
    mine.make_folder()
    examine(invite, mine)
    mine.remember(invite, machine)
    name = worker_name(invite.login, machine)
    if not start:
        console.print("Ready. Start the worker with:")
        print(
            f"set -a; . {shlex.quote(str(mine.folder / 'settings.env'))}; set +a; prefect worker start --pool students --type gan-student --name {shlex.quote(name)}"
        )
        return
    console.print(
        f"Working for the class as [bold]{name}[/bold]. Ctrl-C finishes the unit at hand, submits it, and stops.",
        soft_wrap=True,
    )
    _work(invite, mine, machine)


def examine(invite: Invite, mine: Membership) -> None:
    """Show every check as it is made.

    Raises:
        InviteError: one failed.
    """
    bad = []
    for finding in Doctor(invite, mine.pem).examine():
        colour = COLOURS[finding.outcome]
        console.print(f"[{colour}]{finding.outcome.value:>8}[/{colour}]  [bold]{finding.check}[/bold]: ", end="")
        console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
        if finding.outcome is not Outcome.GOOD:
            console.print(f"{'':>10}{more(finding.anchor())}", markup=False, highlight=False, soft_wrap=True)
        bad += [finding.check] if finding.outcome is Outcome.BAD else []
    if bad:
        raise InviteError(
            f"This machine can't take part yet: {', '.join(bad)}. The lines above say what to do. Then run this command again."
        )


def be_named(named: bool) -> None:
    """Tell the class whether this student's name may stand in a model card.

    Raises:
        InviteError: this machine hasn't joined a class.
        StoreUnreachable: the class is away.
    """
    from gan_core.store import student

    mine = Membership(settings().home)
    with student.reach(Doctor(mine.invite(), mine.pem).home) as home:
        student.be_named(home, named)
    word = "may be named" if named else "is not named"
    console.print(f"Your name {word} in the cards of models that this class publishes from now on.", soft_wrap=True)


def worker_name(login: str, machine: str) -> str:
    """What this machine is called in the class: two machines of a student need two names."""
    return f"{login}-{machine}" if machine else login


def machine_name() -> str:
    """A short name for this machine: its host's, or `colab`, where every session has another one."""
    if Path("/content/sample_data").is_dir():
        return "colab"
    return re.sub(r"[^a-z0-9]+", "", platform.node().split(".")[0].lower())[:20] or "machine"


def _work(invite: Invite, mine: Membership, machine: str) -> None:
    """Keep a worker running; after an outage it is started again, until the class says that the login is no longer good."""
    name = worker_name(invite.login, machine)
    environment = {**clean_environment(), **mine.environment(invite, machine)}
    command = [
        *PREFECT,
        "worker",
        "start",
        "--pool",
        "students",
        "--type",
        "gan-student",
        "--no-create-pool-if-not-found",
        "--name",
        name,
    ]
    heed_all()
    seconds = 1.0
    while True:
        started = time.monotonic()
        worker = start_apart(command, env=environment, cwd=mine.folder)
        try:
            wait_for(worker)
        except KeyboardInterrupt:
            _drain(worker)
            return
        login = next(f for f in Doctor(invite, mine.pem).examine() if f.check == "login" or f.outcome is Outcome.BAD)
        if login.check in ("login", "certificate") and login.outcome is Outcome.BAD:
            raise InviteError(f"The worker has stopped: {login.text}")
        seconds = 1.0 if time.monotonic() - started > 60 else min(LONGEST_PAUSE, 2 * seconds)
        console.print(
            f"The worker has ended (exit code {worker.returncode}); starting it again in {seconds:.0f} s.",
            soft_wrap=True,
        )
        try:
            pause(seconds)
        except KeyboardInterrupt:
            return


def _drain(worker: "subprocess.Popen[bytes]") -> None:
    """Hand Ctrl-C on; a second one ends the worker at once, and its unit goes to someone else."""
    hand_on(worker)
    try:
        wait_for(worker)
    except KeyboardInterrupt:
        worker.terminate()
        wait_for(worker)
