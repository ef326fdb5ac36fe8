"""Whole classes as child processes, and what tests ask of them: one on this machine, one that others reach."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import safetensors.torch
import torch
from fake_hub import Hub
from network import Network
from poll import wait_until

from deployments.local.processes import stop_trees
from deployments.local.stack import LocalStack
from deployments.prefect_settings import clean_environment
from deployments.server.class_file import ClassFile
from deployments.student.invites import Invite
from gan_core.networks.update import State, tensors_of
from gan_core.plan import Plan
from gan_core.store import logins
from gan_core.store.coordinator import trainings
from gan_core.store.engine import connect
from gan_core.store.viewers import ledger
from gan_core.units import TrainingState

HOSTS = ("ada", "grace", "alan", "hedy", "dorothy")  # machines with an address of their own


class School:
    """The class, and what tests ask of it."""

    def __init__(self, stack: LocalStack, reference: Callable[[Plan], State]) -> None:
        self.stack, self.reference = stack, reference

    def ask(self, query: str, *values: object) -> list[tuple]:
        with psycopg.connect(self.stack.database, autocommit=True) as connection:
            return connection.execute(query, values).fetchall()

    def start(self, name: str, plan: Plan) -> str:
        return self.stack.start_training(name, plan.model_dump(mode="json"))

    def iteration(self, name: str) -> int:
        rows = self.ask("SELECT iteration FROM classgan.trainings WHERE name = %s", name)
        return rows[0][0] if rows else -1

    def state(self, name: str) -> TrainingState | None:
        """None until its coordinator has made it known."""
        with psycopg.connect(self.stack.database, autocommit=True) as connection:
            row = trainings.find(connection, name)
        return row.state if row else None

    def await_iteration(self, name: str, number: int, seconds: float = 240) -> None:
        wait_until(lambda: self.iteration(name) >= number, seconds, f"iteration {number} of {name}")

    def await_success(self, name: str, seconds: float = 300) -> None:
        try:
            wait_until(lambda: self.state(name) is TrainingState.SUCCEEDED, seconds, f"the end of {name}")
        except AssertionError as late:
            late.add_note(self.what_goes_on())
            raise

    def what_goes_on(self) -> str:
        """For whoever wonders why something does not come about: trainings, open runs, and how each log ends."""
        trainings = self.ask("SELECT name, state, iteration, message FROM classgan.trainings ORDER BY id")
        is_open = {"state": {"type": {"any_": ["RUNNING", "PENDING", "SCHEDULED", "CANCELLING"]}}}
        runs = self.stack._api("POST", "/flow_runs/filter", {"flow_runs": is_open})
        logs = [
            f"--- {log.name}\n{log.read_text(encoding='utf-8')[-1500:]}"
            for log in sorted(self.stack.logs.glob("*.log"))
        ]
        states = [f"{run['name']}: {run['state_name']} since {run['state']['timestamp']}" for run in runs]
        return "\n".join([*map(str, trainings), *states, *logs])

    def cancel(self, name: str) -> None:
        """End a training that has shown what it was for."""
        self.ask(
            "SELECT classgan.control(id, 'cancelled', 'a test', '') FROM classgan.trainings WHERE name = %s AND state IN ('queued', 'launching', 'running', 'paused')",
            name,
        )

    def await_quiet(self) -> None:
        """No coordinator is left: the last one, when it ends, cancels the shifts that nobody has taken."""
        running = {
            "flows": {"name": {"any_": ["train"]}},
            "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "SCHEDULED", "CANCELLING"]}}},
        }
        wait_until(lambda: not self.stack._api("POST", "/flow_runs/filter", running), 120, "the end of every training")

    def units_by_state(self, name: str) -> dict[str, int]:
        return dict(
            self.ask(
                "SELECT u.state::text, count(*) FROM classgan.units u JOIN classgan.trainings t ON t.id = u.training_id"
                " WHERE t.name = %s GROUP BY 1",
                name,
            )
        )

    def assert_equals_the_reference(self, name: str, plan: Plan) -> None:
        """The training's last state is what one process reaches with this plan, bit for bit."""
        with psycopg.connect(self.stack.database, autocommit=True) as connection:
            found = trainings.latest_checkpoint(connection, trainings.get(connection, name).id)
        assert found is not None
        iteration, _, payload = found
        assert iteration == plan.iterations
        stored, reference = safetensors.torch.load(payload), tensors_of(self.reference(plan))
        assert stored.keys() == reference.keys()
        for part, tensor in reference.items():
            assert torch.equal(stored[part], tensor), part


class Campus(School):
    """A class that others reach, and their machines."""

    def __init__(
        self,
        stack: LocalStack,
        reference: Callable[[Plan], State],
        class_file: ClassFile,
        folder: Path,
        network: Network,
        hub: Hub,
    ) -> None:
        super().__init__(stack, reference)
        self.class_file, self.folder, self.network, self.hub = class_file, folder, network, hub
        self.machines: list[subprocess.Popen[bytes]] = []

    def invite(self, login: str) -> Invite:
        with connect(self.stack.database) as connection:
            return self.class_file.invite(self.stack.home, login, logins.issue(connection, login))

    def join(self, invite: Invite, *options: str, host: str = "", **more: str) -> subprocess.Popen[bytes]:
        """A student's machine, with a home of its own and these variables more; the host is called like the student, if not otherwise."""
        home = self.folder / f"{invite.login}'s machine"
        home.mkdir(exist_ok=True)
        log = (home / "join.log").open("wb")
        machine = subprocess.Popen(
            [
                *self.network.on(host or invite.login),
                sys.executable,
                "-P",
                "-m",
                "deployments.cli",
                "join",
                invite.line,
                "--machine",
                "laptop",
                *options,
            ],
            env={
                **clean_environment(),
                "HOME": str(home),
                "CLASSGAN_HOME": str(home / "kept"),
                "CLASSGAN_THREADS": "1",
                **more,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            start_new_session=True,
        )
        self.machines.append(machine)
        return machine

    def stop_machines(self) -> None:
        stop_trees(self.machines, 10, threading.Event())
        self.machines.clear()

    def classgan(self, *words: str, **more: str) -> str:
        """The instructor's command, where the class runs; what it says. Fails if it does."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deployments.cli", *words],
            env={
                **clean_environment(),
                "CLASSGAN_HOME": str(self.stack.home),
                "CLASSGAN_OUTPUTS": str(self.stack.outputs),
                "COLUMNS": "200",
                **more,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def said(self, invite: Invite) -> str:
        return (self.folder / f"{invite.login}'s machine" / "join.log").read_text(encoding="utf-8")

    def images_of(self, login: str) -> int:
        with connect(self.stack.database) as connection:
            return next(row.images for row in ledger.credits(connection) if row.login == login)


def put_modules_like_ours(folder: Path) -> None:
    for name in ("tasks.py", "flows.py", "gan_core.py", "deployments.py"):
        (folder / name).write_text("raise SystemExit('the student's own module was imported')", encoding="utf-8")
