from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.training import Aggregation, InverseProbability, Sum

MODEL = np.zeros((2, 2))
UPDATES = [(0, np.full((2, 2), 1.0)), (2, np.full((2, 2), 4.0))]
SERVER = np.full((2, 2), 10.0)
PROBABILITY = np.array([0.5, 0.1, 0.8])
ALL = np.ones(3, np.bool_)


def test_sum_adds_what_arrived_and_what_the_server_has() -> None:
    assert np.all(Sum().combine(UPDATES, SERVER, PROBABILITY, ALL, MODEL) == 15)
    assert np.all(Sum().combine(UPDATES, None, PROBABILITY, ALL, MODEL) == 5)
    assert np.all(Sum().combine([], SERVER, PROBABILITY, ALL, MODEL) == 10)


def test_inverse_probability_is_equation_5() -> None:
    # 1/2 (1/0.5 + 4/0.8 + 10)
    assert np.all(InverseProbability().combine(UPDATES, SERVER, PROBABILITY, ALL, MODEL) == pytest.approx(8.5))
    assert np.all(InverseProbability(1.0).combine(UPDATES, SERVER, PROBABILITY, ALL, MODEL) == pytest.approx(7.0))
    assert np.all(InverseProbability(0.0).combine(UPDATES, SERVER, PROBABILITY, ALL, MODEL) == pytest.approx(10.0))


def test_a_device_without_coded_data_speaks_for_itself_alone() -> None:
    covered = np.array([True, True, False])
    # 1/2 (1/0.5 + 10) + 4/0.8
    assert np.all(InverseProbability().combine(UPDATES, SERVER, PROBABILITY, covered, MODEL) == pytest.approx(11.0))


@pytest.mark.parametrize("aggregation", [Sum(), InverseProbability()])
def test_the_updates_given_are_left_as_they_are(aggregation: Aggregation) -> None:
    server = SERVER.copy()
    aggregation.combine(UPDATES, server, PROBABILITY, ALL, MODEL)
    assert np.all(server == 10)
    assert np.all(UPDATES[1][1] == 4)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_outside_0_to_1_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="device_weight"):
        InverseProbability(weight)
