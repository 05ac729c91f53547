"""The theory of a run, and how it changes with the operator's choices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.coding import CodedData
from codedfl.errors import InputError
from codedfl.privacy import mi_dp_bits, noise_variance_for_mi_dp
from codedfl.setting import Setting
from codedfl.theory import (
    Constants,
    GapBound,
    Knob,
    LimitError,
    LimitPoint,
    Reading,
    RoundLaw,
    RoundVariance,
    gap_bound,
    limit_error,
    limit_point,
    round_variance,
)
from codedfl.typing import FloatArray

READINGS: tuple[Reading, ...] = ("printed", "corrected")

FACTORS = np.geomspace(1 / 16, 16, 9)
TAUS = (1, 2, 3, 5, 8, 12, 20)
BUDGETS = 13

LEAST_NOISE = 1e-250
"""Noise variances below this count as this: their budgets would be infinite."""


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """The theory at one value of a parameter, with everything else as configured.

    Args:
        value: the value of the parameter.
        corrected: the terms of the corrected bound after all rounds, per sample.
        printed: the total of the bound as printed.
        variance: the exact variance of an update with one local step, at ``W_0``.
        floor: the gap that the coded data leaves, predicted to first order, per sample; NaN if ``X^T X`` is singular.
    """

    value: float
    corrected: dict[str, float]
    printed: float
    variance: float
    floor: float


@dataclass(frozen=True, eq=False)
class TheoryOfRun:
    """The theory of a round and of rounds like it, with the constants and step sizes of one run."""

    round: RoundLaw
    setting: Setting
    constants: Constants
    step_sizes: FloatArray
    start: FloatArray

    def bound(self, round: RoundLaw, reading: Reading) -> GapBound:
        """Return Theorem 1 for these step sizes."""
        distance = float(np.linalg.norm(self.start - round.gram.optimum))
        return gap_bound(round, self.constants, self.step_sizes, distance, reading)

    def variance(self, round: RoundLaw, model: FloatArray) -> RoundVariance:
        """Return the exact variance of an update with one local step."""
        return round_variance(round.changed(local_steps=1), model)

    def limit(self, round: RoundLaw) -> LimitError | None:
        """Return the predicted remaining gap; None if ``X^T X`` is singular."""
        try:
            return limit_error(round, float(self.step_sizes[-1]))
        except InputError:  # X^T X is singular
            return None

    def drawn_limit(self, coded: CodedData) -> LimitPoint | None:
        """Return the limit point for given coded data; None if it is not unique."""
        try:
            return limit_point(self.round.gram, coded, self.round.device_weight, self.round.coded_gram)
        except InputError:  # the Hessian that training sees is singular
            return None

    def point(self, value: float, round: RoundLaw) -> OperatingPoint:
        """Evaluate everything for one value of a parameter."""
        m, limit = float(round.samples.sum()), self.limit(round)
        printed, corrected = (self.bound(round, reading).after(len(self.step_sizes)) for reading in READINGS)
        return OperatingPoint(
            value=value,
            corrected={name: term / m for name, term in corrected.items()},
            printed=sum(printed.values()) / m,
            variance=self.variance(round, self.start).total(),
            floor=limit.terms()["code_floor"] / m if limit else float("nan"),
        )

    def sensitivity(self) -> dict[Knob, list[OperatingPoint]]:
        """Vary noise, code size, local steps and stragglers, one at a time."""
        round = self.round
        noise = round.noise_variance if round.total_noise > 0 else np.full(round.devices, 0.1)
        sizes = sorted({max(1, int(np.rint(factor * round.coded_samples))) for factor in FACTORS})
        taus = sorted({*TAUS, round.local_steps})
        fading = [round.arrival_probability**factor for factor in FACTORS]
        return {
            "noise_variance": [
                self.point(float(np.mean(factor * noise)), round.changed(noise_variance=factor * noise))
                for factor in FACTORS
            ],
            "coded_samples": [
                self.point(float(c), round.changed(coded_samples=c, server_batch=self.setting.server_batch_of(c)))
                for c in sizes
            ],
            "local_steps": [self.point(float(tau), round.changed(local_steps=tau)) for tau in taus],
            "stragglers": [
                self.point(float(np.mean(1 - p)), round.changed(arrival_probability=p)) for p in fading if p.min() > 0
            ],
        }

    def tradeoff(self) -> list[OperatingPoint]:
        """Give every device the same budget, under the bound that holds for all data, and evaluate the theory."""
        round = self.round
        middle = max(float(np.median(round.noise_variance[round.covered])) or 0.1, LEAST_NOISE)
        most, least = (mi_dp_bits(round.coded_samples, middle * factor) for factor in (1e-3, 1e3))
        points = []
        for bits in np.linspace(least, most, BUDGETS):
            noise = noise_variance_for_mi_dp(float(bits), round.coded_samples)
            points.append(self.point(float(bits), round.changed(noise_variance=np.full(round.devices, noise))))
        return points
