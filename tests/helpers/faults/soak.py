"""`make soak`: a class in which something breaks every few seconds, for as long as you like. Ends with a verdict.

Eight workers behind networks that can be cut, a coordinator with a standby, one database. Afterwards every unit is
accounted for: none lost, none counted twice.
"""

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from campus import School
from faults.machines import MachineProcess, Quirks
from faults.proxy import Proxy
from faults.school import FaultySchool, faulty_school
from poll import wait_until
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gan_core.data.images import open_images
from gan_core.plan import Plan
from gan_core.settings import settings

console = Console()
NAME = "soak"
CALM = 0.2  # share of the time that passes without faults first: the measure for throughput
PLAN = Plan(
    latent_dim=4,
    generator_width=4,
    discriminator_width=4,
    batch_size=8,
    images_per_unit=16,
    quorum=16 * 8,
    iterations=1_000_000,
    max_units_per_lease=1,
    lease_seconds=3,
    deadline_floor=10,
    deadline_ceiling=20,
    checkpoint_interval=10,
)


@dataclass
class Watch:
    """Looks at the training all the time: how far it is, and how long it stood still."""

    school: FaultySchool
    iteration: int = -1
    moved: float = field(default_factory=time.monotonic)
    longest: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(0.2):
            now, number = time.monotonic(), self.school.iteration(NAME)
            if number > self.iteration:
                self.iteration, self.moved = number, now
            self.longest = max(self.longest, now - self.moved)


class Trouble:
    """Breaks something, and mends it a little later."""

    def __init__(self, school: FaultySchool, dice: random.Random, networks: dict[str, Proxy]) -> None:
        self.school, self.dice, self.networks = school, dice, networks
        self.workers = {name: self._worker(name) for name in networks}
        self.coordinators = [school.lead(NAME, PLAN) for _ in range(2)]
        self.counts: Counter[str] = Counter()
        self._later: list[tuple[float, object]] = []

    def _worker(self, name: str) -> MachineProcess:
        return self.school.worker(name, quirks=Quirks(slow=0.02), url=self.networks[name].url)

    def mend(self) -> None:
        """What is due by now."""
        due = [action for when, action in self._later if when <= time.monotonic()]
        self._later = [(when, action) for when, action in self._later if when > time.monotonic()]
        for action in due:
            action()  # ty: ignore[call-non-callable]

    def strike_worker(self) -> None:
        name, kind = (
            self.dice.choice(list(self.workers)),
            self.dice.choice(("kill -9", "sleep", "network cut", "cut in a blob")),
        )
        machine, pause = self.workers[name], self.dice.uniform(1, 6)
        self.counts[f"worker: {kind}"] += 1
        if kind == "kill -9":
            self.school.end_now(machine)
            self._later.append((time.monotonic() + pause, lambda: self.workers.update({name: self._worker(name)})))
        elif kind == "sleep" and machine.is_alive:
            machine.send(signal.SIGSTOP)
            self._later.append((time.monotonic() + pause, lambda: machine.is_alive and machine.send(signal.SIGCONT)))
        elif kind == "network cut":
            self.networks[name].cut()
        else:
            self.networks[name].cut_after(self.dice.randrange(1, 60_000))

    def strike_coordinator(self) -> None:
        self.counts["coordinator: kill -9"] += 1
        victim = self.coordinators.pop(0)  # the older one leads, unless a restart of the database has changed that
        self.school.end_now(victim)
        self.coordinators.append(self.school.lead(NAME, PLAN))

    def strike_database(self) -> None:
        self.counts["database: kill -9 and start"] += 1
        self.school.kill_database()
        self.school.postgres.start()


def faults_for(trouble: Trouble, seconds: float, watch: Watch) -> None:
    """Strike until the time is over: a worker every few seconds, a coordinator each minute, the database once."""
    began = time.monotonic()
    database_at, coordinator_at, worker_at = began + seconds / 2, began + min(60.0, seconds / 3), began
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("trouble", total=seconds)
        while (now := time.monotonic()) < began + seconds:
            trouble.mend()
            if now >= database_at:
                database_at = float("inf")
                trouble.strike_database()
            if now >= coordinator_at:
                coordinator_at += 60
                trouble.strike_coordinator()
            if now >= worker_at:
                worker_at = now + trouble.dice.uniform(1, 5)
                trouble.strike_worker()
            time.sleep(0.1)
            description = f"iteration {watch.iteration:,} · {sum(trouble.counts.values())} faults · longest stand {watch.longest:.1f} s"
            bar.update(task, completed=now - began, description=description)


