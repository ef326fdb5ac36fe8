"""Distances between sets of features, where the right value is known."""

import numpy as np
import pytest

from gan_core.quality.distances import ROWS, frechet_distance, kernel_distance


def test_the_frechet_distance_of_gaussians_is_the_textbooks():
    """For covariances that commute: |difference of means|² + sum of (σ_a - σ_b)²."""
    zero, one = np.zeros(3), np.eye(3)
    assert frechet_distance(zero, one, zero, one) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(zero, one, zero + 2, one) == pytest.approx(12)
    assert frechet_distance(zero, 4 * one, zero, 9 * one) == pytest.approx(3)


def naive(x: np.ndarray, y: np.ndarray) -> float:
    """Bińkowski et al. 2018, eq. 4 of Gretton et al. 2012, term by term."""
    count = len(x)

    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        return (a @ b / len(a) + 1) ** 3

    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    total = sum(kernel(x[i], x[j]) + kernel(y[i], y[j]) - kernel(x[i], y[j]) - kernel(x[j], y[i]) for i, j in pairs)
    return total / len(pairs)


def test_kid_is_the_formula_and_its_error_the_jackknifes():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(12, 4)), random.normal(0.5, 2, size=(12, 4))
    kid, error = kernel_distance(x, y)
    order = np.random.default_rng(0).permutation(12)
    x, y = x[order], y[order]
    assert kid == pytest.approx(naive(x, y))
    without = [naive(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(12)]
    assert error == pytest.approx(np.sqrt(11 * np.var(without)))


def test_kid_has_no_bias_however_few_there_are():
    """Of samples from one and the same distribution it is 0 in the mean."""
    random = np.random.default_rng(0)
    few = [kernel_distance(*random.normal(size=(2, 50, 8)))[0] for _ in range(200)]
    assert abs(np.mean(few)) < 3 * np.std(few) / np.sqrt(200)


def test_the_error_is_about_how_much_kid_varies():
    random = np.random.default_rng(1)
    found = np.array(
        [kernel_distance(random.normal(size=(100, 4)), random.normal(0.5, 1, (100, 4))) for _ in range(200)]
    )
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.3)


def test_kid_is_computed_in_blocks_of_rows():
    random = np.random.default_rng(2)
    x, y = random.normal(size=(2, ROWS + 7, 3))
    whole = (x @ x.T / 3 + 1) ** 3 + (y @ y.T / 3 + 1) ** 3 - (x @ y.T / 3 + 1) ** 3 - (y @ x.T / 3 + 1) ** 3
    np.fill_diagonal(whole, 0)
    assert kernel_distance(x, y)[0] == pytest.approx(whole.sum() / (len(x) * (len(x) - 1)))


def test_data_in_the_order_of_its_classes_is_not_cut_off():
    random = np.random.default_rng(3)
    in_order = np.vstack([random.normal(mean, 1, size=(200, 4)) for mean in range(5)])
    kid, error = kernel_distance(in_order, random.permutation(in_order)[:300])
    assert abs(kid) < 3 * error


def test_of_two_images_nothing_is_said():
    assert np.isnan(kernel_distance(np.ones((2, 3)), np.ones((9, 3)))).all()
