"""The stable range is that of the eigenvalues of the recursion, and of the memory that it describes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from codedfl.coding import Curvature
from codedfl.schemes import DeviceMemory
from tests.reference.stability import largest_stable_mismatch

SHARES, RATIOS = (0.01, 0.1, 0.25, 0.5, 0.9, 1.0), (0.0, 0.1, 0.5, 0.9, 1.0)
GRID = list(product(SHARES, RATIOS))


def radius(share: float, tail_ratio: float, mismatch: float) -> float:
    """Return the spectral radius of ``(e, m) -> (e', m')``."""
    feedback = np.array([[1, 0], [share * mismatch, 1 - share]])  # (e, m) -> (e, m')
    step = np.array([[1 - tail_ratio, -1], [0, 1]])  # (e, m') -> (e', m')
    return float(np.abs(np.linalg.eigvals(step @ feedback)).max())


@pytest.mark.parametrize(("share", "tail_ratio"), GRID)
def test_it_is_where_an_eigenvalue_leaves_the_unit_circle(share: float, tail_ratio: float) -> None:
    bound = largest_stable_mismatch(share, tail_ratio)
    assert radius(share, tail_ratio, bound) == pytest.approx(1.0, abs=1e-9)
    assert radius(share, tail_ratio, 1.001 * bound) > 1 + 1e-5
    inside = -tail_ratio + (bound + tail_ratio) * np.linspace(0.001, 0.999, 60)
    assert max(radius(share, tail_ratio, mismatch) for mismatch in inside) < 1
    assert radius(share, tail_ratio, -tail_ratio - 0.001) > 1, "a direction along which the loss falls without end"


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("beyond", [False, True])
def test_a_memory_behaves_as_the_recursion_says(share: float, beyond: bool) -> None:
    """One device with one direction outside the basis, of curvature just within and just beyond what is stable."""
    tail, damping, optimum = 2.0, 3.0, 5.0
    mismatch = largest_stable_mismatch(share, tail / (tail + damping)) * (1.03 if beyond else 0.97)
    true = tail + mismatch * (tail + damping)
    window = 1.0 / share
    memory = DeviceMemory(np.zeros((1, 0, 1)), np.array([[[tail * 4.0]]]), np.array([window]), np.array([window]))
    W = np.array([[4.0]])
    curvature = Curvature(np.zeros((1, 0)), np.zeros(0), np.zeros((1, 0, 0)), np.array([tail]))
    for _ in range(2000):
        memory = memory.updated([(0, true * (W - optimum), 1)], W, curvature)
        W = W - memory.gradient(W, curvature) / (tail + damping)
    assert (abs(W.item() - optimum) > 1e6) if beyond else (abs(W.item() - optimum) < 1e-6)
