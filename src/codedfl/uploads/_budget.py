"""How private descent divides its budget, decided before any data is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from codedfl.losses import Loss
from codedfl.privacy import GaussianMechanism, Mechanism, PrivacyTarget
from codedfl.setting import LARGEST_GRAM, Setting
from codedfl.typing import FloatArray

CurvatureDetail = Literal["auto", "second-moments", "mean", "none"]
"""What devices tell about the geometry of their features before training."""

MEAN_SHARE, MOMENTS_SHARE = 0.03, 0.12
"""Shares of ``mu^2`` for the mean of the features and for their second moments."""

MOST_FIRST_ORDER_ROUNDS = 64
"""Rounds up to which the mean suffices; training that would take more asks for second moments."""

MOST_ROUNDS = 100

LEAST_ROUNDS, LEAST_PRECONDITIONED_ROUNDS = 4, 8
"""With second moments the curvature that is left is known to a factor of ten only, so that there are some rounds to spare."""

GROWTH = 2.0
"""Factor by which ``1 / z^2`` grows from the first round to the last: gradients close to the solution count most."""


@dataclass(frozen=True)
class Budget:
    """The noise of every message of a run, in units of its sensitivity, and the number of rounds.

    Args:
        curvature: what devices send first.
        mean_multiplier: noise of the mean; infinite if it is not sent.
        moments_multiplier: noise of the second moments; infinite if they are not sent.
        noise_multipliers: noise of the update of each round, (K,).
        effective_multiplier: that of a single update on all rows that would tell as much as all of them together.
    """

    curvature: CurvatureDetail
    mean_multiplier: float
    moments_multiplier: float
    noise_multipliers: FloatArray
    effective_multiplier: float

    def __post_init__(self) -> None:
        self.noise_multipliers.setflags(write=False)  # budgets are cached

    @property
    def rounds(self) -> int:
        """``K``."""
        return len(self.noise_multipliers)

    @property
    def uploads(self) -> tuple[tuple[str, GaussianMechanism], ...]:
        """What is sent before the rounds."""
        sent = (("mean of the features", self.mean_multiplier), ("second moments", self.moments_multiplier))
        return tuple((name, GaussianMechanism(z)) for name, z in sent if math.isfinite(z))


def divide(
    setting: Setting, target: PrivacyTarget, loss: Loss, curvature: CurvatureDetail, sampling_rate: float, rounds: int
) -> Budget:
    """Divide the budget of a run between curvature and updates; see `Budget`.

    All of it follows from public numbers: the dimension, the numbers of samples and devices, and the target.

    Args:
        setting: the data, of which only the sizes are used.
        target: what to keep.
        loss: what is minimised.
        curvature: what devices send first; ``auto`` for the least that keeps training within `MOST_FIRST_ORDER_ROUNDS`.
        sampling_rate: ``q``.
        rounds: ``K``; 0 for the number that the predicted conditioning asks for.
    """
    devices = int(np.count_nonzero(setting.federation.samples))
    noise = 1.0 if target.sums_only else math.sqrt(devices)
    return _divide(
        target,
        loss,
        setting.federation.dimension,
        setting.federation.total_samples,
        noise,
        curvature,
        sampling_rate,
        rounds,
    )


@lru_cache(maxsize=256)
def _divide(
    target: PrivacyTarget,
    loss: Loss,
    dimension: int,
    samples: int,
    noise: float,
    curvature: CurvatureDetail,
    sampling_rate: float,
    rounds: int,
) -> Budget:
    if curvature == "auto":
        first_order = _divide(target, loss, dimension, samples, noise, "mean", 1.0, 0)
        few = first_order.rounds <= MOST_FIRST_ORDER_ROUNDS
        curvature = "mean" if few or dimension > LARGEST_GRAM else "second-moments"
    mean = target.multiplier_for_share(MEAN_SHARE) if curvature in ("mean", "second-moments") else math.inf
    moments = target.multiplier_for_share(MOMENTS_SHARE) if curvature == "second-moments" else math.inf
    besides: tuple[Mechanism, ...] = tuple(GaussianMechanism(z) for z in (mean, moments) if math.isfinite(z))
    alone = target.noise_multiplier(besides=besides)
    if not rounds:
        if curvature == "second-moments":
            # tau / ridge: the largest error of the second moments over what the noise of the updates asks for.
            conditioning, factor, least = math.sqrt(2 * dimension) * moments, 1.7, LEAST_PRECONDITIONED_ROUNDS
        else:
            conditioning, factor, least = samples / noise, 1.4, LEAST_ROUNDS
        conditioning *= loss.curvature * loss.noise_share / (loss.clip_share * alone)
        needed = factor * math.sqrt(1 + conditioning)
        rounds = math.ceil(min(max(needed * (1 if sampling_rate == 1 else 2), least), MOST_ROUNDS))
    if sampling_rate == 1:
        weights = GROWTH ** (np.arange(rounds) / rounds)
        multipliers = alone * np.sqrt(weights.sum() / weights)
        return Budget(curvature, mean, moments, multipliers, alone)
    each = target.noise_multiplier(updates=rounds, sampling_rate=sampling_rate, besides=besides)
    effective = each / (sampling_rate * math.sqrt(rounds))
    return Budget(curvature, mean, moments, np.full(rounds, each), effective)
