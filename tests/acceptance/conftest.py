"""A whole class as child processes, shared by the acceptance tests: starting one takes half a minute."""

from collections.abc import Iterator, Mapping

import psycopg
import pytest
import safetensors.torch
import torch
from poll import wait_until

from deployments.local_stack import LocalStack
from gan_core.images import ImageSet
from gan_core.plan import Plan
from gan_core.store import trainings
from gan_core.trainer import train_local
from gan_core.units import TrainingState
from gan_core.update import tensors_of

WORKERS = ("ada", "grace", "alan")


class School:
    """The class, and what tests ask of it."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self._references: dict[Plan, Mapping[str, torch.Tensor]] = {}

    def ask(self, query: str, *values: object) -> list[tuple]:
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as connection:
            return connection.execute(query, values).fetchall()

    def start(self, name: str, plan: Plan) -> str:
        return self.stack.start_training(name, plan.model_dump(mode="json"))

    def iteration(self, name: str) -> int:
        rows = self.ask("SELECT iteration FROM classgan.trainings WHERE name = %s", name)
        return rows[0][0] if rows else -1

    def state(self, name: str) -> TrainingState | None:
        """None until its coordinator has made it known."""
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as connection:
            row = trainings.find(connection, name)
        return row.state if row else None

    def await_iteration(self, name: str, number: int, seconds: float = 120) -> None:
        wait_until(lambda: self.iteration(name) >= number, seconds, f"iteration {number} of {name}")

    def await_success(self, name: str, seconds: float = 180) -> None:
        wait_until(lambda: self.state(name) is TrainingState.SUCCEEDED, seconds, f"the end of {name}")

    def cancel(self, name: str) -> None:
        """End a training that has shown what it was for."""
        self.ask("SELECT classgan.control(id, 'cancelled', 'a test', '') FROM classgan.trainings WHERE name = %s", name)

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

    def reference(self, plan: Plan, digits: ImageSet) -> Mapping[str, torch.Tensor]:
        """What one process reaches with this plan; computed once a plan."""
        if plan not in self._references:
            self._references[plan] = tensors_of(train_local(plan, digits))
        return self._references[plan]

    def assert_equals_the_reference(self, name: str, plan: Plan, digits: ImageSet) -> None:
        """The training's last state is what one process reaches with this plan, bit for bit."""
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as connection:
            found = trainings.latest_checkpoint(connection, trainings.get(connection, name).id)
        assert found is not None
        iteration, _, payload = found
        assert iteration == plan.iterations
        stored, reference = safetensors.torch.load(payload), self.reference(plan, digits)
        assert stored.keys() == reference.keys()
        for part, tensor in reference.items():
            assert torch.equal(stored[part], tensor), part


@pytest.fixture(scope="session")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    """Servers, a coordinator's worker and three students' workers, in a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("a class")
    with LocalStack(folder / "home", folder / "outputs", WORKERS) as stack:
        yield School(stack)
