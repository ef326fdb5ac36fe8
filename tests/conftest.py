"""Fixtures: a private PostgreSQL with one fresh database for each test, tiny plans, real digits."""

import os

# Before PyTorch comes: its waiting threads sleep instead of spinning, here and in every process that a test starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache as cache_of_calls
from itertools import count
from pathlib import Path

import psycopg
import pytest
import torch
from classroom import Classroom
from crowd import fill
from databases import clone_of
from fake_hub import Hub, fake_hub
from filelock import FileLock
from typer.testing import CliRunner
from xdist.scheduler import LoadScopeScheduling

from deployments import prefect_database
from deployments.cli import app
from deployments.cli.output import console
from deployments.local.postgres import Postgres
from deployments.prefect_settings import PREFECT, clean_environment
from gan_core.data.images import ImageSet, open_images
from gan_core.errors import GanError, StackError
from gan_core.networks.reference import train_local
from gan_core.networks.update import State
from gan_core.plan import Plan
from gan_core.settings import settings
from gan_core.store.migrate import migrate
from gan_core.store.scheduler import submissions

_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--test-url",
        default=os.environ.get("CLASSGAN_TEST_URL", ""),
        help="PostgreSQL superuser URL to test against, instead of a private one",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """As root, a folder of this session's own: the one that pytest's sessions share is closed anew to everybody else
    whenever one of them starts, and PostgreSQL, which must not be root, lives below it.
    """
    if os.name == "posix" and os.geteuid() == 0 and not config.option.basetemp and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="classgan-tests-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))
    if not hasattr(config, "workerinput"):  # its processes inherit it
        _prefect_stays_away_from_home(config)


def _prefect_stays_away_from_home(config: pytest.Config) -> None:
    """Prefect makes a folder in the user's home when it is imported, warns where it can't, and reads the user's profile."""
    kept = pytest.MonkeyPatch()
    folder = tempfile.mkdtemp(prefix="classgan-tests-prefect-")
    kept.setenv("PREFECT_HOME", folder)
    config.add_cleanup(kept.undo)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


# Tests that share what is expensive run in one process, and the longest groups first: whole classes, which would only
# be in each other's way in two processes, the faults, and those who share a class server.
GROUPS = ("acceptance/", "faults/", "abuse/test_server", "server/service/")


