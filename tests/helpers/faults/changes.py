"""`make soak CHANGES=1`: a class in which somebody changes every knob of the plan at random, all the time.

Three students' Prefect workers on one machine, and the instructor's. Meanwhile machines fall asleep, so that their answers
come late, and are killed. Everybody is honest: nobody may be suspended, and no check may find a contribution invalid.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import psycopg
from campus import School
from fake_hub import TOKEN, fake_hub
from faults.soak import console, verdict
from killing import engines, kill_tree
from poll import wait_until
from rich.table import Table

from deployments.local.stack import LocalStack
from gan_core.errors import PlanError
from gan_core.networks.update import State
from gan_core.plan import FIXED, Plan
from gan_core.store.coordinator import trainings
from gan_core.store.engine import connect
from gan_core.units import TrainingState
from tasks import control

WORKERS = ("ada", "grace", "alan")
CHANGEABLE = tuple(name for name in Plan.model_fields if name not in FIXED)
SCHEMA = Plan.model_json_schema()["properties"]
# A knob takes any value of its range, but where most of the range would let a tiny class stand still, or compute for hours.
WITHIN = MappingProxyType(
    {
        "batch_size": (2, 32),
        "images_per_unit": (16, 96),
        "quorum": (32, 512),
        "deadline_floor": (0.1, 4),
        "deadline_ceiling": (1, 15),
        "target_seconds": (0.05, 10),
        "max_units_per_lease": (1, 4),
        "lease_seconds": (1, 20),
        "iterations": (1_000_000, 10_000_000),  # a training ends when the rehearsal wants it
        "epochs": (10_000, 100_000),
        "sample_interval": (1, 100),
        "push_interval": (1, 100),
        "evaluate_interval": (10, 1_000),
        "checkpoint_interval": (1, 50),
        "cluster_shifts": (1, 3),
    }
)
WORDS = MappingProxyType(  # for knobs of which the range is a pattern
    {
        "model_name": ("", "drawn", "drawn-again"),
        "hub_repo": ("", "class/digits", "class/other"),
        "hub_licence": ("", "mit", "cc-by-4.0"),
    }
)
FIRST = Plan(
    latent_dim=4,
    generator_width=4,
    discriminator_width=4,
    batch_size=8,
    images_per_unit=32,
    quorum=128,
    iterations=1_000_000,
    deadline_floor=1,
    deadline_ceiling=5,
)
KINDS = MappingProxyType(  # what can't change within a training: each one has other ones
    {
        "model": ("dcgan", "spectral"),
        "loss": ("hinge", "bce"),
        "contribution": ("local_steps", "gradient"),
        "codec": ("float16", "float32", "int8", "int4"),
        "weights_codec": ("float32", "float16", "int4"),
        "sampler": ("shuffled", "stratified"),
    }
)
STAND = 600.0  # seconds without an iteration, on a busy machine with the end of one run and the start of another: then something is broken


def value_of(name: str, dice: random.Random) -> Any:
    """A value of a knob's range. Of numbers each order of magnitude is as likely, but shares are spread evenly."""
    if name in WORDS:
        return dice.choice(WORDS[name])
    kind = dice.choice(SCHEMA[name].get("anyOf", [SCHEMA[name]]))
    if "const" in kind:
        return kind["const"]
    if "enum" in kind:
        return dice.choice(kind["enum"])
    if kind["type"] == "boolean":
        return dice.random() < 0.5
    if kind.get("minimum") == 0 and dice.random() < 0.2:
        return 0
    most = kind.get("maximum", 1 - 1e-6)
    low, high = WITHIN.get(name, (kind.get("minimum") or 1e-5 * most, most))
    value = dice.uniform(low, high) if 0.9 < most <= 1 else low * (high / low) ** dice.random()
    return round(value) if kind["type"] == "integer" else value


