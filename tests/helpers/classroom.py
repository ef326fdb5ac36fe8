"""A class without Prefect: real database, real shifts in threads, the coordinator's own verbs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import torch

from gan_core.coordinator.checker import Checker
from gan_core.coordinator.coordinator import Coordinator
from gan_core.networks.update import State, tensors_of
from gan_core.plan import Plan
from gan_core.store.migrate import add_student
from gan_core.worker.shift import Shift


@dataclass
class Classroom:
    """One database, and as many machines as a test wants."""

    url: str  # as the instructor
    cache: Path
    stop: threading.Event = field(default_factory=threading.Event)

    def student_url(self, login: str) -> str:
        """The same database with a student's login; the student exists from now on."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            add_student(connection, login)
        return self.url.replace("//instructor@", f"//{login}@")

    def shift(self, name: str, should_stop: Callable[[], bool] | None = None) -> Shift:
        return Shift(self.student_url(name), name, "cpu", self.cache, should_stop=should_stop or self.stop.is_set)

    @contextmanager
    def working(self, workers: int) -> Iterator[list[Shift]]:
        """So many machines at work, until the block ends."""
        self.stop.clear()
        shifts = [self.shift(f"student{n}") for n in range(workers)]
        threads = [threading.Thread(target=shift.run, name=shift.name) for shift in shifts]
        for thread in threads:
            thread.start()
        try:
            yield shifts
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def check_all(self, training_id: int) -> int:
        """Recompute whatever waits for it; returns how many contributions those were."""
        checker, count = Checker(self.url, training_id, cache=self.cache), 0
        try:
            while checker.check_next():
                count += 1
        finally:
            checker.close()
        return count

    def train(self, plan: Plan, name: str = "test", until: int | None = None) -> Coordinator:
        """Lead a training to its plan's end, or until an iteration; returns the coordinator with its state."""
        with Coordinator(self.url, name, plan, self.cache) as training:
            while not training.is_done and training.state.iteration != until:
                training.create_units()
                training.publish(training.gather())
            if training.is_done:
                training.finish()
        return training


def same_bits(a: State, b: State) -> bool:
    """Whether two states hold the very same numbers: weights, averages, optimiser."""
    ours, theirs = tensors_of(a), tensors_of(b)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
