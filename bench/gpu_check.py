"""`make gpu-check`: does this machine's GPU compute the right numbers for a class, how fast, and what happens when it is full?

For whoever has one: at most eight minutes, a table and a JSON. On a machine without one it goes through the same steps on the
CPU under another name (`cpu:1`), which only shows that the script works.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from rich.console import Console

from bench.gpu_speed import plan_for, speeds
from bench.measure import Disturbance, warm_up
from bench.report import Judgement, Row, Section, machine, print_section, print_summary, write_json
from bench.school import School, school
from bench.trial import Fault, on_memory, section_tried, tried
from gan_core.coordinator.checker import Checker
from gan_core.devices.hardware import CPU, TOO_SMALL, choices, is_device
from gan_core.errors import StackError
from gan_core.layout import Vectors
from gan_core.networks.models import Networks
from gan_core.networks.self_test import fault_of
from gan_core.plan import Plan
from gan_core.presets import PRESETS, preset
from gan_core.store.engine import connect
from gan_core.worker.device_choice import DeviceChoice

UNDER_ANOTHER_NAME = "cpu:1"
ROUNDS = 10  # of the class of two
NO_DATABASE = (StackError, OSError, subprocess.SubprocessError)  # what a machine without PostgreSQL raises


def self_tests(device: str, small: bool) -> Section:
    """Every preset in every precision against the CPU, by the rule that credit is judged by."""
    rows, tries = [], []
    for name in PRESETS:
        for precision in ("float32", "mixed"):
            plan, label = plan_for(name, small, precision=precision), f"{name}, {precision}"
            found = tried(device, lambda plan=plan, label=label: _self_test(plan, label, device))
            rows.append(found.row(label, 2) if isinstance(found, Fault) else found)
            tries.append(found)
    return Section(
        name="self-test",
        title=f"{device} against the CPU, as before a machine's first lease",
        columns=("what it computes", "s"),
        ratio="",
        rows=tuple(rows),
        notes=on_memory(tries),
    )


def _self_test(plan: Plan, label: str, device: str) -> Row:
    started = time.perf_counter()
    fault = fault_of(plan, Networks(plan, device))
    seconds = time.perf_counter() - started
    return Row(
        label=label,
        cells=(fault or "the same numbers", f"{seconds:.1f}"),
        figures={"seconds": seconds, "faults": float(bool(fault))},
        judgement=Judgement("no fault", not fault),
    )


def full_memory(device: str, small: bool) -> Section:
    """A training that doesn't fit: the machine goes on with its CPU, and says why."""
    plan, choice = plan_for("dcgan", small), DeviceChoice(device)
    with _no_memory(device):
        choice.fit(plan, lambda: None)
    # By the very sentence: other faults speak of memory, too, such as an illegal access to it.
    went_on, why = choice.device == CPU and TOO_SMALL in choice.why, choice.why
    choice.fit(plan, lambda: None, another=True)
    works_again = choice.device == device
    return Section(
        name="memory",
        title="out of memory, and afterwards",
        columns=("what it said",),
        ratio="",
        rows=(
            Row(
                label="too small",
                cells=(why,),
                figures={"met": float(went_on)},
                judgement=Judgement("the CPU takes over", went_on),
            ),
            Row(
                label="large enough again",
                cells=(choice.why or f"computes on {choice.device}",),
                figures={"met": float(works_again)},
                judgement=Judgement("used again", works_again),
            ),
        ),
    )