def group_of(file: str) -> int:
    return next((n for n, part in enumerate(GROUPS) if f"/{part}" in f"/{file}"), len(GROUPS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that the other process can do all the rest meanwhile. The class that several files share comes
    up once the others are over: an idle one takes a tenth of a core.
    """
    items.sort(key=lambda item: (group_of(item.path.as_posix()), "school" in getattr(item, "fixturenames", ())))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """`make test` uses two processes: each group in one, all other files wherever there is time."""

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            number = group_of(file)
            return f"group {number}" if number < len(GROUPS) else file

    return Scheduling(config, log)  # ty: ignore[invalid-argument-type]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter) -> None:
    """The fault suite's table: fault, phase, seconds until the training moved again."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    rows = {
        tuple(value)
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "moved again"
    }
    if not rows:
        return
    terminalreporter.section("faults: seconds until the training moved again")
    for fault, phase, seconds in sorted(rows):
        terminalreporter.write_line(f"{fault:<42} {phase:<38} {seconds:6.1f}")


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_works() -> None:
    """A shell's background job ignores Ctrl-C, `nohup` a closed terminal, and so would every child of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Bit-for-bit comparisons need the same number of threads everywhere."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _not_your_class(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that names no folder writes nothing into the class that this checkout may hold, nor into the next test's."""
    folder = tmp_path_factory.getbasetemp() / f"nobody's-{next(_numbers)}"
    monkeypatch.setenv("CLASSGAN_HOME", str(folder / "home"))
    monkeypatch.setenv("CLASSGAN_OUTPUTS", str(folder / "outputs"))
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture(scope="session")
def class_home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Makes a class's folder in which both databases are migrated already, which takes ten seconds of a core."""
    base = tmp_path_factory.getbasetemp()
    kept = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "class-home"

    def make(home: Path) -> None:
        with FileLock(f"{kept}.lock"):
            if not (kept / "done").exists():
                postgres = Postgres(kept / "postgres")
                postgres.start()
                migrate(postgres.url())
                prefect_database.make_beside(postgres.url())
                _migrate_prefects(postgres.url())
                postgres.stop()
                (kept / "done").touch()
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", kept / "postgres", home], check=True)  # as it is, owners included

    return make


def _migrate_prefects(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        where = {**clean_environment(), **prefect_database.settings_for(url), "PREFECT_HOME": folder}
        subprocess.run([*PREFECT, "server", "database", "upgrade", "--yes"], env=where, check=True, capture_output=True)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a PostgreSQL server's `template` database, migrated; tests get clones of it."""
    if given := request.config.getoption("--test-url"):
        yield from _with_template(given)
        return
    where = _memory_or(tmp_path_factory.getbasetemp())
    with tempfile.TemporaryDirectory(prefix="classgan-tests-", dir=where) as folder:
        private = Postgres(Path(folder) / "postgres")
        try:
            private.start()
        except StackError as exc:
            if sys.platform != "win32":
                raise
            pytest.skip(
                f"{exc} On Windows it refuses to work for an administrator: run the tests as another user, or name a "
                "server's superuser with --test-url or CLASSGAN_TEST_URL"
            )
        with psycopg.connect(private.url(), autocommit=True) as connection:  # nobody wants it back after a power cut
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER SYSTEM SET max_wal_size = '128MB'")
            connection.execute("SELECT pg_reload_conf()")
        try:
            yield from _with_template(private.url())
        finally:
            private.stop()


def _memory_or(disk: Path) -> Path:
    """Where hundreds of databases come and go: in memory, where it counts as a folder and is large enough."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30 else disk


def _with_template(url: str) -> Iterator[str]:
    template = url.replace("/classgan?", "/template?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS template WITH (FORCE)")
        connection.execute("CREATE DATABASE template")
    migrate(template)
    with psycopg.connect(url, autocommit=True) as connection:  # from now on only clones can be changed
        connection.execute("ALTER DATABASE template ALLOW_CONNECTIONS false")
    yield template


@pytest.fixture(scope="session")
def prefects_template(server: str) -> str:
    """The same server, on which there is now a migrated template of Prefect's database, too."""
    admin = server.replace("/template?", "/postgres?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS template_prefect WITH (FORCE)")
        connection.execute("CREATE DATABASE template_prefect")
    _migrate_prefects(server)
    return server


@pytest.fixture(scope="session")
def prefects_records(prefects_template: str) -> Iterator[Callable[[], dict[str, str]]]:
    """Makes a migrated database for a Prefect server; returns the settings that lead there."""
    with ExitStack() as made:
        yield lambda: prefect_database.settings_for(made.enter_context(clone_of(prefects_template, "_prefect")))


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """URL of a fresh, migrated database."""
    with clone_of(server) as url:
        yield url


@pytest.fixture
def other_database(server: str) -> Iterator[str]:
    """Another one on the same server."""
    with clone_of(server) as url:
        yield url


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of resized images, shared by the whole session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def digits(cache: Path) -> ImageSet:
    """The 5,000 real digits at 32x32."""
    return open_images("digits", image_size=32, channels=1, cache=cache)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """A hub of our own, to which huggingface_hub leads as if HF_ENDPOINT said so."""
    # Each of them calls its only commit aaaa…: what an earlier one sent would be taken for this one's.
    shutil.rmtree(cache / "downloads", ignore_errors=True)
    with fake_hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("gan_core.data.downloads.FIRST_PAUSE", 0.01)
        yield hub


@pytest.fixture(scope="session")
def reference(digits: ImageSet) -> Callable[[Plan], State]:
    """What one process reaches with a plan on the digits; computed once a plan."""
    return cache_of_calls(lambda plan: train_local(plan, digits))


@pytest.fixture
def classroom(database: str, cache: Path) -> Classroom:
    return Classroom(database, cache)


@pytest.fixture
def classgan(database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs a command of `classgan` in this process, on this test's database and folders; returns what it printed, or the
    sentence that it failed with.
    """
    for name, value in {"DATABASE_URL": database, "HOME": tmp_path, "OUTPUTS": tmp_path / "outputs"}.items():
        monkeypatch.setenv(f"CLASSGAN_{name}", str(value))
    settings.cache_clear()

    def run(*arguments: str) -> str:
        monkeypatch.setattr(console, "_width", 300)  # no line is folded, whoever imported it first
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
        if isinstance(done.exception, GanError):
            return str(done.exception)
        assert done.exit_code == 0, done.output
        return done.output

    yield run
    settings.cache_clear()


@pytest.fixture(scope="session")
def tiny() -> Plan:
    """The smallest plan that is still a GAN: 32x32 digits, a few thousand parameters, three units an iteration."""
    return Plan(
        latent_dim=4,
        generator_width=4,
        discriminator_width=4,
        learning_rate_g=1e-3,  # so few updates that rounding stays small
        learning_rate_d=1e-3,
        batch_size=8,
        images_per_unit=16,
        quorum=48,
        iterations=3,
        codec="float32",
        max_units_per_lease=1,
        deadline_floor=60,  # however busy this computer is, what is compared with a reference holds all images
        ema_half_life=100,
        checkpoint_interval=2,
        evaluate_interval=0,
    )


@pytest.fixture
def crowd(connection, tiny) -> int:
    """Twelve students, a training at work and one that waits, checks, and a refused contribution."""
    training = fill(connection, 12, 30, tiny)
    submissions.submit(connection, "waits", tiny.model_dump(mode="json"), {"gpus": 1, "memory_mb": 40_000, "min_workers": 1, "priority": 0, "max_workers": None}, owner="ada", key="")  # fmt: skip
    connection.execute("UPDATE classgan.trainings SET waiting_since = now() - interval '1 hour' WHERE name = 'waits'")
    connection.execute(
        "UPDATE classgan.contributions SET verdict = 'refused', credited = false WHERE id IN (SELECT id FROM classgan.contributions ORDER BY id DESC LIMIT 36)"
    )
    connection.execute(
        "INSERT INTO classgan.checks (contribution_id, training_id, iteration, student_id, worker_id, ordinals, images_per_second, checked_at, valid)"
        " SELECT c.id, c.training_id, c.iteration, w.student_id, w.id, '{0}', 1, now(), c.id %% 2 = 0 FROM classgan.contributions AS c"
        " JOIN classgan.workers AS w ON w.id = c.worker_id WHERE c.training_id = %s ORDER BY c.id LIMIT 10",
        (training,),
    )
    return training
