"""A class under faults: a database and a class server that can be killed, a healthy worker, and the checks that must hold after anything."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import safetensors.torch
import torch
from doors import DoorServer
from faults.machines import MachineProcess, Phase, Quirks, coordinator, student_machine
from killing import kill_tree
from poll import wait_until

from deployments.local.postgres import Postgres
from gan_core.networks.update import State, tensors_of
from gan_core.plan import Plan
from gan_core.store.coordinator import trainings
from gan_core.store.migrate import migrate
from gan_core.units import TrainingState

NEVER = -1
ORDINARY = Quirks()


@dataclass
class FaultySchool:
    """Starts machines against one database; what it starts, it ends."""

    postgres: Postgres
    door: DoorServer  # through which students' machines reach it
    cache: Path
    machines: list[MachineProcess] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.postgres.url()

    def student_url(self, login: str) -> str:
        return self.door.url(login)

    def worker(
        self, name: str, hold: Phase | None = None, quirks: Quirks = ORDINARY, url: str = "", cache: Path | None = None
    ) -> MachineProcess:
        return self._kept(
            MachineProcess(
                name, student_machine, url or self.student_url(name), name, cache or self.cache, quirks, hold=hold
            )
        )

    def ready_worker(self, name: str, *arguments) -> MachineProcess:
        """The same, once it asks for work."""
        ((now,),) = self.ask("SELECT now()")
        machine = self.worker(name, *arguments)
        ready = "SELECT 1 FROM classgan.workers WHERE name = %s AND registered_at > %s AND last_seen > registered_at"
        wait_until(lambda: self.ask(ready, name, now), 60, f"{name}, ready to work")
        return machine

    def lead(self, name: str, plan: Plan, hold: Phase | None = None, at: int = NEVER) -> MachineProcess:
        return self._kept(
            MachineProcess(f"coordinator of {name}", coordinator, self.url, name, plan, self.cache, at, hold=hold)
        )

    def _kept(self, machine: MachineProcess) -> MachineProcess:
        self.machines.append(machine)
        return machine

    def end(self, *machines: MachineProcess) -> None:
        ending = machines or tuple(self.machines)
        for machine in ending:
            machine.ask_to_stop()
        for machine in ending:
            machine.stop()
            self.machines.remove(machine)

    def end_now(self, machine: MachineProcess) -> None:
        """kill -9; of one that is dead already, nothing."""
        machine.kill()
        if machine in self.machines:
            self.machines.remove(machine)

    # Looking

    def ask(self, query: str, *values: object) -> list[tuple]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query, values).fetchall()

    def tell(self, statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statements.encode())

    def iteration(self, name: str) -> int:
        """Of the newest weights; -1 while there is no answer."""
        with suppress(psycopg.OperationalError):
            rows = self.ask("SELECT iteration FROM classgan.trainings WHERE name = %s", name)
            return rows[0][0] if rows else -1
        return -1

    def state(self, name: str) -> TrainingState | None:
        with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True) as connection:
            row = trainings.find(connection, name)
            return row.state if row else None
        return None

    def await_iteration(self, name: str, number: int, seconds: float = 60) -> None:
        wait_until(lambda: self.iteration(name) >= number, seconds, f"iteration {number} of {name}", every=0.02)

    def seconds_until_moved(self, name: str, struck: float, before: int, seconds: float = 120) -> float:
        """From the strike to the next published weights."""
        self.await_iteration(name, before + 1, seconds)
        return time.monotonic() - struck

    def await_success(self, name: str, seconds: float = 90) -> None:
        wait_until(lambda: self.state(name) is TrainingState.SUCCEEDED, seconds, f"the end of {name}")

    # What must hold whatever has happened

    def assert_nothing_lost_and_nothing_twice(self, name: str, plan: Plan) -> None:
        """Each unit entered the model exactly once, credit is the accepted work, and no lease is left open."""
        training = self.ask("SELECT id FROM classgan.trainings WHERE name = %s", name)[0][0]
        units = self.ask(
            "SELECT iteration, ordinal, state::text, contribution_id, images FROM classgan.units WHERE training_id = %s",
            training,
        )
        assert {state for _, _, state, _, _ in units} == {"done"}
        assert len(units) == plan.iterations * plan.quorum // plan.images_per_unit
        accepted = dict(
            self.ask(
                "SELECT id, images FROM classgan.contributions WHERE training_id = %s AND verdict = 'accepted'",
                training,
            )
        )
        used = [contribution for _, _, _, contribution, _ in units]
        assert sorted(used) == sorted(accepted), (
            "one unit a lease: each accepted contribution is one unit's, and no other's"
        )
        assert sum(accepted.values()) == sum(images for *_, images in units) == plan.iterations * plan.quorum
        counted = self.ask(
            "SELECT sum(images), sum(contributions) FROM classgan.iterations WHERE training_id = %s", training
        )
        assert counted == [(sum(accepted.values()), len(accepted))]
        wait_until(lambda: not self.open_leases(training), 20, "the end of every lease")

    def open_leases(self, training: int) -> list[tuple]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT classgan.expire_leases()")
        return self.ask("SELECT id FROM classgan.leases WHERE training_id = %s AND ended_at IS NULL", training)

    def assert_weights_equal(self, name: str, reference: State) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = trainings.latest_checkpoint(connection, trainings.get(connection, name).id)
        assert found is not None
        iteration, _, payload = found
        assert iteration == reference.iteration
        stored = safetensors.torch.load(payload)
        for part, tensor in tensors_of(reference).items():
            assert torch.equal(stored[part], tensor), part

    # Striking

    def kill_database(self) -> None:
        """Power cut: no orderly end, nothing flushed but the log."""
        assert self.postgres.process is not None
        kill_tree(self.postgres.process.pid)
        self.postgres.process.wait()

    def cut_every_connection(self) -> None:
        self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


@contextmanager
def faulty_school(folder: Path, cache: Path) -> Iterator[FaultySchool]:
    postgres = Postgres(folder / "postgres")
    postgres.start()
    school = FaultySchool(postgres, DoorServer(postgres.url(), folder), cache)
    try:
        migrate(postgres.url())
        school.door.start()
        yield school
    finally:
        school.end()
        school.door.stop()
        postgres.stop()
