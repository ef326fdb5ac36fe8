"""Quality figures without a download: other real images are near, what lacks variety is found out, and in words."""

import numpy as np
import pytest
import torch
from torch import nn

from gan_core.data.images import ImageSet
from gan_core.quality import scores
from gan_core.quality.scores import SAMPLES, Evaluator
from gan_core.store.coordinator.evaluations import Evaluation, collapse


@pytest.fixture(scope="module")
def evaluator(digits) -> Evaluator:
    return Evaluator(digits)


@pytest.fixture(scope="module")
def others(digits) -> torch.Tensor:
    """As many real digits as a figure takes, drawn without the evaluator's seed."""
    return digits.batch(np.random.default_rng(1).permutation(len(digits))[:SAMPLES])


@pytest.mark.slow
def test_other_real_images_are_near_and_as_varied(evaluator, others):
    real = evaluator.scores(others)
    assert real.frechet < 8
    assert real.wasserstein < 20
    assert 0.9 < real.diversity < 1.1
    assert real.coverage > 0.9


def test_noise_is_far(evaluator):
    noise = evaluator.scores(torch.rand(256, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1)
    assert noise.frechet > 300
    assert noise.wasserstein > 100
    assert noise.coverage < 0.05


def test_ten_images_again_and_again_lack_diversity(evaluator, digits):
    ten = digits.batch(np.arange(0, 5_000, 500)).repeat(50, 1, 1, 1)
    copies = ten + 0.05 * torch.randn(ten.shape, generator=torch.Generator().manual_seed(0))
    assert evaluator.scores(copies.clamp(-1, 1)).diversity < 0.3


def test_one_kind_only_lacks_coverage(evaluator, digits):
    threes = evaluator.scores(digits.batch(np.flatnonzero(digits.labels == 3)))
    assert threes.coverage < 0.5
    assert threes.diversity > 0.9  # good and different, but threes


def test_the_same_figures_at_every_call_and_the_programs_random_state_stays(digits, others):
    few = ImageSet("few", digits.pixels[:200], None, "", ())
    before = torch.random.get_rng_state()
    assert Evaluator(few).scores(others[:100]) == Evaluator(few).scores(others[:100])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_images_in_colour_and_of_other_sizes():
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 64, 3), dtype=np.uint8)
    images = ImageSet("noise", pixels, None, "", ())
    assert Evaluator(images).scores(images.batch(range(64))).frechet == pytest.approx(0, abs=1e-3)


def test_fid_is_left_out_where_its_weights_are_not(evaluator, others, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert scores.inception_net() is None
    assert evaluator.scores(others[:64]).fid is None


@pytest.mark.slow  # importing torchmetrics takes seconds
def test_fid_is_measured_where_a_net_is_there(digits, others, monkeypatch):
    """With a small net in Inception's place: what is tested is that torchmetrics gets what it wants."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    net.num_features = 12
    monkeypatch.setattr(scores, "inception_net", lambda: net)
    evaluator = Evaluator(digits)
    assert evaluator.scores(others).fid < 0.1
    assert evaluator.scores(-others).fid > 1


def evaluation(iteration: int, diversity: float, coverage: float) -> Evaluation:
    return Evaluation(
        iteration=iteration,
        images=0,
        seconds=0,
        took=0,
        protocol="",
        frechet=1,
        wasserstein=1,
        diversity=diversity,
        coverage=coverage,
        fid=None,
    )


@pytest.mark.parametrize(
    ("figures_", "warning"),
    [
        ([], ""),
        ([(0.0, 0.0)], ""),  # one grey image at the beginning: nothing was lost
        ([(0.0, 0.0), (0.4, 0.3), (0.8, 0.6)], ""),
        ([(0.8, 0.6), (0.7, 0.5)], ""),
        ([(0.8, 0.6), (0.1, 0.5)], "many samples are nearly the same image (diversity 10%, it was 80%)"),
        ([(0.8, 0.6), (0.7, 0.1)], "whole kinds of images are missing among the samples (coverage 10%, it was 60%)"),
    ],
    ids=["none yet", "just begun", "growing", "a little less", "copies", "missing kinds"],
)
def test_a_collapse_is_told_in_words(figures_, warning):
    said = collapse([evaluation(n, *pair) for n, pair in enumerate(figures_)])
    assert (warning in said) if warning else (said == "")
