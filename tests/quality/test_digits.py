"""The digit distance: small for real digits, large for noise, from a net that is the same on every machine."""

import numpy as np
import pytest
import torch

from bench.digits_net import trained, uci_digits, varied
from gan_core.data.images import ImageSet, open_images
from gan_core.errors import QualityError
from gan_core.quality.digits import FEATURES, NET, PERFECT, DigitsEvaluator, DigitsNet, digits_net, features_of


@pytest.fixture(scope="module")
def evaluator(digits) -> DigitsEvaluator:
    return DigitsEvaluator(digits)


def test_real_digits_are_near_and_noise_is_far(evaluator, digits):
    half = evaluator.distance(digits.batch(np.arange(0, 5_000, 2)))
    noise = evaluator.distance(torch.rand(500, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1)
    one_digit = evaluator.distance(digits.batch(np.flatnonzero(digits.labels == 3)))
    assert half.frechet < PERFECT
    assert half.kid < 0.1
    assert one_digit.frechet > 10 * PERFECT  # good pictures, but one kind only
    assert noise.frechet > one_digit.frechet
    assert one_digit.kid > 10 * one_digit.kid_error


def test_digits_of_another_size_and_in_colour_are_measured_as_the_same(evaluator, digits, cache):
    large = open_images("digits", image_size=64, channels=3, cache=cache)
    few = np.arange(0, 5_000, 10)
    assert np.corrcoef(features_of(large.batch(few)).ravel(), features_of(digits.batch(few)).ravel())[0, 1] > 0.98


def test_other_data_is_refused(digits):
    with pytest.raises(QualityError, match="The digit distance is for the data `digits`, and this is folder:x"):
        DigitsEvaluator(ImageSet("folder:x", digits.pixels, None, "", ()))


def test_the_net_is_small_and_loading_it_leaves_the_programs_random_state():
    before = torch.random.get_rng_state()
    digits_net.cache_clear()
    digits_net()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert NET.stat().st_size < 300_000


def test_the_net_knows_digits_that_it_was_not_trained_on(digits):
    """Of MNIST it has seen none; a guess would be right on a tenth."""
    with torch.no_grad():
        guessed = torch.cat([digits_net()(batch).argmax(1) for batch in digits.batch(np.arange(5_000)).split(500)])
    assert (guessed.numpy() == digits.labels).mean() > 0.6


@pytest.mark.slow  # trains the net
def test_the_net_is_what_its_script_makes():
    """Bit for bit can't be promised: another machine rounds differently. It is computed in 64 bits and stored in 16, so
    that rounding all but disappears; what the two nets say of the same digits must agree.
    """
    made = DigitsNet()
    made.load_state_dict({name: tensor.float() for name, tensor in trained().items()})
    examples, labels = uci_digits()
    seen = varied(examples, torch.Generator().manual_seed(1)).float()
    with torch.no_grad():
        ours, theirs = digits_net()(seen), made(seen)
        features = digits_net().features(seen), made.features(seen)
    assert (ours.argmax(1) == theirs.argmax(1)).float().mean() > 0.99
    assert (ours.argmax(1) == labels).float().mean() > 0.9
    assert torch.nn.functional.cosine_similarity(*features).mean() > 0.99
    assert features[0].shape == (len(labels), FEATURES)
