"""The Stackelberg game that the contract is compared with (Sec. VI-B): one total reward, shared in proportion to privacy."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.incentive._followers import capped_response, free_response
from codedfl.incentive._game import Game, NoiseValue
from codedfl.incentive._gamma import QuarticLoss
from codedfl.incentive._leader import best_reward, most_free_reward, paper_reward
from codedfl.incentive._stackelberg_outcome import StackelbergOutcome

Leader = Literal["correct", "paper"]


def stackelberg_for_reward(
    total_reward: float,
    sensitivities: npt.ArrayLike,
    *,
    coded_samples: int,
    interference: npt.ArrayLike = 0.0,
    min_noise_variance: npt.ArrayLike = 0.0,
    caps: bool = True,
) -> StackelbergOutcome:
    """Return what devices do when the server announces a total reward.

    Args:
        total_reward: ``R``.
        sensitivities: ``mu_i``, two devices or more, in any order. (A lone device has no best answer: any budget above 0 earns
            all of R, and a smaller one costs less.)
        coded_samples: ``c``.
        interference: ``h_i^2``, one for all or one for each device.
        min_noise_variance: ``sigma_min,i^2``, the least noise, one for all or one for each device.
        caps: Whether a device that reaches its least noise stays there, and the others answer to that; otherwise a reward
            that asks for less noise than the least is refused.

    Returns:
        The equilibrium, which is unique.

    Example:
        >>> outcome = stackelberg_for_reward(8.0, [3.0, 1.0, 1.0], coded_samples=15)
        >>> outcome.epsilon.tolist(), outcome.noise_variance.tolist()
        ([0.0, 2.0, 2.0], [inf, 1.0, 1.0])
        >>> outcome.reward.tolist(), outcome.verify().holds
        ([0.0, 4.0, 4.0], True)
    """
    game = Game.create(
        sensitivities, coded_samples=coded_samples, interference=interference, min_noise_variance=min_noise_variance
    )
    require_positive("total_reward", total_reward)
    return _play(game, float(total_reward), caps)


def stackelberg_for_lambda(
    lam: float,
    sensitivities: npt.ArrayLike,
    *,
    coded_samples: int,
    interference: npt.ArrayLike = 0.0,
    min_noise_variance: npt.ArrayLike = 0.0,
    caps: bool = True,
    leader: Leader = "correct",
    gamma: NoiseValue | None = None,
) -> StackelbergOutcome:
    """Return the game's outcome when the server, too, does what is best for it.

    Args:
        lam: ``lambda``, what a unit of reward costs the server.
        sensitivities: ``mu_i``, two devices or more, in any order.
        coded_samples: ``c``.
        interference: ``h_i^2``, one for all or one for each device.
        min_noise_variance: ``sigma_min,i^2``, the least noise, one for all or one for each device.
        caps: As in :func:`stackelberg_for_reward`; without, the server keeps to rewards that are not refused there.
        leader: "correct" maximises ``sum_{i in S} Gamma(sigma_i^2(R)) - lambda R``; "paper" uses the noise of device 1 for all
            participants, as the paper's Table lambda does, and knows no caps.
        gamma: ``Gamma``, concave and non-increasing; ``-sigma^4`` by default.

    Example:
        >>> table = 1 + 0.02 * np.arange(20)
        >>> outcome = stackelberg_for_lambda(1e-9, table, coded_samples=10_000, leader="paper")
        >>> int(outcome.total_noise_variance), round(outcome.total_reward, 2), int(outcome.participants.sum())
        (6808, 102.14, 11)
    """
    game = Game.create(
        sensitivities, coded_samples=coded_samples, interference=interference, min_noise_variance=min_noise_variance
    )
    require_positive("lambda", lam)
    value: NoiseValue = QuarticLoss() if gamma is None else gamma
    if leader == "correct":
        total_reward = best_reward(game, lam, value, caps=caps)
    elif leader != "paper":
        raise InputError(f"leader = {leader!r} must be 'correct' or 'paper'.")
    elif caps and np.isfinite(game.most_bits).any():
        raise InputError(
            "leader = 'paper' knows no caps, which interference and least noise bring about: give leader='correct' or caps=False."
        )
    else:
        total_reward = paper_reward(game, lam, value)
    return _play(game, total_reward, caps, lam, value)


def _play(
    game: Game, total_reward: float, caps: bool, lam: float | None = None, gamma: NoiseValue | None = None
) -> StackelbergOutcome:
    if caps:
        epsilon = capped_response(total_reward, game.sensitivity, game.most_bits)
    else:
        most = most_free_reward(game)
        if total_reward > most * (1 + 1e-12):
            raise InputError(
                f"total_reward = {total_reward:.6g} asks a device for less noise than its least: "
                f"give {most:.6g} or less, or caps=True."
            )
        epsilon = free_response(total_reward, game.sensitivity)
    participants = epsilon > 0
    noise_variance = game.noise_variance(epsilon)
    reward = total_reward * epsilon / epsilon.sum()
    paid = None if lam is None or gamma is None else game.noise_value(epsilon, gamma) - lam * total_reward
    return StackelbergOutcome(
        sensitivity=game.sensitivity,
        epsilon=epsilon,
        noise_variance=noise_variance,
        reward=reward,
        utility=reward - game.sensitivity * epsilon,
        most_bits=game.most_bits if caps else np.full_like(epsilon, math.inf),
        participants=participants,
        total_reward=total_reward,
        total_noise_variance=float(noise_variance[participants].sum()),
        server_utility=paid,
        lam=lam,
    )