class Restless:
    """Changes the plan, lets machines sleep and kills them; begins another training now and then, of another kind."""

    def __init__(self, school: School, dice: random.Random, training_seconds: float) -> None:
        self.school, self.stack, self.dice, self._training_seconds = school, school.stack, dice, training_seconds
        self.counts: Counter[str] = Counter()
        self.knobs: Counter[str] = Counter(dict.fromkeys(CHANGEABLE, 0))  # how often each was changed
        self.name, self._number, self._moved, self._iteration = "", 0, time.monotonic(), -1
        self.longest = 0.0  # seconds that a training stood still
        self._deck: list[str] = []
        self._unchecked = False  # whether the plan says so now
        self._asleep: list[tuple[float, psutil.Process]] = []  # until when

    def run(self, seconds: float) -> None:
        """So long, or until each knob was changed, if that takes no more than twice the time; then to the training's end."""
        ends, change_at, sleep_at, kill_at, next_at = time.monotonic() + seconds, 0.0, 0.0, 0.0, 0.0
        while (now := time.monotonic()) < ends or (not all(self.knobs.values()) and now < ends + seconds):
            for news in self.stack.look_after():
                console.print(news, markup=False)
            self._wake()
            row = self._row()
            if row is not None and row.state not in (
                TrainingState.QUEUED,
                TrainingState.LAUNCHING,
                TrainingState.RUNNING,
            ):
                self.counts[f"trainings that ended by themselves: {row.state}, {row.message}"] += 1
                next_at = 0.0
            if now >= next_at:
                self.begin_next()
                next_at = time.monotonic() + self._training_seconds
                kill_at = max(kill_at, time.monotonic() + 8)
                continue
            self._watch(row)
            if row is None or row.state is not TrainingState.RUNNING or not row.iteration:
                time.sleep(0.2)
                continue
            if now >= change_at and (row.wanted is None or now >= change_at + 5):
                self.change()
                change_at = now + self.dice.uniform(0.2, 2)
            if now >= sleep_at:
                self.fall_asleep()
                sleep_at = now + self.dice.uniform(1, 4)
            if now >= kill_at:
                self.kill()
                kill_at = now + self.dice.uniform(20, 60)
            time.sleep(0.1)
        self._wake(everybody=True)
        self.end_training()

    def begin_next(self) -> None:
        """End the training at hand in good order, so that its last checks are made, then begin another kind of it."""
        if self.name:
            self.end_training()
        self._number += 1
        self.name = f"changing-{self._number}"
        kind = {name: self.dice.choice(values) for name, values in KINDS.items()}
        console.print(f"{self.name}: {kind}", markup=False)
        self.school.start(self.name, FIRST.changed(**kind))
        self._moved, self._iteration, self._unchecked = time.monotonic(), -1, False
        self.counts["trainings"] += 1

    def end_training(self) -> None:
        """By its plan. One that has ended by itself is ended already."""
        self._wake(everybody=True)
        row = self._row()
        if row is not None and row.state in (TrainingState.LAUNCHING, TrainingState.RUNNING):
            soon = {
                "epochs": 0,
                "iterations": max(1, row.iteration + 2),
                "deadline_floor": 1,
                "deadline_ceiling": 5,
                "lease_seconds": 5,
            }
            self._say(**soon)

        def is_over() -> bool:
            self.stack.look_after()
            row = self._row()
            return row is None or row.state in (TrainingState.SUCCEEDED, TrainingState.PAUSED, TrainingState.FAILED)

        wait_until(is_over, STAND, f"the end of {self.name}", every=0.3)
        running = {
            "flow_runs": {"name": {"any_": [f"train {self.name}"]}, "state": {"type": {"any_": ["RUNNING", "PENDING"]}}}
        }
        wait_until(
            lambda: not self.stack._api("POST", "/flow_runs/filter", running), STAND, "the end of its run", every=0.5
        )

    def change(self) -> None:
        """Give one to four knobs other values; every knob once before any comes again."""
        for _ in range(20):  # together they may be impossible: then others
            if len(self._deck) < 4:
                self._deck += self.dice.sample(CHANGEABLE, len(CHANGEABLE))
            names = self._deck[: self.dice.randint(1, 4)]
            values = {name: value_of(name, self.dice) for name in names}
            if self._unchecked:  # for the length of one plan only, or there would be few verdicts
                values["checks"] = "sampled"
            if self._say(**values):
                self._unchecked = values.get("checks") == "off"
                del self._deck[: len(names)]
                return
        self._deck = self.dice.sample(CHANGEABLE, len(CHANGEABLE))

    def _say(self, **values: Any) -> bool:
        """As `classgan change` does it; whether it was taken."""
        with connect(self.stack.database) as connection:
            try:
                said = control.change(connection, self.name, values, "the rehearsal")
            except PlanError:
                self.counts["changes that were refused"] += 1
                return False
        if "already" not in said:
            self.counts["changes"] += 1
            self.knobs.update(values.keys())
        return True

    def fall_asleep(self) -> None:
        """A machine's shift stops for some seconds, in the middle of whatever it is doing."""
        if shifts := [shift for name in WORKERS for shift in self._shifts(name)]:
            shift = self.dice.choice(shifts)
            with suppress(psutil.NoSuchProcess):
                shift.suspend()
                self._asleep.append((time.monotonic() + self.dice.uniform(0.2, 6), shift))
                self.counts["machines that slept"] += 1

    def _wake(self, everybody: bool = False) -> None:
        due = [shift for until, shift in self._asleep if everybody or until <= time.monotonic()]
        self._asleep = [(until, shift) for until, shift in self._asleep if shift not in due]
        for shift in due:
            with suppress(psutil.NoSuchProcess):
                shift.resume()

    def kill(self) -> None:
        """kill -9: a shift, or the whole worker, which the class starts again."""
        name = self.dice.choice(WORKERS)
        shifts = self._shifts(name)
        if shifts and self.dice.random() < 0.5:
            self.counts["shifts killed"] += 1
            kill_tree(shifts[0].pid)
        elif self.stack.children[f"worker-{name}"].poll() is None:
            self.counts["workers killed"] += 1
            kill_tree(self.stack.children[f"worker-{name}"].pid)

    def _shifts(self, name: str) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return engines(self.stack.children[f"worker-{name}"])
        return []

    def _row(self) -> trainings.TrainingRow | None:
        with psycopg.connect(self.stack.database, autocommit=True) as connection:
            # Whoever has shown that they are honest is checked ever less. Here each is checked as if they had just come.
            connection.execute("UPDATE classgan.students SET valid_streak = 0 WHERE valid_streak > 0")
            return trainings.find(connection, self.name) if self.name else None

    def _watch(self, row: trainings.TrainingRow | None) -> None:
        now = time.monotonic()
        if row is not None and row.iteration > self._iteration:
            self._iteration, self._moved = row.iteration, now
        self.longest = max(self.longest, now - self._moved)
        assert now - self._moved < STAND, f"{self.name} stands at {self._iteration}\n{self.school.what_goes_on()}"


