from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.incentive._followers import capped_response, free_response
from codedfl.incentive._game import Game
from codedfl.incentive._gamma import Gamma, QuarticLoss
from codedfl.incentive._leader import best_reward, most_free_reward, paper_reward
from codedfl.incentive._stackelberg import stackelberg_for_weight
from codedfl.incentive._traits import DeviceTraits
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
