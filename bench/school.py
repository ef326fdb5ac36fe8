"""A class on this machine without Prefect: a real embedded PostgreSQL, and real shifts in processes of their own."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import Child, children
from deployments.local.postgres import OWNER, Postgres
from gan_core.plan import Plan
from gan_core.settings import settings
from gan_core.store.engine import connect
from gan_core.store.migrate import add_student, migrate

START_SECONDS = 120  # importing PyTorch takes seconds, on a busy machine tens of them


@dataclass(frozen=True, slots=True)
class School:
    """One database and a folder, both gone when the block ends."""

    folder: Path
    url: str  # as the instructor

    @property
    def cache(self) -> Path:
        """Folder of resized images."""
        return self.folder / "cache"

    def student_url(self, login: str) -> str:
        """The same database with a student's login; the student exists from now on."""
        with connect(self.url) as connection:
            add_student(connection, login)
        return self.url.replace(f"//{OWNER}@", f"//{login}@")

    @contextmanager
    def workers(self, *logins: str, threads: int = 1, device: str = "cpu") -> Generator[list[Child]]:
        """A shift for each login, in processes of their own, all of them looking for work when the block begins."""
        calls = (("worker", self.student_url(login), login, self.cache, threads, device) for login in logins)
        with children(*calls) as processes:
            self._wait_for(logins)
            yield processes

    def _wait_for(self, logins: tuple[str, ...]) -> None:
        deadline = time.monotonic() + START_SECONDS
        with connect(self.url) as connection:
            while time.monotonic() < deadline:
                row = connection.execute(
                    "SELECT count(*) FROM classgan.workers WHERE name = ANY (%s)", (list(logins),)
                ).fetchone()
                if row and row[0] == len(logins):
                    return
                time.sleep(0.05)
        raise RuntimeError(f"not all of {', '.join(logins)} were at work within {START_SECONDS} s")

    @contextmanager
    def leader(self, name: str, plan: Plan) -> Generator[Child]:
        """A coordinator in a process of its own: `ask` it for the verbs in bench/lead.py."""
        with children(("lead", self.url, name, self.cache)) as (process,):
            process.ask(plan.model_dump_json())
            yield process


@contextmanager
def workplace() -> Generator[Path]:
    """A folder beside the product's own, so that the disk is the one a class would use."""
    home = settings().home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-", dir=home, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def school() -> Generator[School]:
    """A fresh, migrated database that stops with the block."""
    with workplace() as folder:
        postgres = Postgres(folder / "postgres")
        try:
            postgres.start()
            migrate(postgres.url())
            yield School(folder, postgres.url())
        finally:
            postgres.stop()
