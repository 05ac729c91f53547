"""Schemes with private gradients: what they share, and the heavy ball that two of them roll."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from codedfl.privacy import PrivacyTarget
from codedfl.setting import Setting
from codedfl.training import PrivatePlan, Round, Scheme, SchemeState
from codedfl.typing import FloatArray, IntArray
from codedfl.uploads import GROWTH, HeldT

ROUNDS_PER_ROOT = 1.4
"""Rounds of a heavy ball in units of the square root of the ratio of the largest curvature to the least."""

TAIL = 0.2
"""Share of the rounds at the end whose iterates are averaged."""


@dataclass(frozen=True)
class PrivateScheme(Scheme[HeldT]):
    """A scheme that protects its updates, and finds its own step from public numbers and what was released with noise."""

    @property
    def private(self) -> bool:
        """True."""
        return True

    @property
    def tunes_itself(self) -> bool:
        """True: the step follows from the noise and the curvature."""
        return True

    def describe_combination(self) -> str:
        """Return that what arrives stands for all rows."""
        return "sum, scaled to all rows"


@dataclass(frozen=True)
class Course:
    """The constants of a descent.

    Args:
        ridge: ``lambda``.
        step: ``eta``.
        momentum: ``beta``.
        shares: least number of arrivals; a round with fewer is not opened.
        average_from: round from which on iterates are averaged.
        growth: factor by which the weight of an iterate grows from one round to the next.
    """

    ridge: float
    step: float
    momentum: float
    shares: int
    average_from: int
    growth: float

    @classmethod
    def polyak(cls, plan: PrivatePlan, ridge: float, root_high: float, root_low: float) -> Course:
        """Return Polyak's constants for curvature between ``l`` and ``h``.

        They are ``eta = 4 / (sqrt(h) + sqrt(l))^2`` and ``beta = ((sqrt(h) - sqrt(l)) / (sqrt(h) + sqrt(l)))^2``. The number of
        rounds was set before the curvature was known: ``l`` is at least what they resolve, as momentum for less would oscillate.

        Args:
            plan: the work of the devices, with its noise set.
            ridge: ``lambda``.
            root_high: ``sqrt(h)``.
            root_low: ``sqrt(l)``.
        """
        rounds = len(plan.noise_multipliers)
        root_low = min(max(root_low, ROUNDS_PER_ROOT * root_high / rounds), root_high)
        return cls(
            ridge=ridge,
            step=4 / (root_high + root_low) ** 2,
            momentum=((root_high - root_low) / (root_high + root_low)) ** 2,
            shares=plan.shares,
            average_from=math.floor((1 - TAIL) * rounds),
            growth=GROWTH ** (1 / rounds) if plan.sampling_rate == 1 else 1.0,
        )


@dataclass(frozen=True)
class HeavyBallState(Course, SchemeState):
    """The last iterate, its velocity and the constants of the descent.

    Args:
        velocity: that of the heavy ball, (d, o).
        samples: ``l_i``, (N,).
    """

    velocity: FloatArray
    samples: IntArray

    @property
    def position(self) -> FloatArray:
        """The last iterate in the coordinates of the descent, (d, o)."""
        return self.model

    def at(self, position: FloatArray) -> Self:
        """Return the state with another iterate."""
        return replace(self, model=position)


StateT = TypeVar("StateT", bound=HeavyBallState)


@dataclass(frozen=True)
class HeavyBall(PrivateScheme[HeldT]):
    """``v <- beta v + lambda W + g``, ``W <- W - eta v``, with the average of the last iterates as the model.

    If the server sees sums only, a round with fewer arrivals than there are shares of noise is not opened.
    """

    @abstractmethod
    def gradient_parts(self, round: Round, share: float) -> Iterable[tuple[float, FloatArray]]:
        """Yield weights and arrays whose weighted sum is ``g``.

        Args:
            round: what arrived.
            share: factor that makes the sum of the devices' updates stand for all rows.
        """

    def step(self, state: StateT, round: Round) -> tuple[StateT, Mapping[str, float]]:
        """Return the state after a step along the velocity; a round without enough arrivals changes nothing."""
        share = scale_of_round(round, state.samples, state.shares)
        if share is None:
            return replace(state, round=state.round + 1), {}
        number = state.model.dtype.type
        velocity = number(state.momentum) * state.velocity + number(state.ridge) * state.position
        for weight, part in self.gradient_parts(round, share):
            velocity += number(weight) * part
        moved = state.at(state.position - number(state.step * round.step_size) * velocity)
        weight = state.growth**round.number if round.number >= state.average_from else 0.0
        return replace(
            moved,
            round=state.round + 1,
            velocity=velocity,
            weighted_sum=state.weighted_sum + weight * moved.model,
            step_sum=state.step_sum + weight,
        ), {}

    def describe_result(self) -> str:
        """Return that it is an average."""
        return "average of recent iterates"

    def final_model(self, state: Any) -> FloatArray:
        """Return the average of the last iterates, weighted by the precision of their gradients."""
        model: FloatArray = state.average if state.step_sum > 0 else state.model
        return model


def noise_in_sum(setting: Setting, target: PrivacyTarget, shares: int) -> float:
    """Return the noise of an update of all ``N`` devices, in units of that of one mechanism.

    ``n`` of them are asked, and their sum is scaled by ``N / n``: ``N / sqrt(n)``, or ``N / sqrt(n m)`` if ``m`` devices share
    the noise of a sum.
    """
    devices = int(np.count_nonzero(setting.federation.samples))
    asked = min(setting.cohort or devices, devices)
    return devices / math.sqrt(asked * (shares if target.sums_only else 1))


def scale_of_round(round: Round, samples: IntArray, shares: int) -> float | None:
    """Return the factor that makes the sum of what arrived stand for all rows; None if the round is not opened.

    Rows of late devices are taken to be like the others, which who arrives says nothing about: whoever sees sums only cannot
    weight single devices.

    Args:
        round: the round.
        samples: ``l_i``, (N,).
        shares: least number of arrivals: a sum of fewer would lack noise.
    """
    arrived = [device for device, _ in round.attendance.arrivals()]
    rows = int(samples[arrived].sum())
    if len(arrived) < shares or rows == 0:
        return None
    return float(samples.sum()) / (rows * round.attendance.weight)