def figures(school: School) -> dict[str, int]:
    """What came of it, in the ledger's words."""
    questions = {
        "iterations": "SELECT coalesce(sum(iteration), 0) FROM classgan.trainings",
        "plans that held for an iteration": "SELECT count(*) FROM classgan.plans",
        "contributions": "SELECT count(*) FROM classgan.contributions",
        **{
            f"contributions, {verdict}": f"SELECT count(*) FROM classgan.contributions WHERE verdict = '{verdict}'"
            for verdict in ("accepted", "late", "refused")
        },
        "late answers that earned credit": "SELECT count(*) FROM classgan.contributions WHERE verdict = 'late' AND credited",
        "late answers after a change of the plan": "SELECT count(*) FROM classgan.contributions AS c WHERE verdict = 'late' AND EXISTS ("
        "SELECT FROM classgan.events AS e WHERE e.training_id = c.training_id AND e.kind = 'plan' AND e.iteration > c.iteration AND e.at < c.submitted_at)",
        "checks, valid": "SELECT count(*) FROM classgan.checks WHERE valid",
        "checks of late answers, valid": "SELECT count(*) FROM classgan.checks AS k JOIN classgan.contributions AS c ON c.id = k.contribution_id"
        " WHERE k.valid AND c.verdict = 'late'",
        "checks that nobody made any more": "SELECT count(*) FROM classgan.checks WHERE checked_at IS NULL",
        "iterations that closed early": "SELECT count(*) FROM classgan.events WHERE kind = 'closed early'",
        "iterations that were undone": "SELECT count(*) FROM classgan.events WHERE kind = 'rolled back'",
        "leases given back": "SELECT count(*) FROM classgan.events WHERE kind = 'given back'",
    }
    return {what: int(school.ask(question)[0][0]) for what, question in questions.items()}


