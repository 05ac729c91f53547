"""The solution of least norm against the pseudo-inverse by eigenvectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from codedfl.coding._least_norm import least_norm_solution
from codedfl.typing import FloatArray

SMALLEST = 1e-12


def wide(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((12, 70))


def repeated(rng: np.random.Generator) -> FloatArray:
    X = rng.standard_normal((90, 8))
    return np.hstack([X, X[:, :3], X @ rng.standard_normal((8, 4))])


def scaled(rng: np.random.Generator) -> FloatArray:
    X = rng.standard_normal((60, 6)) * 10.0 ** np.arange(-2, 4)
    return np.hstack([X, np.zeros((60, 2)), X[:, 2:3]])


def tall(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((50, 9))


@pytest.mark.parametrize("make", [wide, repeated, scaled, tall])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_pseudo_inverse(make: Callable[[np.random.Generator], FloatArray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = make(rng)
    H, b = X.T @ X, X.T @ rng.standard_normal((len(X), 3))
    expected = scipy.linalg.pinvh(H, rtol=SMALLEST) @ b
    # Both lose at most the condition number of what is kept, times a few ulps.
    values = scipy.linalg.eigvalsh(H)
    condition = values[-1] / values[values > SMALLEST * values[-1]].min()
    found = least_norm_solution(H, b, SMALLEST)
    assert np.linalg.norm(found - expected) <= 100 * condition * np.finfo(float).eps * np.linalg.norm(expected)


def test_it_solves_and_is_the_shortest() -> None:
    rng = np.random.default_rng(5)
    X = wide(rng)
    Y = rng.standard_normal((len(X), 2))
    found = least_norm_solution(X.T @ X, X.T @ Y, SMALLEST)
    assert np.allclose(X @ found, Y, rtol=0, atol=1e-9)
    assert np.allclose(found, np.linalg.pinv(X) @ Y, rtol=0, atol=1e-9)


def test_nothing_to_learn_from_gives_zeros() -> None:
    assert (least_norm_solution(np.zeros((4, 4)), np.zeros((4, 2)), SMALLEST) == 0).all()
