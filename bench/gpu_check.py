"""`make gpu-check`: does this machine's GPU compute the right numbers for a class, how fast, and what happens when it is full?

For whoever has one: at most eight minutes, a table and a JSON. On a machine without one it goes through the same steps on the
CPU under another name (`cpu:1`), which only shows that the script works.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console

from bench.measure import Disturbance, interleaved, median, ratio, warm_up
from bench.report import Judgement, Row, Section, at_least, at_most, machine, print_section, print_summary, write_json
from bench.school import School, school
from gan_core.coordinator.checker import Checker
from gan_core.data.images import ImageSet
from gan_core.devices import captured
from gan_core.devices.hardware import CPU, choices
from gan_core.layout import Vectors
from gan_core.networks import gradients
from gan_core.networks.gradients import Walk, contribute
from gan_core.networks.inputs import batches
from gan_core.networks.models import Networks, initial_weights
from gan_core.networks.self_test import fault_of
from gan_core.plan import Plan
from gan_core.presets import PRESETS, preset
from gan_core.store.engine import connect
from gan_core.units import WorkUnit
from gan_core.worker.device_choice import DeviceChoice

UNDER_ANOTHER_NAME = "cpu:1"
OF_THE_BARE_LOOP = 0.9  # the target
BATCHES = (32, 128)
SECONDS = 2.0  # that one measurement of speed takes, about
ROUNDS = 10  # of the class of two
SMALL = {"generator_width": 8, "discriminator_width": 8}  # where the figures say nothing anyway


def self_tests(device: str, small: bool) -> Section:
    """Every preset in every precision against the CPU, by the rule that credit is judged by."""
    rows = []
    for name in PRESETS:
        for precision in ("float32", "mixed"):
            plan = _plan(name, small, precision=precision)
            started = time.perf_counter()
            fault = fault_of(plan, Networks(plan, device))
            seconds = time.perf_counter() - started
            rows.append(
                Row(
                    label=f"{name}, {precision}",
                    cells=(fault or "the same numbers", f"{seconds:.1f}"),
                    figures={"seconds": seconds, "faults": float(bool(fault))},
                    judgement=Judgement("no fault", not fault),
                )
            )
    return Section(
        name="self-test",
        title=f"{device} against the CPU, as before a machine's first lease",
        columns=("what it computes", "s"),
        ratio="",
        rows=tuple(rows),
    )


def speeds(device: str, small: bool) -> Section:
    """Images a second of a lease, with steps started kernel by kernel and recorded, against the recorded steps alone."""
    rows = []
    for name in ("dcgan", "better"):
        for size in (8,) if small else BATCHES:
            rows += _speed_rows(_plan(name, small, batch_size=size, contribution="local_steps"), name, device, small)
    return Section(
        name="speed",
        title=f"a lease of local steps on {device}",
        columns=("images/s",),
        ratio="speed",
        rows=tuple(rows),
        notes=(
            "The bare loop takes the same step with the same batch again and again: nothing is read, drawn, copied or encoded.",
            *(
                []
                if device.startswith("cuda")
                else ["Steps are recorded on NVIDIA's GPUs only: here the first two are the same."]
            ),
        ),
    )


def _speed_rows(plan: Plan, name: str, device: str, small: bool) -> list[Row]:
    networks, weights, images = Networks(plan, device), initial_weights(plan), _noise(plan)
    trial = _unit(4 * plan.batch_size)
    contribute(plan, networks, images, (trial,), weights)  # the first one chooses kernels
    _, measures = contribute(plan, networks, images, (trial,), weights)
    steps = 4 if small else max(4, int(SECONDS * measures.images / measures.seconds) // plan.batch_size)
    unit = _unit(steps * plan.batch_size)

    def lease() -> float:
        _, measures = contribute(plan, networks, images, (unit,), weights)
        return measures.images / measures.seconds

    def kernel_by_kernel() -> float:
        with patch.object(captured, "is_recorded", _never), patch.object(gradients, "is_recorded", _never):
            return lease()

    def bare() -> float:
        walk = Walk.over(plan, networks, (unit,))
        networks.load(weights)
        (batch, *_) = batches(plan, images, _unit(plan.batch_size), networks.device)
        walk.take(batch)
        float(walk.sums[0])  # waits until it is done
        started = time.perf_counter()
        for _ in range(steps):
            walk.take(batch)
        float(walk.sums[0])
        return steps * plan.batch_size / (time.perf_counter() - started)

    variants: Mapping[str, Callable[[], float]] = {
        "bare loop": bare,
        "kernel by kernel": kernel_by_kernel,
        "lease": lease,
    }
    found = interleaved(variants, 1 if small else 3)
    rows = []
    for label, values in found.items():
        share = ratio(values, found["bare loop"])
        judged = at_least(share, OF_THE_BARE_LOOP) if label == "lease" and device.startswith("cuda") else None
        rows.append(
            Row(
                label=f"{name}, batch {plan.batch_size}: {label}",
                cells=(f"{median(values):,.0f}",),
                figures={"images_per_second": median(values)},
                ratio=share,
                judgement=judged,
            )
        )
    return rows


def _never(device: torch.device) -> bool:
    return False


def full_memory(device: str, small: bool) -> Section:
    """A training that doesn't fit: the machine goes on with its CPU, and says why."""
    plan, choice = _plan("dcgan", small), DeviceChoice(device)
    with _no_memory(device):
        choice.fit(plan, lambda: None)
    went_on, why = choice.device == CPU and "memory" in choice.why, choice.why
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
    plan = preset("demo").changed(quorum=2 * 625, max_units_per_lease=1, iterations=ROUNDS)
    if small:
        plan = plan.changed(images_per_unit=160, quorum=320, generator_width=8, discriminator_width=8)
    with school() as room:
        with room.leader("together", plan) as leader, room.workers(CPU), room.workers("gpu", device=device):
            for _ in range(ROUNDS):
                leader.ask("open")
                leader.ask("close")
                _check_all(room)
        return _together(room, device)


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
            "SELECT w.name, count(*), sum(l.images)::bigint, count(*) FILTER (WHERE k.valid), count(*) FILTER (WHERE NOT k.valid)"
            " FROM classgan.contributions AS c JOIN classgan.workers AS w ON w.id = c.worker_id JOIN classgan.leases AS l ON l.id = c.lease_id"
            " LEFT JOIN classgan.checks AS k ON k.contribution_id = c.id GROUP BY 1 ORDER BY 1"
        ).fetchall()
    return Section(
        name="class",
        title=f"{ROUNDS} rounds of two students, one on the CPU and one on {device}",
        columns=("contributions", "images", "found valid", "found invalid"),
        ratio="",
        rows=tuple(
            Row(
                label=device if name == "gpu" else name,
                cells=tuple(f"{value:,}" for value in values),
                figures=dict(zip(("contributions", "images", "valid", "invalid"), map(float, values), strict=True)),
                judgement=at_most(values[-1], 0, "invalid"),
            )
            for name, *values in counted
        ),
    )


