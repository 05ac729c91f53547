from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive._stackelberg import stackelberg_for_reward, stackelberg_for_weight
from codedfl.incentive._traits import DeviceTraits
from codedfl.privacy._mi_dp import mi_dp_bits, noise_variance_for_mi_dp
from codedfl.typing import FloatArray

TABLE_DEVICES = DeviceTraits(1 + 0.02 * np.arange(20))
TABLE_LAMBDA = [
    # lambda, sigma^2 as printed, total reward where 4 ln2 n (bits_1/R) v^2 (1 + v/c) = lambda, total reward as printed
    (2e-4, 12_324, 71.448520, 70),
    (1e-5, 10_488, 78.981534, 80),
    (1e-7, 8_364, 90.561616, 90),
    (1e-9, 6_808, 102.141699, 100),
    (1.1e-11, 5_652, 113.482117, 110),
    (1e-12, 5_146, 119.511824, 120),
]


@pytest.mark.parametrize(("weight", "noise", "reward", "printed"), TABLE_LAMBDA)
def test_table_lambda_of_the_paper(weight: float, noise: int, reward: float, printed: int) -> None:
    outcome = stackelberg_for_weight(TABLE_DEVICES, weight, leader="paper", caps=False)
    assert math.floor(outcome.total_noise_variance) == noise
    assert outcome.total_reward == pytest.approx(reward, abs=2e-5)
    assert outcome.total_reward == pytest.approx(printed, abs=3.5)
    assert outcome.participants.tolist() == [True] * 11 + [False] * 9
    assert outcome.reward_weight == weight
    correct = stackelberg_for_weight(TABLE_DEVICES, weight)
    assert correct.total_reward > 10 * outcome.total_reward
    assert correct.server_utility is not None
    assert outcome.server_utility is not None
    assert correct.server_utility > outcome.server_utility


def test_fields_fit_together() -> None:
    outcome = stackelberg_for_reward(DeviceTraits([1.3, 1.0, 9.0, 1.1], [0, 3, 0, 1], 0.5), 100, 500)
    assert outcome.participants.tolist() == [True, True, False, True] == (outcome.mi_dp_bits > 0).tolist()
    assert outcome.reward.sum() == pytest.approx(100)
    assert outcome.reward == pytest.approx(100 * outcome.mi_dp_bits / outcome.mi_dp_bits.sum())
    assert outcome.utility == pytest.approx(outcome.reward - outcome.sensitivity * outcome.mi_dp_bits)
    assert outcome.noise_variance[2] == math.inf
    assert outcome.total_noise_variance == pytest.approx(outcome.noise_variance[outcome.participants].sum())
    for bits, noise, hidden in zip(outcome.mi_dp_bits, outcome.noise_variance, [0.0, 3.0, 0.0, 1.0], strict=True):
        if bits > 0:
            assert noise >= 0.5
            assert mi_dp_bits(500, noise, hidden) == pytest.approx(bits)
            assert noise_variance_for_mi_dp(bits, 500, hidden) == pytest.approx(noise)
    assert outcome.reward_weight is None
    assert outcome.server_utility is None


@given(
    seed=st.integers(0, 2**32 - 1),
    devices=st.integers(2, 200),
    spread=st.floats(0, 5),
    power=st.floats(-2, 4),
    caps=st.booleans(),
)
def test_nobody_gains_by_a_change_or_by_leaving(
    seed: int, devices: int, spread: float, power: float, caps: bool
) -> None:
    rng = np.random.default_rng(seed)
    mu = 0.5 + spread * rng.random(devices).round(2)
    least = 10 ** rng.uniform(-1, 3, devices) if caps else 0.0
    outcome = stackelberg_for_reward(DeviceTraits(mu, 0.0, least), 10**power, 1000, caps=caps)
    check = outcome.verify()
    assert check.holds
    assert check.best_response_residual < 1e-9
    assert check.least_utility >= -1e-9 * outcome.total_reward
    assert outcome.participants.sum() >= 2