@contextmanager
def _no_memory(device: str) -> Generator[None]:
    """The device has next to none while this holds. Only CUDA's can be limited; elsewhere its error is raised instead."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-4, torch.device(device))
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, torch.device(device))
        return

    def full(*_: object, **__: object) -> tuple[Vectors, object]:
        raise torch.OutOfMemoryError("out of memory")

    with patch("gan_core.networks.self_test.contribute", full):
        yield


def class_of_two(device: str, small: bool) -> Section:
    """Ten rounds of a CPU and of this device together; every contribution is recomputed on the CPU."""
    plan = preset("demo").changed(quorum=2 * 625, max_units_per_lease=1, iterations=ROUNDS, backup_leases=False)
    if small:
        plan = plan.changed(images_per_unit=160, quorum=320, generator_width=8, discriminator_width=8)
    with ExitStack() as stack:
        try:
            room = stack.enter_context(school())
        except NO_DATABASE as exc:
            return _left_out(exc)
        with room.leader("together", plan) as leader, room.workers(CPU), room.workers("gpu", device=device):
            for _ in range(ROUNDS):
                leader.ask("open")
                leader.ask("close")
                _check_all(room)
        return _together(room, device)


def _left_out(why: Exception) -> Section:
    return Section(
        name="class",
        title="left out: no PostgreSQL runs here",
        columns=(),
        ratio="",
        rows=(),
        notes=(f"A class needs one, and a student's machine doesn't: the device was tested all the same. {why}",),
    )


def _check_all(room: School) -> None:
    with connect(room.url) as connection:
        row = connection.execute("SELECT id FROM classgan.trainings").fetchone()
    assert row is not None
    checker = Checker(room.url, row[0], cache=room.cache, device=CPU)
    try:
        while checker.check_next():
            pass
    finally:
        checker.close()


def _together(room: School, device: str) -> Section:
    with connect(room.url) as connection:
        counted = connection.execute(
            "SELECT w.name, w.device, count(*), sum(l.images)::bigint, count(*) FILTER (WHERE k.valid), count(*) FILTER (WHERE NOT k.valid)"
            " FROM classgan.contributions AS c JOIN classgan.workers AS w ON w.id = c.worker_id JOIN classgan.leases AS l ON l.id = c.lease_id"
            " LEFT JOIN classgan.checks AS k ON k.contribution_id = c.id GROUP BY 1, 2 ORDER BY 1"
        ).fetchall()
    return Section(
        name="class",
        title=f"{ROUNDS} rounds of two students, one on the CPU and one on {device}",
        columns=("computed on", "contributions", "images", "found valid", "found invalid"),
        ratio="",
        rows=tuple(
            Row(
                label=device if name == "gpu" else name,
                cells=(used, *(f"{value:,}" for value in values)),
                figures=dict(zip(("contributions", "images", "valid", "invalid"), map(float, values), strict=True)),
                # A device that has given way to the CPU has shown nothing.
                judgement=Judgement("on it, none invalid", used == wanted and not values[-1]),
            )
            for name, used, *values in counted
            for wanted in (device if name == "gpu" else CPU,)
        ),
    )


SECTIONS: Mapping[str, Callable[[str, bool], Section]] = {
    "self-test": self_tests,
    "speed": speeds,
    "memory": full_memory,
    "class": class_of_two,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make gpu-check",
        description="Whether this machine's GPU computes the right numbers for a class, how fast, and what happens when it is full.",
    )
    parser.add_argument(
        "--device", default="", help="cuda:1, mps, ... (the best one here; without one, the CPU under another name)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    asked, console = parser.parse_args(), Console()
    if odd := [name for name in choices(asked.device) if not is_device(name)]:
        parser.error(f"{odd[0]} is no device that PyTorch knows: cuda:0, cuda:1, mps, cpu")
    device = choices(asked.device)[0]
    device = UNDER_ANOTHER_NAME if device == CPU else device
    small = device.startswith("cpu")
    where = f"{_name_of(device)}; {machine()}"
    console.print(f"{where}.", highlight=False)
    if small:
        console.print(
            "There is no GPU here: this run shows that the script works, and its speeds say nothing.", style="yellow"
        )
    warm_up()
    sections, disturbance = [], Disturbance()
    if asked.json:
        try:
            # An earlier one stays until there is something new.
            if not asked.json.is_file() or not os.access(asked.json, os.W_OK):
                write_json(asked.json, sections, where)  # now: what can't be written would be seen after minutes
        except OSError as exc:
            parser.error(f"{asked.json} can't be written: {exc.strerror}. Give --json a file in a folder of yours.")
    for name, measure in SECTIONS.items():
        with console.status(f"{name} ..."):
            sections.append(section_tried(name, measure, device, small))
        print_section(sections[-1], console)
        if asked.json:
            write_json(asked.json, sections, where)  # each time: whatever ends this, the earlier sections are there
    console.print(disturbance.sentence(), style="dim", highlight=False)
    print_summary(sections, console)
    return any(row.judgement and not row.judgement.met for section in sections for row in section.rows)


def _name_of(device: str) -> str:
    """What its maker calls it."""
    name = tried(device, lambda: torch.cuda.get_device_name(device)) if device.startswith("cuda") else device
    return name if isinstance(name, str) else device  # the sections say what is wrong with it


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # either ends the database and the children in good order
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: if you asked for a JSON, it has the sections that were finished.")
