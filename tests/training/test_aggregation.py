from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.schemes import scfl
from codedfl.training import Aggregation, DeviceUpdate, InverseProbability, LearningRate, Round, Sum, train
from codedfl.typing import BoolArray, FloatArray
from tests.problems import make_setting, payloads_of

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
    return aggregation.combine(Round(3, 0.1, ATTENDANCE, PROBABILITY, covered, payloads_of(updates), server), MODEL)


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


def test_the_weight_is_capped_and_its_mean_is_that_of_many_rounds() -> None:
    # 1/2 (min(1/0.5, 1.5) 1 + min(1/0.8, 1.5) 4 + 10)
    assert np.all(combined(InverseProbability(weight_cap=1.5)) == pytest.approx(8.25))
    covered = np.array([True, True, False])
    for cap in (1.0, 1.5, 4.0, 100.0):
        device_weights, server_weight = InverseProbability(0.3, cap).mean_weights(PROBABILITY, covered)
        # E[1_i] w_i min(1 / p_i, C), device by device
        expected = [p * w * min(1 / p, cap) for p, w in zip(PROBABILITY, (0.3, 0.3, 1.0), strict=True)]
        np.testing.assert_allclose(device_weights, expected, rtol=1e-14)
        assert server_weight == 0.7
    assert InverseProbability().mean_weights(np.array([0.0, 1e-4, 0.01]), ALL)[0].tolist() == [0.0, 0.005, 0.5]


@dataclass(frozen=True)
class Rare:
    """The first device has arrived by chance in one round, though it does so once in ten thousand."""

    once: int
    duration_s: float = 1.0

    @property
    def probability(self) -> FloatArray:
        return np.array([1e-4, 1.0, 1.0, 1.0])

    def attend(self, round: int) -> Attendance:
        arrived = np.array([round == self.once, True, True, True])
        return Attendance(np.where(arrived, [7, 12, 5, 1], 0), arrived, np.zeros(4))


@pytest.mark.slow
def test_a_device_that_hardly_ever_arrives_does_not_wreck_a_run() -> None:
    setting = make_setting()
    rate = LearningRate.relative(0.1, setting.gram.smoothness)
    capped, uncapped, without = (
        train(scfl(weight_cap=cap).prepare(setting, arrivals=Rare(once)), rate, 60)
        for cap, once in ((100.0, 30), (1e9, 30), (100.0, -1))
    )
    assert max(p.last_loss for p in uncapped.curve) > 100 * uncapped.curve[0].loss
    assert max(p.last_loss for p in capped.curve) < 2 * capped.curve[0].loss, "half of 100 times its gradient, once"
    assert capped.final.last_loss < 1.1 * without.final.last_loss


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


@pytest.mark.parametrize("cap", [0.9, float("inf"), float("nan")])
def test_a_cap_below_one_or_without_end_is_refused(cap: float) -> None:
    with pytest.raises(InputError, match="weight_cap"):
        InverseProbability(weight_cap=cap)


@dataclass(frozen=True)
class Estimated:
    """Arrivals whose attendance carries its own estimate of the probabilities."""

    estimate: float
    devices: int
    duration_s: float = 1.0

    @property
    def probability(self) -> FloatArray:
        return np.full(self.devices, 0.25)

    def attend(self, round: int) -> Attendance:  # noqa: ARG002
        ones = np.ones(self.devices, np.int64)
        return Attendance(ones, ones > 0, np.zeros(self.devices), probability=np.full(self.devices, self.estimate))


def test_an_estimate_of_the_round_takes_the_place_of_the_probabilities() -> None:
    setting = make_setting()
    devices = setting.federation.devices
    rate = LearningRate.relative(0.1, setting.gram.smoothness)
    models = {
        estimate: train(
            scfl(device_weight=1.0).prepare(setting, arrivals=Estimated(estimate, devices)), rate, 1
        ).progress.state.model
        for estimate in (0.5, 1.0)
    }
    assert np.allclose(models[0.5], 2 * models[1.0], rtol=1e-6), "from zero, the step is proportional to 1 / p"
