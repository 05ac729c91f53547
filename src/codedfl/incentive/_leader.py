"""The leader's choice of the total reward in the Stackelberg game (Sec. V, VI-B)."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize_scalar

from codedfl.errors import InputError
from codedfl.incentive._followers import capped_response, free_intensity, free_response, reward_at_intensity
from codedfl.incentive._game import Game
from codedfl.incentive._gamma import Gamma
from codedfl.typing import FloatArray

LARGEST_REWARD = 1e290
"""Searches stop here and at its inverse, before numbers overflow."""

POINTS = 24
"""Rewards tried on each interval between two rewards at which a device joins; the best is then refined."""


def paper_reward(game: Game, reward_weight: float, gamma: Gamma) -> float:
    """Return the total reward chosen by the leader behind Table lambda.

    It maximises ``n Gamma(sigma_1^2(R)) - lambda R``: the noise of device 1, the least sensitive, stands for that of all n
    participants, an apparent slip that makes the leader pay far too little. Nothing is capped, but R stays within
    :func:`most_free_reward`.

    Args:
        game: The devices.
        reward_weight: ``lambda``, what a unit of reward costs the server.
        gamma: ``Gamma``.
    """
    unit = free_response(1.0, game.sensitivity)
    members = int(np.count_nonzero(unit))
    first = np.zeros_like(unit)
    device = int(np.argmin(game.sensitivity))
    first[device] = unit[device]
    return _best_below(
        lambda reward: members * game.noise_value(first * reward, gamma) - reward_weight * reward,
        1 / float(unit.max()),
        most_free_reward(game),
    )


def best_reward(game: Game, reward_weight: float, gamma: Gamma, *, caps: bool) -> float:
    """Return the total reward that maximises the server's utility ``sum_{i in S} Gamma(q_i^-1(bits_i(R))) - lambda R``.

    Up to :func:`most_free_reward` no cap binds and the utility is concave in R (a concave, non-increasing Gamma of a convex
    noise variance): the best R is bracketed by doubling and halving. Above it, with caps on, the utility has several
    peaks: a device joins with unbounded noise, so the sum over participants drops to minus infinity at each reward of
    :func:`~codedfl.incentive._followers.reward_at_intensity`. Each interval between two such rewards is scanned and its
    best point refined, up to the reward where all caps bind or where even the least noise of all devices,
    ``sum_i max(Gamma(sigma_min,i^2), 0) - lambda R``, is worse than the best found.

    Args:
        game: The devices.
        reward_weight: ``lambda``, what a unit of reward costs the server.
        gamma: ``Gamma``.
        caps: Whether devices at their least noise stay there; otherwise R stays within :func:`most_free_reward`.
    """
    unit = free_response(1.0, game.sensitivity)
    limit = most_free_reward(game)

    def free_utility(reward: float) -> float:
        return game.noise_value(np.minimum(unit * reward, game.largest_mi_dp_bits), gamma) - reward_weight * reward

    def utility(reward: float) -> float:
        return (
            game.noise_value(capped_response(reward, game.sensitivity, game.largest_mi_dp_bits), gamma)
            - reward_weight * reward
        )

    best = _best_below(free_utility, 1 / float(unit.max()), limit)
    if not caps or not math.isfinite(limit):
        return best
    highest = float(np.maximum(gamma.value(game.traits.min_noise_variance), 0).sum())
    found = free_utility(best)
    while found == -math.inf:  # every reward so far buys too little: start at any one with a finite utility
        best = max(2 * best, limit)
        found = utility(best)
        if best > LARGEST_REWARD:
            raise InputError(
                "gamma is minus infinity at every reward: give one that is finite at small noise variances."
            )
    top = min((highest - found) / reward_weight, _all_capped_reward(game))
    edges = _edges(game, limit, top)
    for low, high in pairwise(edges):
        if highest - reward_weight * low <= found:
            break
        candidate, value = _best_between(utility, low, high)
        if value > found:
            best, found = candidate, value
    return best


def most_free_reward(game: Game) -> float:
    """Return the largest total reward at which no participant exceeds its cap: ``min_i cap_i R / bits_i(R)``.

    Example:
        >>> from codedfl.incentive import DeviceTraits
        >>> round(most_free_reward(Game(DeviceTraits([1, 1], interference=1), 15)), 9)
        8.0
    """
    unit = free_response(1.0, game.sensitivity)
    return float((game.largest_mi_dp_bits[unit > 0] / unit[unit > 0]).min())


def _all_capped_reward(game: Game) -> float:
    """Return the reward from which on all caps bind: ``max_i mu_i C^2 / (C - cap_i)``, ``C = sum cap_i``."""
    total = float(game.largest_mi_dp_bits.sum())
    if not math.isfinite(total):
        return math.inf
    return float((game.sensitivity * total / (1 - game.largest_mi_dp_bits / total)).max())


def _edges(game: Game, low: float, high: float) -> list[float]:
    """Return ``low``, the rewards in between at which a device joins, and ``high``."""
    if low >= high:
        return []
    outside = np.unique(game.sensitivity[game.sensitivity * free_intensity(game.sensitivity) >= 1])
    edges = [low]
    for sensitivity in outside.tolist():
        joins = reward_at_intensity(1 / sensitivity, game.sensitivity, game.largest_mi_dp_bits)
        if joins >= high:
            break
        edges.append(max(joins, low))
    return [*edges, high]


def _best_below(utility: Callable[[float], float], start: float, limit: float) -> float:
    """Return the maximum over (0, limit] of a concave utility that is minus infinity at 0."""
    reward = min(start, limit)
    while (
        reward < LARGEST_REWARD
        and 2 * reward <= limit
        and (utility(2 * reward) > utility(reward) or utility(reward) == -math.inf)
    ):
        reward *= 2
    while utility(reward / 2) > utility(reward):
        reward /= 2
        if reward < 1 / LARGEST_REWARD:
            raise InputError(
                "gamma makes no reward worth paying: give one that falls without bound as the noise variance grows, "
                "or a smaller lambda."
            )
    return _refine(utility, reward / 2, min(2 * reward, limit))[0]


def _best_between(utility: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Scan an interval on a logarithmic grid and refine around its best point."""
    grid: FloatArray = np.geomspace(low, high, POINTS)
    values = [utility(float(reward)) for reward in grid]
    k = int(np.argmax(values))
    return _refine(utility, float(grid[max(k - 1, 0)]), float(grid[min(k + 1, POINTS - 1)]))


def _refine(utility: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the best reward in a bracket, ends included, and its utility."""
    with np.errstate(invalid="ignore"):  # a parabola through minus infinity is NaN, and a golden-section step follows
        found = minimize_scalar(
            lambda x: -utility(math.exp(x)),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 1e-12},
        )
    inside = math.exp(float(found.x))
    return max(((reward, utility(reward)) for reward in (inside, low, high)), key=lambda pair: pair[1])
