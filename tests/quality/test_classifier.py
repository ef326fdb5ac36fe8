"""The Frechet distance: zero for the same, small for real digits, large for noise."""

import numpy as np
import pytest
import torch

from gan_core.data.images import ImageSet
from gan_core.errors import QualityError
from gan_core.quality.classifier import frechet_distance, train_evaluator


def test_the_distance_of_gaussians_is_the_textbooks():
    """For covariances that commute: |difference of means|² + sum of (σ_a - σ_b)²."""
    zero, one = np.zeros(3), np.eye(3)
    assert frechet_distance(zero, one, zero, one) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(zero, one, zero + 2, one) == pytest.approx(12)
    assert frechet_distance(zero, 4 * one, zero, 9 * one) == pytest.approx(3)


@pytest.mark.slow
def test_real_digits_are_near_and_noise_is_far(digits):
    evaluator = train_evaluator(digits)
    real = evaluator.distance(digits.batch(np.arange(0, 5000, 2)))
    noise = evaluator.distance(torch.rand(500, 1, 32, 32) * 2 - 1)
    one_digit = evaluator.distance(digits.batch(np.flatnonzero(digits.labels == 3)))
    assert real < 3
    assert one_digit > 50  # good pictures, but one kind only
    assert noise > 500


def test_without_labels_it_says_what_it_needs(digits):
    bare = ImageSet("folder:x", digits.pixels, None, "", ())
    with pytest.raises(QualityError, match="one folder for each class"):
        train_evaluator(bare)
