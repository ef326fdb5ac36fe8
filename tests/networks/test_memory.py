"""What one step takes is found with small batches: all of the networks, and for each image what is kept of it."""

import subprocess
import sys

import pytest
from torch import Tensor, zeros

from gan_core.layout import PARTS
from gan_core.networks import memory
from gan_core.networks.memory import step_bytes
from gan_core.networks.models import layout_of
from gan_core.presets import PRESETS

SMALL = {"image_size": 32, "generator_width": 16, "discriminator_width": 16}


CASES = [
    PRESETS["dcgan"].changed(**SMALL),
    PRESETS["better"].changed(**SMALL),
    PRESETS["demo"].changed(
        generator_width=128, discriminator_width=8
    ),  # with small batches, Adam's memory is the most
]


@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("plan", CASES, ids=["dcgan", "better", "wide"])
def test_two_small_batches_say_what_a_large_one_takes(plan, precision):
    plan = plan.changed(batch_size=96, images_per_unit=480, precision=precision)
    assert step_bytes(plan) == pytest.approx(max(memory._course(plan, 96)), rel=0.01)


def test_what_ran_before_makes_no_difference():
    """A fresh process: nothing is cached there."""
    code = "from gan_core.networks.memory import step_bytes; from gan_core.presets import PRESETS; print(step_bytes(PRESETS['demo']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == step_bytes(PRESETS["demo"])


def test_the_step_that_counts_is_that_of_the_largest_batch():
    """625 images in batches of 512 are one batch."""
    plan = PRESETS["demo"].changed(batch_size=512, images_per_unit=625)
    assert step_bytes(plan) > step_bytes(PRESETS["demo"].changed(batch_size=512, images_per_unit=1_024))


def test_a_device_that_computes_in_bfloat16_needs_less_and_is_not_refused_for_what_another_needs():
    plan = PRESETS["better"].changed(batch_size=128, images_per_unit=640, **SMALL)
    assert step_bytes(plan.changed(precision="mixed")) < 0.8 * step_bytes(plan.changed(precision="float32"))


@pytest.mark.parametrize(("name", "copies"), [("dcgan", 3), ("better", 4)])
def test_a_step_takes_weights_gradients_and_what_is_summed_or_remembered(name, copies):
    """Averaged gradients: weights, the last gradients, their sum. Local steps: weights, gradients, Adam's two moments."""
    layout = layout_of(plan := PRESETS[name].changed(batch_size=2, images_per_unit=2, precision="float32", **SMALL))
    weights = 4 * sum(layout.part(part)[-1].stop for part in PARTS)
    assert copies * weights < step_bytes(plan) < (copies + 2) * weights


def test_a_view_takes_nothing_and_what_is_freed_is_gone():
    with memory._Alive() as alive:
        first = zeros(256)
        kept: list[Tensor] = [first.view(16, 16), first[1:]]
        for _ in range(3):
            zeros(1024).add_(1)
    assert (alive.course, len(kept)) == ([4 * 256, *[4 * (256 + 1024)] * 3], 2)
