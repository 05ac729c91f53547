from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from codedfl.private._loss import SOFTMAX, SQUARE, Loss, LossName, loss_of
from codedfl.typing import FloatArray


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("auto", "classification", SOFTMAX),
        ("auto", "regression", SQUARE),
        ("square", "classification", SQUARE),
        ("square", "regression", SQUARE),
        ("softmax", "classification", SOFTMAX),
    ],
)
def test_auto_follows_the_task_and_a_name_is_kept(name: LossName, task: str, expected: Loss) -> None:
    assert loss_of(name, task) is expected


def second_derivatives(outputs: FloatArray, label: int, *, softmax: bool, step: float = 1e-4) -> FloatArray:
    """The Hessian of a sample's loss with respect to its outputs, by central differences."""
    size = len(outputs)
    steps = step * np.eye(size)

    def value(at: FloatArray) -> float:
        return float(-log_softmax(at)[label]) if softmax else float(np.sum((at - np.eye(size)[label]) ** 2) / 2)

    return np.array(
        [
            [
                (value(outputs + a + b) - value(outputs + a - b) - value(outputs - a + b) + value(outputs - a - b))
                / (4 * step**2)
                for b in steps
            ]
            for a in steps
        ]
    )


def test_no_second_derivative_exceeds_the_curvature_and_one_reaches_it() -> None:
    """A softmax of two outputs that are equal, with all others far below, has the curvature 1/2."""
    rng = np.random.default_rng(0)
    places = [*rng.standard_normal((20, 4)) * rng.exponential(2.0, (20, 1)), np.array([0.0, 0.0, -40.0, -40.0])]
    for loss in (SOFTMAX, SQUARE):
        largest = [np.linalg.eigvalsh(second_derivatives(at, 0, softmax=loss.softmax))[-1] for at in places]
        assert max(largest) == pytest.approx(loss.curvature, abs=1e-6)
