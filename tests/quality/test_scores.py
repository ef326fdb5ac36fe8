"""Quality figures without a download: other real images are near, what lacks variety is found out, and in words."""

import numpy as np
import pytest
import torch
from torch import nn

from gan_core.data.images import ImageSet
from gan_core.networks.update import initial_state
from gan_core.quality import fid, scores
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
    assert real.kid < 5 * real.kid_error  # below 0, since they share some images
    assert real.wasserstein < 20
    assert 0.9 < real.diversity < 1.1
    assert real.coverage > 0.9


def test_noise_is_far(evaluator):
    noise = evaluator.scores(torch.rand(256, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1)
    assert noise.frechet > 300
    assert noise.kid > 10 * noise.kid_error
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


def test_fid_is_left_out_where_its_weights_are_not(digits, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert fid.inception_net() is None
    assert Evaluator(digits).fid is None


def test_the_word_fid_is_not_said_of_fewer_than_ten_thousand(digits, monkeypatch):
    monkeypatch.setattr(fid, "inception_net", lambda: pytest.fail("a net for 5,000 digits"))
    assert fid.SAMPLES == 10_000
    assert fid.fid_for(digits) is None


@pytest.mark.slow  # importing torchmetrics takes seconds
def test_fid_is_measured_where_a_net_and_enough_images_are(digits, tiny, monkeypatch):
    """With a small net in Inception's place: what is tested is that torchmetrics gets what it wants."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    net.num_features = 12
    monkeypatch.setattr(fid, "inception_net", lambda: net)
    monkeypatch.setattr(fid, "SAMPLES", 1_024)
    evaluator = Evaluator(digits)
    other = digits.batch(np.random.default_rng(1).permutation(5_000)[:1_024])
    assert evaluator.fid.of(other.split(64)) < 0.1
    assert evaluator.fid.of((-other).split(64)) > 1
    assert evaluator.fid.of(other.split(64)) < 0.1  # nothing is left of the ones before
    assert scores.scores_of(tiny, initial_state(tiny).average, evaluator).fid > 1


def evaluation(iteration: int, diversity: float, coverage: float, **more: float) -> Evaluation:
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
        **more,
    )


def test_kid_stands_beside_the_distance_with_its_error_and_old_rows_can_be_read():
    said = evaluation(3, 1, 1, kid=0.0123, kid_error=0.0012).sentence()
    assert "random-feature distance 1.0, KID 0.012 ± 0.001, Wasserstein" in said
    assert "FID" not in said
    old = evaluation(3, 1, 1, inception_distance=88.0)
    assert "distance 1.0, Wasserstein 1.0, Inception distance 88.0 (1,024 samples), diversity" in old.sentence()
    assert "FID" not in old.sentence()
    assert "FID 7.0" in evaluation(3, 1, 1, fid=7.0).sentence()


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
