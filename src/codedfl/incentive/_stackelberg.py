"""The Stackelberg game played: the total reward that the leader chooses, and what follows from it (Sec. V, VI-B)."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.incentive._game import (
    Game,
    StackelbergOutcome,
    capped_response,
    free_intensity,
    free_response,
    reward_at_intensity,
)
from codedfl.incentive._traits import DeviceTraits, representable, require_representable
from codedfl.incentive._utility import Gamma, QuarticLoss
from codedfl.typing import FloatArray

LARGEST_REWARD = 1e290
"""Searches stop here and at its inverse, before numbers overflow."""

POINTS = 24
"""Rewards tried on each interval between two rewards at which a device joins; the best is then refined."""

Leader = Literal["correct", "paper"]


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
    `reward_at_intensity`. Each interval between two such rewards is scanned and its
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


def stackelberg_for_reward(
    traits: DeviceTraits, total_reward: float, coded_samples: int = 10_000, *, caps: bool = True
) -> StackelbergOutcome:
    """Return the devices' equilibrium when the server announces a total reward.

    Args:
        traits: Two devices or more, in any order. (A single device has no best response: any budget above 0 earns all
            of R, and a smaller one costs less.)
        total_reward: ``R > 0``.
        coded_samples: ``c >= 1``.
        caps: Whether a device that reaches its least noise stays there, and the others adapt to that. Otherwise a reward that
            asks for less noise than the least is refused.

    Returns:
        The equilibrium, which is unique.

    Raises:
        InputError: There are fewer than two devices, a number is out of range, or a cap would be exceeded without ``caps``.

    Example:
        >>> outcome = stackelberg_for_reward(DeviceTraits([3.0, 1.0, 1.0]), 8.0, coded_samples=15)
        >>> outcome.mi_dp_bits.tolist(), outcome.noise_variance.tolist()
        ([0.0, 2.0, 2.0], [inf, 1.0, 1.0])
        >>> outcome.reward.tolist(), outcome.verify().holds
        ([0.0, 4.0, 4.0], True)
    """
    game = Game(traits, coded_samples)
    require_positive("total_reward", total_reward)
    with representable():
        outcome = _play(game, float(total_reward), caps)
        if not outcome.verify().holds:
            raise FloatingPointError  # rounding is all that can keep an equilibrium from being one
        return outcome


def stackelberg_for_weight(
    traits: DeviceTraits,
    reward_weight: float,
    coded_samples: int = 10_000,
    *,
    caps: bool = True,
    leader: Leader = "correct",
    gamma: Gamma | None = None,
) -> StackelbergOutcome:
    """Return the equilibrium of the whole game, in which the server chooses its best total reward.

    Args:
        traits: Two devices or more, in any order.
        reward_weight: ``lambda > 0``, what a unit of reward costs the server.
        coded_samples: ``c >= 1``.
        caps: As in :func:`stackelberg_for_reward`; without caps, the server keeps to rewards that are not refused there.
        leader: "correct" maximises ``sum_{i in S} Gamma(sigma_i^2(R)) - lambda R``; "paper" uses the noise of device 1 for all
            participants, as in the paper's Table lambda, and ignores caps.
        gamma: The server's utility of a noise variance, ``-sigma^4`` by default.

    Returns:
        The equilibrium.

    Raises:
        InputError: There are fewer than two devices, a number is out of range, or no reward is best.

    Example:
        >>> table = DeviceTraits(1 + 0.02 * np.arange(20))
        >>> outcome = stackelberg_for_weight(table, 1e-9, leader="paper")
        >>> int(outcome.total_noise_variance), round(outcome.total_reward, 2), int(outcome.participants.sum())
        (6808, 102.14, 11)
    """
    game = Game(traits, coded_samples)
    require_positive("reward_weight", reward_weight)
    chosen: Gamma = QuarticLoss() if gamma is None else gamma
    if leader not in ("correct", "paper"):
        raise InputError(f"leader = {leader!r} must be 'correct' or 'paper'.")
    if leader == "paper" and caps and np.isfinite(game.largest_mi_dp_bits).any():
        raise InputError(
            "leader = 'paper' does not know caps, which interference and least noise imply: give leader='correct' or caps=False."
        )
    with representable():
        if leader == "paper":
            total_reward = paper_reward(game, reward_weight, chosen)
        else:
            total_reward = best_reward(game, reward_weight, chosen, caps=caps)
        return _play(game, total_reward, caps, reward_weight, chosen)


def _play(
    game: Game, total_reward: float, caps: bool, reward_weight: float | None = None, gamma: Gamma | None = None
) -> StackelbergOutcome:
    if caps:
        mi_dp_bits = capped_response(total_reward, game.sensitivity, game.largest_mi_dp_bits)
    else:
        most = most_free_reward(game)
        if total_reward > most * (1 + 1e-12):
            raise InputError(
                f"total_reward = {total_reward:.6g} asks a device for less noise than its least: "
                f"give {most:.6g} or less, or caps=True."
            )
        mi_dp_bits = free_response(total_reward, game.sensitivity)
    participants = mi_dp_bits > 0
    noise_variance = game.noise_variance(mi_dp_bits)
    with np.errstate(under="raise"):
        reward = total_reward * mi_dp_bits / mi_dp_bits.sum()
    utility = None
    if reward_weight is not None and gamma is not None:
        utility = game.noise_value(mi_dp_bits, gamma) - reward_weight * total_reward
    total_noise_variance = float(noise_variance[participants].sum())
    require_representable(mi_dp_bits, reward, 1 / mi_dp_bits[participants], total_noise_variance, utility or 0.0)
    return StackelbergOutcome(
        sensitivity=game.sensitivity,
        mi_dp_bits=mi_dp_bits,
        noise_variance=noise_variance,
        reward=reward,
        utility=reward - game.sensitivity * mi_dp_bits,
        largest_mi_dp_bits=game.largest_mi_dp_bits if caps else np.full_like(mi_dp_bits, math.inf),
        participants=participants,
        total_reward=total_reward,
        total_noise_variance=total_noise_variance,
        server_utility=utility,
        reward_weight=reward_weight,
    )
