from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.training import Aggregation, DeviceUpdate, InverseProbability, Round, Sum
from codedfl.typing import BoolArray, FloatArray

MODEL = np.zeros((2, 2))
UPDATES = [(0, np.full((2, 2), 1.0)), (2, np.full((2, 2), 4.0))]
SERVER = np.full((2, 2), 10.0)
PROBABILITY = np.array([0.5, 0.1, 0.8])
ALL = np.ones(3, np.bool_)
ATTENDANCE = Attendance(np.array([1, 0, 1]), np.array([True, False, True]), np.zeros(3))


def combined(
    aggregation: Aggregation,
    updates: Sequence[DeviceUpdate] = UPDATES,
    server: FloatArray | None = SERVER,
    covered: BoolArray = ALL,
) -> FloatArray:
    """Combine updates that, as in training, can be read once."""
    return aggregation.combine(Round(3, 0.1, ATTENDANCE, PROBABILITY, covered, iter(updates), server), MODEL)


def test_sum_adds_what_arrived_and_what_the_server_has() -> None:
    assert np.all(combined(Sum()) == 15)
    assert np.all(combined(Sum(), server=None) == 5)
    assert np.all(combined(Sum(), []) == 10)


def test_inverse_probability_is_equation_5() -> None:
    # 1/2 (1/0.5 + 4/0.8 + 10)
    assert np.all(combined(InverseProbability()) == pytest.approx(8.5))
    assert np.all(combined(InverseProbability(1.0)) == pytest.approx(7.0))
    assert np.all(combined(InverseProbability(0.0)) == pytest.approx(10.0))


def test_a_device_without_coded_data_speaks_for_itself_alone() -> None:
    covered = np.array([True, True, False])
    # 1/2 (1/0.5 + 10) + 4/0.8
    assert np.all(combined(InverseProbability(), covered=covered) == pytest.approx(11.0))


@pytest.mark.parametrize("aggregation", [Sum(), InverseProbability()])
def test_the_updates_given_are_left_as_they_are(aggregation: Aggregation) -> None:
    server = SERVER.copy()
    combined(aggregation, server=server)
    assert np.all(server == 10)
    assert np.all(UPDATES[1][1] == 4)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_outside_0_to_1_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="device_weight"):
        InverseProbability(weight)
