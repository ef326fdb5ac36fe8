"""Real processes that stop at a phase, so that a fault strikes exactly there: students' machines and coordinators.

They are forked from one server process that has imported PyTorch already: a start costs 50 ms instead of 3 s.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gan_core.plan import Plan

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["gan_core.coordinator.coordinator", "gan_core.worker.shift"])


class Phase(StrEnum):
    """Where a process can be held. The words are those of the table that the suite prints."""

    CLAIMED = "worker has leased a unit"
    COMPUTING = "worker is computing"
    SUBMITTING = "worker is about to submit"
    SUBMITTED = "worker has submitted"
    CREATED = "coordinator has created units"
    GATHERED = "coordinator has gathered"
    BEFORE_COMMIT = "coordinator is about to publish"
    AFTER_COMMIT = "coordinator has published"


@dataclass(frozen=True)
class Quirks:
    """What is odd about a machine."""

    slow: float = 0  # seconds that each batch takes longer
    clock: float = 0  # seconds that its clock is ahead
    full_disk: bool = False


class Gate:
    """Lets everything pass, but holds whoever comes to one phase for the first time until told to go on."""

    def __init__(self, channel: Connection, phase: Phase | None) -> None:
        self._channel, self._phase, self._lock = channel, phase, threading.Lock()

    def __call__(self, phase: Phase) -> None:
        with self._lock:
            if phase is not self._phase:
                return
            self._phase = None
            self._channel.send(phase)
            with suppress(EOFError):
                self._channel.recv()


class MachineProcess:
    """One such process."""

    def __init__(self, name: str, run: Callable[..., None], *arguments: Any, hold: Phase | None = None) -> None:
        self.name = name
        self._channel, theirs = FORK.Pipe()
        self.process = FORK.Process(target=run, args=(theirs, hold, *arguments), name=name, daemon=True)
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    def await_phase(self, seconds: float = 60) -> None:
        """Wait until it has come to the phase where it is held."""
        if not self._channel.poll(seconds):
            raise AssertionError(f"{self.name} did not come to its phase within {seconds:g} s")
        self._channel.recv()

    def has_come(self) -> bool:
        """Whether it is held now."""
        return self._channel.poll()

    def go_on(self) -> None:
        with suppress(OSError):
            self._channel.send("go")

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself just now
            os.kill(self.pid, number)

    def kill(self) -> None:
        """As if the machine had lost its power."""
        if self.is_alive:
            self.send(signal.SIGKILL)
        self.process.join(30)

    def ask_to_stop(self) -> None:
        if self.is_alive:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self.go_on()

    def stop(self) -> None:
        """End it politely; kill it if that takes too long."""
        self.ask_to_stop()
        self.process.join(20)
        self.kill()


def student_machine(channel: Connection, hold: Phase | None, url: str, name: str, cache: Path, quirks: Quirks) -> None:
    """A shift, as a student's machine runs it. A polite kill ends it after its unit."""
    import torch

    from gan_core.networks.optimiser import warm_up
    from gan_core.worker import shift as shifts

    torch.set_num_threads(1)
    warm_up(Plan())  # else the first unit takes seconds, and the others do everything meanwhile
    shifts.HEARTBEAT = 0.5  # leases are short here
    stop, gate = threading.Event(), Gate(channel, hold)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if quirks.clock:
        real = time.time
        time.time = lambda: real() + quirks.clock
    if quirks.full_disk:
        import resource  # not on Windows, where this file is at least to be read

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    class Held(shifts.Shift):
        def _compute(self, lease):
            gate(Phase.CLAIMED)
            return super()._compute(lease)

        def _beat_of(self, lease):
            beat = super()._beat_of(lease)

            def slowly() -> None:
                gate(Phase.COMPUTING)
                time.sleep(quirks.slow)
                beat()

            return slowly

        def _submit(self, lease, *computed):
            gate(Phase.SUBMITTING)
            answer = super()._submit(lease, *computed)
            gate(Phase.SUBMITTED)
            return answer

    Held(url, name, "cpu", cache, should_stop=stop.is_set).run()


def coordinator(channel: Connection, hold: Phase | None, url: str, name: str, plan: Plan, cache: Path, at: int) -> None:
    """What the flow `train` does, without Prefect; held at iteration `at`. A polite kill pauses the training."""
    import torch

    from gan_core.coordinator import leadership
    from gan_core.coordinator.coordinator import Coordinator
    from gan_core.errors import Finished, LeadLost
    from gan_core.networks.optimiser import warm_up
    from gan_core.store.coordinator import trainings

    torch.set_num_threads(1)
    warm_up(plan)  # seconds that a coordinator's first training takes, and none that follows
    leadership.BEAT, leadership.SILENT = 0.5, 6.0  # a standby's patience is short here
    gate, publish = Gate(channel, hold), trainings.publish
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def held_publish(connection, training_id, term, iteration, *rest) -> None:
        if iteration == at:
            gate(Phase.BEFORE_COMMIT)
        publish(connection, training_id, term, iteration, *rest)
        if iteration == at:
            gate(Phase.AFTER_COMMIT)

    trainings.publish = held_publish
    while True:
        with suppress(LeadLost):
            try:
                with Coordinator(url, name, plan, cache) as training:
                    signal.signal(signal.SIGTERM, lambda *_, t=training: setattr(t, "stop_asked", "a signal"))
                    while not training.is_done:
                        training.stop_if_asked()
                        training.create_units()
                        if training.state.iteration == at:
                            gate(Phase.CREATED)
                        gathered = training.gather()
                        if training.state.iteration == at:
                            gate(Phase.GATHERED)
                        training.publish(gathered)
                    training.finish()
            except Finished:
                pass
            return