def test_verify_sees_what_is_not_an_equilibrium() -> None:
    outcome = stackelberg_for_reward(DeviceTraits([1.0, 1.2, 1.4]), 10, 100)
    more = outcome.mi_dp_bits * [1.2, 1.0, 1.0]
    reward = 10 * more / more.sum()
    wrong = replace(outcome, mi_dp_bits=more, reward=reward, utility=reward - outcome.sensitivity * more).verify()
    assert not wrong.holds
    assert wrong.best_response_residual > 1e-3
    absurd = replace(
        outcome,
        mi_dp_bits=outcome.mi_dp_bits * 9,
        utility=outcome.reward - 9 * outcome.sensitivity * outcome.mi_dp_bits,
    )
    assert absurd.verify().least_utility < 0


def test_without_caps_a_reward_is_refused_that_asks_for_too_little_noise() -> None:
    pair = DeviceTraits([1, 1], interference=1)
    with pytest.raises(InputError, match=r"total_reward = 9 .* give 8 or less, or caps=True"):
        stackelberg_for_reward(pair, 9, 15, caps=False)
    edge = stackelberg_for_reward(pair, 8, 15, caps=False)
    assert edge.noise_variance == pytest.approx([0, 0], abs=1e-9)
    capped = stackelberg_for_reward(pair, 9, 15)
    assert capped.mi_dp_bits.tolist() == [2, 2]
    assert capped.noise_variance == pytest.approx([0, 0], abs=1e-12)


class Rising:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return -1 / (1 + noise_variance)

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return 1 / (1 + noise_variance) ** 2


class NotANumber:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return np.full_like(noise_variance, math.nan)

    slope = value


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sensitivity": [1.0]}, r"sensitivity has 1 device\(s\): give two or more"),
        ({"sensitivity": []}, r"sensitivity has shape \(0,\)"),
        ({"sensitivity": [1.0, 0.0]}, r"sensitivity\[1\] = 0.0 must be a positive finite number"),
        ({"sensitivity": [1.0, math.nan]}, r"sensitivity\[1\] = nan must be a positive finite number"),
        ({"sensitivity": [[1.0, 2.0]]}, r"sensitivity has shape \(1, 2\)"),
        ({"sensitivity": ["a", "b"]}, r"sensitivity = \['a', 'b'\] must be numbers"),
        ({"coded_samples": 0}, "coded_samples = 0 must be 1 or more"),
        ({"coded_samples": 1.5}, "coded_samples = 1.5 must be a whole number"),
        ({"coded_samples": math.nan}, "coded_samples = nan must be a whole number"),
        ({"interference": -1}, r"interference\[0\] = -1.0 must be a finite number, zero or more"),
        ({"interference": [1, 2, 3]}, r"interference has shape \(3,\)"),
        ({"min_noise_variance": [[0, 1], [2]]}, r"min_noise_variance = .* must be numbers"),
        ({"min_noise_variance": math.inf}, r"min_noise_variance\[0\] = inf must be a finite number"),
        ({"reward_weight": 0.0}, "reward_weight = 0.0 must be a positive"),
        ({"leader": "follower"}, "leader = 'follower' must be 'correct' or 'paper'"),
        ({"leader": "paper", "interference": 1}, "leader = 'paper' does not know caps"),
        ({"gamma": Rising()}, "gamma makes no reward worth paying"),
        ({"gamma": NotANumber()}, "gamma gives nan"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"reward_weight": 1.0, "sensitivity": [1.0, 1.2], "coded_samples": 100, **changes}
    traits = ("sensitivity", "interference", "min_noise_variance")
    with pytest.raises(InputError, match=sentence):
        stackelberg_for_weight(DeviceTraits(**{name: given.pop(name) for name in traits if name in given}), **given)


@pytest.mark.parametrize("reward", [0.0, -1.0, math.nan, math.inf])
def test_a_reward_that_is_not_positive_is_refused(reward: float) -> None:
    with pytest.raises(InputError, match=r"total_reward = .* must be a positive finite number"):
        stackelberg_for_reward(DeviceTraits([1, 2]), reward, 10)
