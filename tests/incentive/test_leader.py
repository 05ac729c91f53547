from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.incentive._followers import capped_response, free_response
from codedfl.incentive._game import Game, NoiseValue
from codedfl.incentive._gamma import QuarticLoss
from codedfl.incentive._leader import best_reward, most_free_reward, paper_reward
from codedfl.incentive._stackelberg import stackelberg_for_lambda
from codedfl.typing import FloatArray


class Linear:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return 5 - noise_variance


class Exponential:
    def value(self, noise_variance: FloatArray) -> FloatArray:
        return -np.exp(noise_variance)


GAMMAS: list[NoiseValue] = [QuarticLoss(), Linear(), Exponential()]


def utility(game: Game, lam: float, gamma: NoiseValue, reward: float) -> float:
    """The server's utility, term by term."""
    total = -lam * reward
    bits = capped_response(reward, game.sensitivity, game.most_bits)
    for i in np.flatnonzero(bits):
        noise = game.coded_samples / math.expm1(min(2 * math.log(2) * bits[i], 700)) - game.interference[i]
        with np.errstate(over="ignore"):
            total += float(gamma.value(np.array([max(noise, game.min_noise_variance[i])]))[0])
    return total


@pytest.mark.parametrize("gamma", GAMMAS)
def test_no_reward_of_a_dense_grid_is_better(gamma: NoiseValue) -> None:
    rng = np.random.default_rng(4)
    beyond = 0
    for _ in range(8):
        devices = int(rng.integers(2, 8))
        game = Game.create(
            rng.uniform(1, rng.uniform(1.1, 3), devices),
            coded_samples=int(rng.integers(1, 1000)),
            interference=rng.uniform(0, 20, devices) * (rng.random(devices) < 0.8),
            min_noise_variance=rng.uniform(0, 5, devices) * (rng.random(devices) < 0.5),
        )
        lam = float(10 ** rng.uniform(-4, 2))
        best = best_reward(game, lam, gamma, caps=True)
        found = utility(game, lam, gamma, best)
        grid = np.geomspace(best / 100, best * 100, 1500)
        assert found >= max(utility(game, lam, gamma, float(reward)) for reward in grid) - 1e-9 * abs(found)
        beyond += int(best > most_free_reward(game) * (1 + 1e-9))
    assert beyond > 0  # the optimum lies where caps bind, at least sometimes


def test_the_leader_without_caps_stays_within_what_devices_can_give() -> None:
    game = Game.create([1, 1.1, 1.2], coded_samples=100, interference=[3, 4, 5])
    for lam in (1e-6, 1.0, 1e5):
        best = best_reward(game, lam, QuarticLoss(), caps=False)
        assert best <= most_free_reward(game)
        grid = np.linspace(0, most_free_reward(game), 2000)[1:]
        values = [utility(game, lam, QuarticLoss(), float(reward)) for reward in grid]
        assert utility(game, lam, QuarticLoss(), best) >= max(values)


def test_the_papers_leader_against_a_dense_grid() -> None:
    game = Game.create([1.4, 1.0, 1.2], coded_samples=50)
    best = paper_reward(game, 0.3, QuarticLoss())
    unit = free_response(1.0, game.sensitivity)
    grid = np.geomspace(best / 10, best * 10, 20_001)
    values = -3 * (50 / np.expm1(2 * math.log(2) * unit[1] * grid)) ** 2 - 0.3 * grid
    assert best == pytest.approx(grid[np.argmax(values)], rel=3e-4)


def test_cheaper_rewards_are_paid_more_of() -> None:
    mu = [1.3, 1.0, 1.1, 1.2]
    paid = [stackelberg_for_lambda(lam, mu, coded_samples=1000).total_reward for lam in (1e3, 1.0, 1e-3, 1e-9)]
    assert paid == sorted(paid)
    assert len(set(paid)) == 4


def test_order_of_devices_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    mu, least = rng.uniform(1, 2, 12), rng.uniform(0.5, 9, 12)
    order = rng.permutation(12)
    first = stackelberg_for_lambda(0.01, mu, coded_samples=300, min_noise_variance=least)
    second = stackelberg_for_lambda(0.01, mu[order], coded_samples=300, min_noise_variance=least[order])
    assert second.total_reward == pytest.approx(first.total_reward, rel=1e-6)
    assert second.epsilon == pytest.approx(first.epsilon[order], rel=1e-5)


@pytest.mark.parametrize("lam", [1e-200, 1e-20, 1e20, 1e200])
def test_extreme_lambda(lam: float) -> None:
    outcome = stackelberg_for_lambda(lam, [1, 1.1, 1.2], coded_samples=1000)
    assert math.isfinite(outcome.total_reward)
    assert outcome.verify().holds
