"""From figures to sentences: what slows a training down, how long it takes, how a machine is."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gan_core.networks.models import batch_norm_discriminator, generator, size_of
from gan_core.presets import preset
from gan_core.status.throughput import flops_per_image, health, seconds_left, spoken, what_slows
from gan_core.store.viewers.watching import TimeBreakdown
from gan_core.units import Presence, TrainingState, counted

SMOOTH = TimeBreakdown(
    iterations=20,
    seconds=100,
    combining_seconds=5,
    alone_seconds=5,
    alone="Ada (laptop)",
    lease_seconds=1_000,
    compute_seconds=900,
    accepted=10_000,
    late=100,
    refused=0,
    online=10,
    busy=10,
    open=0,
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "Nothing slows it down: machines compute for 90% of the time of their leases."),
        ({"refused": 2_000}, "17% of the images in the last 20 iterations were refused"),
        ({"late": 3_000}, "23% of the images in the last 20 iterations came too late to count. `quorum: auto`"),
        ({"combining_seconds": 40}, "40% of the time in the last 20 iterations went into combining answers"),
        ({"alone_seconds": 50}, "the class waited for one straggler, most often Ada (laptop)."),
        ({"compute_seconds": 400}, "60% of the time of the leases goes into fetching weights"),
        ({"busy": 4}, "6 of 10 machines have nothing to compute, and no unit is open."),
        ({"online": 2, "busy": 1}, "1 of 2 machines has nothing to compute, and no unit is open."),
        ({"iterations": 1}, "Too early to tell: 1 closed iteration, 3 are needed."),
        ({"iterations": 2}, "Too early to tell: 2 closed iterations, 3 are needed."),
        ({"online": 0, "busy": 0}, "No machine is online"),
    ],
)
def test_each_cause_has_its_sentence_with_its_figure(change, said):
    (sentence,) = what_slows(TrainingState.RUNNING, replace(SMOOTH, **change))
    assert said in sentence


def test_the_worst_comes_first_and_units_that_wait_are_no_idleness():
    both = replace(SMOOTH, combining_seconds=30, alone_seconds=60)
    assert [sentence[:3] for sentence in what_slows(TrainingState.RUNNING, both)] == ["60%", "30%"]
    assert "Nothing slows it down" in what_slows(TrainingState.RUNNING, replace(SMOOTH, busy=2, open=5))[0]
    assert what_slows(TrainingState.PAUSED, SMOOTH) == ["It isn't running: paused."]


def test_what_is_left_is_a_range_that_follows_the_speeds():
    assert seconds_left(0.5, 1_000, [10.0] * 20) == (100.0, 100.0)
    best, worst = seconds_left(0.5, 1_000, [5.0, 10.0, 20.0] * 7)
    assert 50 <= best < 100 < worst <= 200
    assert seconds_left(0.0, 0, [10.0] * 20) is None
    assert seconds_left(0.5, 1_000, [10.0, 10.0]) is None
    assert seconds_left(1.0, 1_000, [10.0] * 20) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3_700, "1 h 1 min"), (200_000, "2 d 7 h")]
)
def test_lengths_of_time_are_said_as_people_say_them(seconds, said):
    assert spoken(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 machines"), (1, "1 machine"), (2, "2 machines"), (1_000, "1,000 machines")]
)
def test_one_is_not_said_as_many(count, said):
    assert counted(count, "machine") == said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((Presence.ONLINE, 2, 0, 0, ""), "ready, waits for units"),
        ((Presence.ONLINE, 2, 1, 75, ""), "computes 1 unit for 1 min 15 s now"),
        ((Presence.OFFLINE, 7_200, 3, 7_200, ""), "silent for 2 h; its units go to others"),
        (
            (Presence.ONLINE, 2, 0, 0, "another worker's answer for the same units came first"),
            "another machine was faster",
        ),
        ((Presence.ONLINE, 2, 0, 0, "iteration 12 closed before this answer came"), "just after its iteration closed"),
        ((Presence.ONLINE, 2, 0, 0, "no batch was finished for 61 s"), "was stuck, and gave its units back"),
        ((Presence.ONLINE, 2, 0, 0, "disk is full."), "could not finish its last units: disk is full"),
    ],
)
def test_a_machines_health_is_said_in_plain_words(facts, said):
    assert said in health(*facts)


@pytest.mark.parametrize(
    "seconds", [(59.9, "online"), (60, "idle"), (299, "idle"), (300, "offline"), (None, "offline")]
)
def test_presence_follows_the_last_sign_of_life(seconds):
    assert Presence.of(seconds[0]) == seconds[1]


@pytest.mark.parametrize("name", ["demo", "dcgan"])
def test_operations_are_counted_as_pytorch_counts_them(name):
    """A forward pass of each network, by PyTorch's own counter."""
    plan = preset(name)
    of_d = forward(batch_norm_discriminator(size_of(plan)), 1, plan.channels, plan.image_size, plan.image_size)
    of_g = forward(generator(size_of(plan)), 1, plan.latent_dim, 1, 1)
    assert flops_per_image(plan) == 8 * of_d + 4 * of_g


def forward(network: torch.nn.Module, *shape: int) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        network.eval()(torch.zeros(shape))
    return counted.get_total_flops()
