"""A whole class on one machine: PostgreSQL, Prefect, a coordinator's worker and students' workers, as child processes.

Ports are free ones on 127.0.0.1; everything that is written lies in one folder. `stop` leaves no process behind, and
a start cleans up after a stack that was killed.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import psutil

from deployments import prefect_database, shift_folders
from deployments.local.notes import Notes, identity, is_process, no_class, notes_in
from deployments.local.parts import Part, Process
from deployments.local.postgres import Postgres
from deployments.local.processes import calmly, end, free_port, is_engine, stop_trees, tree_of, with_variable
from deployments.prefect_api import PrefectApi
from deployments.prefect_settings import (
    CLIENT,
    PREFECT,
    SERVER,
    clean_environment,
    own_folders,
    prefect_file,
)
from deployments.server.class_file import INSTRUCTOR, ClassFile
from deployments.student.addresses import reach
from gan_core.errors import StackError, StoreError
from gan_core.settings import settings
from gan_core.store.coordinator import trainings
from gan_core.store.engine import connect
from gan_core.store.logins import close_sql
from gan_core.store.migrate import add_student, migrate

SERVER_SECONDS = 120  # a first start migrates Prefect's database: 12 s alone, several times that on a busy machine
PAUSE_SECONDS = 3  # for coordinators to end their iteration when the stack stops
DRAIN_SECONDS = 5  # for shifts to submit their unit when the stack stops; then they are killed
SERVER_PATIENCE = 1.5  # seconds for the Prefect server: it takes three to say goodbye, and has nothing left to write
POSTGRES = "postgres"  # the part
STACK = "CLASSGAN_STACK"  # which stack a process belongs to


class LocalStack:
    """The parts of a class on this machine. Use as a context manager, or call `start` and `stop`.

    Args:
        home: folder for databases, caches and logs.
        outputs: folder for pictures, models and grade files.
        workers: names of the student workers to start; each is a student with an own login.
        say: told what is being started.
        class_file: how students on other machines come in; without one, the class is on this machine only.
    """

    def __init__(
        self,
        home: Path,
        outputs: Path,
        workers: Sequence[str] = (),
        say: Callable[[str], None] = lambda text: None,
        class_file: ClassFile | None = None,
    ) -> None:
        self.home, self.outputs, self.workers, self._say = home.resolve(), outputs.resolve(), tuple(workers), say
        self.logs = self.home / "logs"
        self.class_file = class_file
        self.postgres = Postgres(self.home / "postgres")
        self.parts: dict[str, Part] = {}
        self.ui, self.remark, self._is_up = "", "", False  # remark: what a person should know of this start
        self._port = 0
        self._mark = uuid4().hex  # in the environment of every process of this stack
        self._noted: Notes | None = None
        self._lock: Any = None

    @property
    def children(self) -> dict[str, Process]:
        """The newest process of each part but PostgreSQL."""
        return {name: part.process for name, part in self.parts.items() if name != POSTGRES and part.process}

    @property
    def database(self) -> str:
        """URL of the class's database, as the instructor."""
        return (self.class_file.database_url if self.class_file else "") or self.postgres.url()

    @property
    def _api(self) -> PrefectApi:
        return PrefectApi(self.environment())

    def __enter__(self) -> "LocalStack":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when workers are on their way and the deployments are there.

        Raises:
            StackError: a part doesn't start, or a stack already works in this folder; says what to do.
        """
        self._make_folders()
        self._take_folder()
        self._end_leftovers()
        self._remember()
        if self.class_file is None or not self.class_file.database_url:
            self._say("starting PostgreSQL")
            self.postgres.start()
            postgres = Part(POSTGRES, self.postgres.launch, self.postgres.log, process=self.postgres.process)
            self.parts[POSTGRES] = postgres
            postgres.was_well = True
        if self.class_file is not None and self.class_file.database_port and not self.class_file.database_url:
            self.spawn("old-door", [sys.executable, "-P", "-m", "deployments.server.old_door"], is_needed=False)
        self._remember()
        self.remark = prefect_database.make_beside(self.database, self.home / "prefect")
        if self.class_file is None:
            self._say("starting the Prefect server")
            self._serve()
        migrate(self.database)
        with connect(self.database) as connection:
            trainings.interrupt_all(connection)
            if self.class_file is not None:
                close_sql(connection)
            for name in self.workers:
                add_student(connection, name)
        if self.class_file is not None:  # only now: it asks the database who may come in
            self.ui = self.class_file.public_server
            self._say("starting the class server")
            self._spawn_server([sys.executable, "-P", "-m", "deployments.server.serving"])
        self._await_server()
        self.parts["prefect-server"].was_well = True
        self._api.crash_stale_runs()
        self._say("creating work pools and deployments, starting workers")
        self._api.make_pools()
        deploying = self.spawn(
            "deploy", [*PREFECT, "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file())]
        )
        self.spawn(
            "instructor",
            [*PREFECT, "worker", "start", "--pool", "instructor", "--type", "process", "--name", "instructor"],
        )
        for name in self.workers:
            self.start_worker(name)
        with suppress(subprocess.TimeoutExpired):
            deploying.wait(SERVER_SECONDS)
        if deploying.poll() != 0:
            raise StackError(f"The deployments were not accepted; {self.logs / 'deploy.log'} says why.")
        del self.parts["deploy"]
        self._is_up = True
        self._remember()

    def start_worker(self, name: str) -> Process:
        """Start a student's worker, exactly as a student would."""
        return self.spawn(
            f"worker-{name}", [*PREFECT, "worker", "start", "--pool", "students", "--name", name], student=name
        )

    def environment(self, student: str | None = None) -> dict[str, str]:
        """What a process of this class finds in its environment."""
        clean = clean_environment()
        threads = max(1, (os.cpu_count() or 1) // max(1, len(self.workers)))
        return {
            **clean,
            **SERVER,
            **CLIENT,
            **own_folders(self.home),
            **self.reach(),
            STACK: self._mark,
            "CLASSGAN_HOME": str(self.home),
            "CLASSGAN_OUTPUTS": str(self.outputs),
            "CLASSGAN_DATA": str(settings().data.resolve()),
            "CLASSGAN_DATABASE_URL": self.postgres.url(student) if student else self.database,
            "CLASSGAN_THREADS": clean.get("CLASSGAN_THREADS", str(threads)),
            # A computing thread that waits must sleep: spinning would take the core from another student.
            "OMP_WAIT_POLICY": "PASSIVE",
        }

    def reach(self) -> dict[str, str]:
        """Prefect's settings for whoever is the instructor here."""
        if self.class_file is None:
            return {"PREFECT_API_URL": f"{self.ui}/api"}
        mine = reach(
            self.class_file.local_server, self.home / "class.pem", INSTRUCTOR, self.class_file.instructor_secret
        )
        inside = {  # what the class server's process needs, and nobody else uses
            "PREFECT_SERVER_API_AUTH_STRING": self.class_file.inner_login,
            "PREFECT_UI_API_URL": f"{self.class_file.public_server}/api",
        }
        return {**mine, **inside}

    def attach(self) -> "LocalStack":
        """Take the place of a stack that another process started in this folder, to add to it.

        Raises:
            StackError: none runs here, or it is still being started.
        """
        notes = notes_in(self.home)
        if not notes.is_alive:
            raise StackError(no_class(self.home))
        if not notes.is_up:
            raise StackError(f"The class in {self.home} is just being started. Wait some seconds, then try again.")
        self.ui = notes.ui
        self.class_file = ClassFile.load(self.home) if self.ui.startswith("https") else None
        if not (self.class_file and self.class_file.database_url):
            self.postgres.attach(notes.database)
        return self

    def spawn(
        self,
        name: str,
        command: Sequence[str],
        student: str | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
        is_needed: bool = True,
    ) -> Process:
        """Start a part of this class, with more in its environment; what it prints goes to its log."""
        log = self.logs / f"{name}.log"

        def launch() -> Process:
            with log.open("ab") as output:
                return subprocess.Popen(
                    command,
                    env={**self.environment(student), **more},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.home,
                    start_new_session=True,  # Ctrl-C in the terminal is ours to hand on, in order
                )

        part = self.parts[name] = Part(name, launch, log, is_needed=is_needed and student is None)
        process = part.start()
        self._remember()
        return process

    def look_after(self) -> list[str]:
        """Start again what has ended by itself, sooner or later; returns what is new, in words. Call it every second or so.

        Raises:
            StackError: the class can't do without a part that doesn't start here at all.
        """
        news = [told for part in self.parts.values() if (told := part.look())]
        if self._noted != self._notes():
            with suppress(OSError):  # a full disk
                self._remember()
        return news

    def start_training(self, name: str, plan: dict[str, Any]) -> str:
        """Ask Prefect to run `train` with this plan; returns the run's id."""
        return self._api.start_training(name, plan)

    def run_state(self, run_id: str) -> tuple[str, str]:
        """Name and message of a flow run's state; "unknown" while Prefect doesn't answer."""
        return self._api.run_state(run_id)

    def stop(self) -> None:
        """Stop everything, in order: shifts submit their unit, then the coordinator, the servers and PostgreSQL end.

        Another Ctrl-C meanwhile only shortens the waiting: nothing is ever left running.
        """
        with calmly() as hurry:
            self._let_coordinators_pause(hurry)
            first = [c for name, c in self.children.items() if name.startswith(("worker-", "instructor", "deploy"))]
            stop_trees(first, DRAIN_SECONDS, hurry)
            self._note_interruptions()
            stop_trees([child for child in self.children.values() if child not in first], SERVER_PATIENCE, hurry)
            end(with_variable(STACK, self._mark), 1)  # what a part that was killed had started
            self.parts.clear()
            self._is_up = False
            self.postgres.stop()
            shift_folders.clear(self.home)
            if self._lock is not None:
                (self.home / "stack.json").unlink(missing_ok=True)
                self._lock.close()
                self._lock = None

    def _let_coordinators_pause(self, hurry: threading.Event) -> None:
        """Coordinators first, while the students' machines still work, so that their iteration can end: Prefect's own
        worker would kill them at once.
        """
        engines = [p for p in with_variable(STACK, self._mark) if is_engine(p)]
        for process in engines:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PAUSE_SECONDS
        while engines and not hurry.is_set() and time.monotonic() < deadline:
            _, engines = psutil.wait_procs(engines, 0.2)

    def _note_interruptions(self) -> None:
        """A training whose coordinator was stopped isn't running any more; the table should say so."""
        elsewhere = self.class_file is not None and self.class_file.database_url
        if elsewhere or (self.postgres.process is not None and self.postgres.process.poll() is None):
            with suppress(StoreError), connect(self.database) as connection:
                trainings.interrupt_all(connection)

    # Starting, part by part

    def _make_folders(self) -> None:
        try:
            prefect = self.home / "prefect"  # the key to Secret blocks
            for folder in (self.home, self.logs, self.outputs, prefect):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.logs, prefect):
                folder.chmod(0o700)
        except OSError as exc:
            raise StackError(
                f"The folder {exc.filename} can't be made ({exc.strerror}). Set CLASSGAN_HOME and CLASSGAN_OUTPUTS to folders that can."
            ) from exc

    def _take_folder(self) -> None:
        lock = (self.home / "stack.lock").open("ab")
        try:
            if os.name == "posix":
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            lock.close()
            raise StackError(
                f"A stack already works in {self.home}. Stop it there with Ctrl-C, or set CLASSGAN_HOME to another folder."
            ) from exc
        self._lock = lock

    def _end_leftovers(self) -> None:
        """End what a stack that was killed left running: by process id, and only if it is that very process. One that was
        started and not yet noted when the kill came bears the stack's mark; so does this one, if its terminal belonged to
        that class.
        """
        notes = notes_in(self.home)
        left = [p for known in notes.processes if is_process(known) for p in tree_of(known[0])]
        left += [p for p in with_variable(STACK, notes.mark) if p not in left]
        if notes.sockets:
            shutil.rmtree(notes.sockets, ignore_errors=True)
        if left:
            self._say("ending what a killed class left running")
            end(left, 5)
        shift_folders.clear(self.home)

    def _notes(self) -> Notes:
        running = [part.process.pid for part in self.parts.values() if part.process and part.process.poll() is None]
        return Notes(
            owner=identity(os.getpid()),
            processes=[identity(pid) for pid in running if psutil.pid_exists(pid)],
            mark=self._mark,
            database=self.database,
            sockets=str(self.postgres.sockets or ""),
            ui=self.ui,
            is_up=self._is_up,
            ill=[part.illness for part in self.parts.values() if part.illness],
        )

    def _remember(self) -> None:
        self._noted = self._notes().write(self.home)

    def _serve(self) -> None:
        """Start Prefect's own server, for a class that nobody else reaches."""
        self._port = free_port(settings().prefect_port)
        self.ui = f"http://127.0.0.1:{self._port}"
        self._spawn_server([*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(self._port)])

    def _spawn_server(self, command: Sequence[str]) -> None:
        """Of all parts, only the server enters Prefect's database."""
        self.spawn("prefect-server", command, more=prefect_database.settings_for(self.database))

    def _await_server(self) -> None:
        """Until our own server answers. It takes its port some seconds after it was chosen: a class that starts beside
        this one may have been quicker, and then its server answers there, and ours has ended.
        """
        deadline = time.monotonic() + SERVER_SECONDS
        while True:
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError, StackError):
                answer = self._api("GET", "/admin/settings")
                if isinstance(answer, dict) and answer.get("home") == self.environment()["PREFECT_HOME"]:
                    return
            ended = self.children["prefect-server"].poll() is not None
            if ended and self.class_file is None and free_port(self._port) != self._port:
                self._serve()
            elif ended or time.monotonic() > deadline:
                raise StackError(f"The Prefect server did not start; {self.logs / 'prefect-server.log'} says why.")
            time.sleep(0.1)