def verdict(school: FaultySchool | School) -> dict[str, int]:
    """What must be zero, of every training."""
    ((lost,),) = school.ask(
        "SELECT count(*) FROM classgan.units AS u JOIN classgan.trainings AS t ON t.id = u.training_id"
        " WHERE u.iteration < t.iteration AND u.state NOT IN ('done', 'stale')"
    )
    ((twice,),) = school.ask(
        "SELECT count(*) FROM (SELECT FROM classgan.contributions WHERE verdict = 'accepted'"
        " GROUP BY training_id, iteration, first_ordinal HAVING count(*) > 1) AS doubled"
    )
    ((uncounted,),) = school.ask(
        "SELECT count(*) FROM classgan.iterations AS i JOIN classgan.trainings AS t ON t.id = i.training_id WHERE i.number < t.iteration AND"
        " i.images <> (SELECT coalesce(sum(images), 0) FROM classgan.contributions AS c"
        " WHERE c.training_id = i.training_id AND c.iteration = i.number AND c.verdict = 'accepted')"
    )
    ((gaps,),) = school.ask(
        "SELECT coalesce(sum(gaps), 0) FROM (SELECT max(number) + 1 - count(*) AS gaps FROM classgan.iterations GROUP BY training_id) AS each"
    )
    ((missing,),) = school.ask(
        "SELECT coalesce(sum(abs(t.images - (SELECT coalesce(sum(images), 0) FROM classgan.iterations AS i WHERE i.training_id = t.id))), 0)"
        " FROM classgan.trainings AS t"
    )
    ((uncredited,),) = school.ask(
        "SELECT count(*) FROM classgan.contributions WHERE verdict = 'accepted' AND NOT credited"
    )
    return {
        "units lost": lost,
        "units counted twice": twice,
        "iterations whose images don't add up": uncounted,
        "iterations missing": int(gaps),
        "images that the model has too many or too few": int(missing),
        "accepted but not credited": uncredited,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (%(default)g)")
    parser.add_argument("--workers", type=int, default=8, help="students' machines (%(default)d)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the faults (random)"
    )
    options = parser.parse_args()
    console.print(
        f"{options.workers} workers, {options.minutes:g} minutes, seed {options.seed} (repeat with --seed {options.seed})"
    )
    cache = settings().cache.resolve()
    open_images(PLAN.data, image_size=PLAN.image_size, channels=PLAN.channels, cache=cache)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True)))
        school = stack.enter_context(faulty_school(folder, cache))
        names = [f"student{n}" for n in range(options.workers)]
        networks = {name: stack.enter_context(Proxy(school.student_url(name))) for name in names}
        stack.callback(school.end)  # before the networks end
        trouble = Trouble(school, random.Random(options.seed), networks)
        wait_until(lambda: school.iteration(NAME) > 0, 120, "the first iteration")
        watch = Watch(school)
        threading.Thread(target=watch.run, daemon=True).start()

        calm, began = 60 * options.minutes * CALM, time.monotonic()
        first = school.iteration(NAME)
        console.print(f"{calm:.0f} s without faults, to compare with")
        time.sleep(calm)
        usual = (school.iteration(NAME) - first) / (time.monotonic() - began)

        first, began = watch.iteration, time.monotonic()
        faults_for(trouble, 60 * options.minutes - calm, watch)
        troubled = (watch.iteration - first) / (time.monotonic() - began)
        watch.ended.set()
        school.tell("SELECT classgan.control(id, 'paused', 'the soak test', 'over') FROM classgan.trainings")
        for machine in trouble.workers.values():
            if machine.is_alive:
                machine.send(signal.SIGCONT)
        wait_until(
            lambda: not school.ask("SELECT 1 FROM classgan.coordinators WHERE leads"), 60, "the end of the coordinator"
        )
        faults = verdict(school)
        ((given_up,),) = school.ask("SELECT count(*) FROM classgan.events WHERE kind = 'closed early'")
        ((events,),) = school.ask("SELECT count(*) FROM classgan.events")
        return report(trouble, watch, faults, usual, troubled, given_up, events)


def report(
    trouble: Trouble, watch: Watch, faults: dict[str, int], usual: float, troubled: float, given_up: int, events: int
) -> int:
    table = Table("what", "figure", title="soak", show_header=False)
    for kind, count in sorted(trouble.counts.items()):
        table.add_row(kind, str(count))
    table.add_section()
    table.add_row("iterations", f"{watch.iteration:,}")
    table.add_row("iterations a second, calm and troubled", f"{usual:.2f} and {troubled:.2f} ({troubled / usual:.0%})")
    table.add_row("longest time without progress", f"{watch.longest:.1f} s (at most {PLAN.deadline_ceiling:g} s)")
    table.add_row("iterations that closed without their whole quorum", str(given_up))
    table.add_row("sentences in the history", str(events))
    table.add_section()
    for what, count in faults.items():
        table.add_row(what, f"[red]{count}[/red]" if count else "0")
    console.print(table)
    good = not any(faults.values()) and watch.longest <= PLAN.deadline_ceiling
    console.print(
        "[green]Nothing lost, nothing twice, never at a stand.[/green]" if good else "[red]This must not be.[/red]"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
