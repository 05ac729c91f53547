from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive import DeviceTraits, Gamma, QuarticLoss, stackelberg_for_reward, stackelberg_for_weight
from codedfl.incentive._game import Game, capped_response, free_response
from codedfl.incentive._stackelberg import best_reward, most_free_reward, paper_reward
from codedfl.privacy import mi_dp_bits, noise_variance_for_mi_dp
from codedfl.typing import FloatArray


class Linear:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return 5 - noise_variance

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return -np.ones_like(noise_variance)


class Exponential:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return -np.exp(noise_variance)

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return -np.exp(noise_variance)


GAMMAS: list[Gamma] = [QuarticLoss(), Linear(), Exponential()]


def utility(game: Game, weight: float, gamma: Gamma, reward: float) -> float:
    """The server's utility, term by term."""
    total = -weight * reward
    bits = capped_response(reward, game.sensitivity, game.largest_mi_dp_bits)
    for i in np.flatnonzero(bits):
        noise = game.coded_samples / math.expm1(min(2 * math.log(2) * bits[i], 700)) - game.traits.interference[i]
        with np.errstate(over="ignore"):
            total += float(gamma.value(np.array([max(noise, game.traits.min_noise_variance[i])]))[0])
    return total


@pytest.mark.parametrize("points", [100, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_no_reward_of_a_dense_grid_is_better(gamma: Gamma, points: int) -> None:
    rng = np.random.default_rng(4)
    beyond = 0
    for _ in range(8):
        devices = int(rng.integers(2, 8))
        mu, coded_samples = rng.uniform(1, rng.uniform(1.1, 3), devices), int(rng.integers(1, 1000))
        interference = rng.uniform(0, 20, devices) * (rng.random(devices) < 0.8)
        least = rng.uniform(0, 5, devices) * (rng.random(devices) < 0.5)
        game = Game(DeviceTraits(mu, interference, least), coded_samples)
        weight = float(10 ** rng.uniform(-4, 2))
        best = best_reward(game, weight, gamma, caps=True)
        found = utility(game, weight, gamma, best)
        grid = np.geomspace(best / 100, best * 100, points)
        assert found >= max(utility(game, weight, gamma, float(reward)) for reward in grid) - 1e-9 * abs(found)
        beyond += int(best > most_free_reward(game) * (1 + 1e-9))
    assert beyond > 0  # the optimum lies where caps bind, at least sometimes


def test_the_leader_without_caps_stays_within_what_devices_can_give() -> None:
    game = Game(DeviceTraits([1, 1.1, 1.2], interference=[3, 4, 5]), 100)
    for weight in (1e-6, 1.0, 1e5):
        best = best_reward(game, weight, QuarticLoss(), caps=False)
        assert best <= most_free_reward(game)
        grid = np.linspace(0, most_free_reward(game), 2000)[1:]
        values = [utility(game, weight, QuarticLoss(), float(reward)) for reward in grid]
        assert utility(game, weight, QuarticLoss(), best) >= max(values)


def test_the_papers_leader_against_a_dense_grid() -> None:
    game = Game(DeviceTraits([1.4, 1.0, 1.2]), 50)
    best = paper_reward(game, 0.3, QuarticLoss())
    unit = free_response(1.0, game.sensitivity)
    grid = np.geomspace(best / 10, best * 10, 20_001)
    values = -3 * (50 / np.expm1(2 * math.log(2) * unit[1] * grid)) ** 2 - 0.3 * grid
    assert best == pytest.approx(grid[np.argmax(values)], rel=3e-4)


def test_cheaper_rewards_are_paid_more_of() -> None:
    traits = DeviceTraits([1.3, 1.0, 1.1, 1.2])
    paid = [stackelberg_for_weight(traits, weight, 1000).total_reward for weight in (1e3, 1.0, 1e-3, 1e-9)]
    assert paid == sorted(paid)
    assert len(set(paid)) == 4


def test_order_of_devices_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    mu, least = rng.uniform(1, 2, 12), rng.uniform(0.5, 9, 12)
    order = rng.permutation(12)
    first = stackelberg_for_weight(DeviceTraits(mu, 0.0, least), 0.01, 300)
    second = stackelberg_for_weight(DeviceTraits(mu[order], 0.0, least[order]), 0.01, 300)
    assert second.total_reward == pytest.approx(first.total_reward, rel=1e-6)
    assert second.mi_dp_bits == pytest.approx(first.mi_dp_bits[order], rel=1e-5)


@pytest.mark.parametrize("weight", [1e-200, 1e-20, 1e20, 1e200])
def test_extreme_weights(weight: float) -> None:
    outcome = stackelberg_for_weight(DeviceTraits([1, 1.1, 1.2]), weight, 1000)
    assert math.isfinite(outcome.total_reward)
    assert outcome.verify().holds


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
