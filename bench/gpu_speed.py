"""How fast a device goes through a lease, beside the recorded steps alone; a part of `make gpu-check`."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch

from bench.measure import interleaved, median, ratio, seconds_of
from bench.report import Row, Section, at_least
from bench.trial import Fault, on_memory, tried
from gan_core.data.images import ImageSet
from gan_core.devices import captured
from gan_core.devices.captured import is_recorded
from gan_core.networks import gradients
from gan_core.networks.gradients import Walk, contribute
from gan_core.networks.inputs import Batch, batches
from gan_core.networks.models import Networks, initial_weights
from gan_core.plan import Plan
from gan_core.presets import preset
from gan_core.units import WorkUnit

OF_THE_BARE_LOOP = 0.9  # the target
BATCHES = (32, 128)
SECONDS = 2.0  # that one measurement takes, about
SMALL = {"generator_width": 8, "discriminator_width": 8, "batch_size": 8}  # where the figures say nothing anyway


def plan_for(name: str, small: bool, **more: object) -> Plan:
    """A preset, changed. What sizes have to do with each other in a class doesn't matter here."""
    return preset(name).model_copy(update={**(SMALL if small else {}), **more})


def speeds(device: str, small: bool) -> Section:
    """Images a second of a lease, with steps started kernel by kernel and recorded, against the recorded steps alone."""
    rows, tries = [], []
    for name in ("dcgan", "better"):
        for size in (8,) if small else BATCHES:
            plan = plan_for(name, small, batch_size=size, contribution="local_steps")
            label = f"{name}, batch {size}"
            found = tried(device, lambda plan=plan, label=label: _measured(plan, label, device, small))
            rows += [found.row(label, 1)] if isinstance(found, Fault) else found
            tries.append(found)
    return Section(
        name="speed",
        title=f"a lease of local steps on {device}",
        columns=("images/s",),
        ratio="speed",
        rows=tuple(rows),
        notes=(
            "The bare loop takes the same step with the same batch again and again: nothing is read, drawn, copied or encoded. "
            "Where steps are recorded, it only plays the recording again.",
            *(
                []
                if device.startswith("cuda")
                else ["Steps are recorded on NVIDIA's GPUs only: here a lease starts kernel by kernel, too."]
            ),
            *on_memory(tries),
        ),
    )


def _measured(plan: Plan, label: str, device: str, small: bool) -> list[Row]:
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
        with bare_step(walk, batch) as step:

            def loop(count: int) -> None:
                for _ in range(count):
                    step()
                float(walk.sums[0])  # waits until it is done

            loop(1)
            return steps * plan.batch_size / seconds_of(lambda: loop(steps))

    variants: Mapping[str, Callable[[], float]] = {
        "bare loop": bare,
        "kernel by kernel": kernel_by_kernel,
        "lease": lease,
    }
    found = interleaved(variants, 1 if small else 3)
    rows = []
    for name, values in found.items():
        share = ratio(values, found["bare loop"])
        judged = at_least(share, OF_THE_BARE_LOOP) if name == "lease" and device.startswith("cuda") else None
        rows.append(
            Row(
                label=f"{label}: {name}",
                cells=(f"{median(values):,.0f}",),
                figures={"images_per_second": median(values)},
                ratio=share,
                judgement=judged,
            )
        )
    return rows


@contextmanager
def bare_step(walk: Walk, batch: Batch) -> Generator[Callable[[], None]]:
    """One step with this batch, and nothing else. `walk.take` would copy the batch and keep pace at each step: as a baseline it
    would take from the loop what a lease takes, too.
    """
    device = walk.networks.device
    recorded = walk._run._graphs[len(batch)] if is_recorded(device) else None
    if recorded is None:  # no device for it, or one on which recording fails
        yield lambda: walk.take(batch)
        return
    graph, held = recorded
    for mine, given in zip(held, batch.tensors(), strict=True):
        mine.copy_(given)
    with torch.cuda.device(device):
        yield graph.replay


def _never(device: torch.device) -> bool:
    return False


def _noise(plan: Plan) -> ImageSet:
    shape = (256, plan.image_size, plan.image_size, plan.channels)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return ImageSet(name="noise", pixels=pixels, labels=None, fingerprint="", skipped=())


def _unit(images: int) -> WorkUnit:
    return WorkUnit(ordinal=0, epoch=0, indices=tuple(i % 256 for i in range(images)), seed=0)
