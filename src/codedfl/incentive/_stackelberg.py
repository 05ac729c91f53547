"""The Stackelberg game that the contract is compared with (Sec. VI-B): one total reward, shared in proportion to privacy."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.incentive._followers import capped_response, free_response
from codedfl.incentive._game import Game, StackelbergOutcome
from codedfl.incentive._gamma import Gamma, QuarticLoss
from codedfl.incentive._leader import best_reward, most_free_reward, paper_reward
from codedfl.incentive._traits import DeviceTraits, representable, require_representable

Leader = Literal["correct", "paper"]


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