def _plan(name: str, small: bool, **more: object) -> Plan:
    values = {**(SMALL if small else {}), **({"batch_size": 8} if small else {}), **more}
    return preset(name).model_copy(
        update=values
    )  # what sizes have to do with each other in a class doesn't matter here


def _noise(plan: Plan) -> ImageSet:
    shape = (256, plan.image_size, plan.image_size, plan.channels)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return ImageSet(name="noise", pixels=pixels, labels=None, fingerprint="", skipped=())


def _unit(images: int) -> WorkUnit:
    return WorkUnit(ordinal=0, epoch=0, indices=tuple(i % 256 for i in range(images)), seed=0)


SECTIONS: Mapping[str, Callable[[str, bool], Section]] = {
    "self-test": self_tests,
    "speed": speeds,
    "memory": full_memory,
    "a class of two": class_of_two,
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
    device = choices(asked.device)[0]
    device = UNDER_ANOTHER_NAME if device == CPU else device
    small = device.startswith("cpu")
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    console.print(f"{name}; {machine()}.", highlight=False)
    if small:
        console.print(
            "There is no GPU here: this run shows that the script works, and its speeds say nothing.", style="yellow"
        )
    warm_up()
    sections, disturbance = [], Disturbance()
    for name, measure in SECTIONS.items():
        with console.status(f"{name} ..."):
            sections.append(measure(device, small))
        print_section(sections[-1], console)
    console.print(disturbance.sentence(), style="dim", highlight=False)
    print_summary(sections, console)
    if asked.json:
        write_json(asked.json, sections)
    return any(row.judgement and not row.judgement.met for section in sections for row in section.rows)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # either ends the database and the children in good order
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted: no figures were written.")