def faults(school: School) -> dict[str, int]:
    """What must be zero, beside the ledger's own sums."""
    questions = {
        "checks, invalid": "SELECT count(*) FROM classgan.checks WHERE NOT valid",
        "students suspended": "SELECT count(*) FROM classgan.students WHERE suspended <> ''",
    }
    log = (school.stack.logs / "instructor.log").read_text(errors="replace", encoding="utf-8")
    return {
        **{what: int(school.ask(question)[0][0]) for what, question in questions.items()},
        "checks that could not be made": log.count("can't be checked here"),
    }


def accusations(school: School) -> list[str]:
    """What the history says against anybody."""
    return [
        text
        for (text,) in school.ask(
            "SELECT text FROM classgan.events WHERE kind IN ('invalid', 'suspended', 'refused', 'failed') ORDER BY id"
        )
    ]


def no_reference(plan: Plan) -> State:
    raise AssertionError("a plan that changes has no reference")


@contextmanager
def changing_class(folder: Path) -> Generator[School]:
    """Three students and the instructor on this machine, with a hub of their own."""
    with fake_hub() as hub:
        outside = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
        before = {name: os.environ.get(name) for name in outside}
        os.environ.update(outside)
        try:
            with LocalStack(folder / "home", folder / "outputs", WORKERS) as stack:
                yield School(stack, no_reference)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak CHANGES=1", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (%(default)g)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of all that is random here (random)"
    )
    options = parser.parse_args()
    console.print(
        f"{len(WORKERS)} workers, {options.minutes:g} minutes, seed {options.seed} (repeat with --seed {options.seed})"
    )
    with (
        tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder,
        changing_class(Path(folder)) as school,
    ):
        restless = Restless(school, random.Random(options.seed), training_seconds=300)
        restless.run(60 * options.minutes)
        return report(restless)


def report(restless: Restless) -> int:
    table = Table("what", "figure", title="changes", show_header=False)
    for what, count in [*sorted(restless.counts.items()), *figures(restless.school).items()]:
        table.add_row(what, f"{count:,}")
    table.add_row("longest time without progress", f"{restless.longest:.0f} s, the start of a training included")
    least, most = (
        min(restless.knobs, key=restless.knobs.__getitem__),
        max(restless.knobs, key=restless.knobs.__getitem__),
    )
    table.add_row("changes of a knob", f"{restless.knobs[least]} ({least}) to {restless.knobs[most]} ({most})")
    table.add_section()
    wrong = {**faults(restless.school), **verdict(restless.school)}
    for what, count in wrong.items():
        table.add_row(what, f"[red]{count}[/red]" if count else "0")
    console.print(table)
    for text in accusations(restless.school)[:50]:
        console.print(text, markup=False)
    good = not any(wrong.values()) and all(restless.knobs.values())
    console.print(
        "[green]Nobody honest was accused, nothing lost, nothing twice.[/green]"
        if good
        else "[red]This must not be.[/red]"
    )
    return 0 if good else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # either ends the class in good order, from a background job too
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
