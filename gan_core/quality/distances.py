"""How far two sets of features are from each other: the Frechet distance, and the kernel distance with its standard error."""

import numpy as np
import torch
from torch import Tensor

ROWS = 512  # of the kernel's matrix at a time, so that memory doesn't grow with the square of the images


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (F,) and covariance (F, F) of features (N, F)."""
    return features.mean(axis=0), np.cov(features, rowvar=False)


def frechet_distance(mean_a: np.ndarray, cov_a: np.ndarray, mean_b: np.ndarray, cov_b: np.ndarray) -> float:
    """|mean_a - mean_b|² + tr(cov_a + cov_b - 2 (cov_a cov_b)^½). Source: Dowson and Landau 1982; Heusel et al. 2017, eq. 6."""
    # The trace of the root needs only eigenvalues of the product, which are real and not negative for covariances.
    eigenvalues = np.linalg.eigvals(cov_a @ cov_b).real.clip(min=0)
    return float(((mean_a - mean_b) ** 2).sum() + np.trace(cov_a) + np.trace(cov_b) - 2 * np.sqrt(eigenvalues).sum())


def kernel_distance(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """KID: the unbiased squared MMD with the kernel (x·y / F + 1)³, and its standard error.

    As many of each as both have, chosen from a fixed seed: data often lies in the order of its classes. Unlike the Frechet distance it doesn't shrink as images are added; for
    equal distributions it varies around 0. Source: Bińkowski et al. 2018 (arXiv:1801.01401), section 4; the error is the
    jackknife's, each time without one pair of images.

    Args:
        ours, theirs: features (N, F) and (M, F)
    """
    count = min(len(ours), len(theirs))
    if count < 3:
        return float("nan"), float("nan")
    chosen = (side[np.random.default_rng(0).permutation(len(side))[:count]] for side in (ours, theirs))
    x, y = (torch.from_numpy(side).double() for side in chosen)
    sums = torch.cat([_pairs(x, y, start).sum(1) for start in range(0, count, ROWS)])
    whole = sums.sum()
    without = (whole - 2 * sums) / ((count - 1) * (count - 2))
    error = ((count - 1) / count * ((without - without.mean()) ** 2).sum()).sqrt()
    return float(whole / (count * (count - 1))), float(error)


def _pairs(x: Tensor, y: Tensor, start: int) -> Tensor:
    """(rows, N): k(x_i, x_j) + k(y_i, y_j) - k(x_i, y_j) - k(y_i, x_j), 0 where i is j."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.T / a.shape[1] + 1) ** 3

    u, v = x[start : start + ROWS], y[start : start + ROWS]
    pairs = kernel(u, x) + kernel(v, y) - kernel(u, y) - kernel(v, x)
    rows = torch.arange(len(u))
    pairs[rows, start + rows] = 0
    return pairs
