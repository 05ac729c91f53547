"""Noisy statistics: the second moments of all samples by the Gaussian mechanism, and least squares from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import scipy.linalg

from codedfl._validation import require_non_negative
from codedfl.coding import Rows, compute_gram
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy import GaussianMechanism
from codedfl.private._curvature import clip_norm_of, noise_of_upload
from codedfl.private._devices import require_target
from codedfl.training import (
    LARGEST_GRAM,
    Code,
    DevicePlan,
    Held,
    OneShot,
    PreparedScheme,
    Release,
    Setting,
    UploadCost,
    without_code,
)
from codedfl.typing import FloatArray

StatisticsMethod = Literal["ridge", "adassp"]
"""How noisy statistics are released and solved: all at once with a ridge by `noise_norm`, or as in AdaSSP."""

FAILURE = 0.05
"""``rho`` of AdaSSP, the probability with which its bound on the noise may fail."""

NEGLIGIBLE = 1e-12
"""An eigenvalue below this share of the largest counts as zero."""


def joint_sensitivity(norm_bound: float, label_bound: float) -> float:
    """Return ``sqrt(B^4 + B^2 B_Y^2)``, the most that one sample changes ``(X^T X, X^T Y)`` by in Frobenius norm.

    ``||x x^T||_F = ||x||^2`` and ``||x y^T||_F = ||x|| ||y||``, so a sample with both norms at their bounds reaches it.

    Example:
        >>> round(joint_sensitivity(1.0, 1.0) ** 2, 12)
        2.0
    """
    return norm_bound * math.hypot(norm_bound, label_bound)


def noise_norm(dimension: int, deviation: float) -> float:
    """Return ``sqrt(2 d) s``, the operator norm of ``s (E + E^T) / 2`` for large ``d``, by Wigner's law.

    Example:
        >>> noise_norm(50, 3.0)
        30.0
    """
    return math.sqrt(2 * dimension) * deviation


@dataclass(frozen=True, eq=False)
class NoisyStatistics(Held):
    """What the server knows: statistics of all clipped samples, with noise.

    Args:
        features: ``X^T X + s (E + E^T) / 2``, (d, d).
        cross: ``X^T Y + s_Y F``, (d, o).
        deviation: ``s``.
        cross_deviation: ``s_Y``, equal to ``s`` unless the method is ``adassp``.
        least_eigenvalue: what ``lambda_min(X^T X)`` exceeds with a high probability; 0 if nothing was sent about it.
    """

    features: FloatArray
    cross: FloatArray
    deviation: float
    cross_deviation: float
    least_eigenvalue: float = 0.0


@dataclass(frozen=True)
class StatisticsUpload:
    """``X_i^T X_i + s (E + E^T) / 2`` and ``X_i^T Y_i + s F`` of every device, of rows clipped to ``B``: one Gaussian mechanism.

    One sample changes both together by at most `joint_sensitivity`, which ``s`` is the noise multiplier times. If the server sees
    sums only, all shares of noise add up to one mechanism's; if it sees each message, every device adds all of it, so the sum has
    ``N`` times the variance. A simulation draws the sum, which has the same law.

    With ``adassp`` the budget is divided by three, in equal shares of ``mu^2``: for the least eigenvalue (sensitivity
    ``B^2``), for ``X^T X`` (``B^2``) and for ``X^T Y`` (``B B_Y``). The sum of the devices' least eigenvalues is not
    above that of the sum.

    Args:
        method: what is released.
    """

    method: StatisticsMethod = "ridge"

    @property
    def noise(self) -> bool:
        """True: it is private."""
        return True

    def mechanism(self, setting: Setting) -> GaussianMechanism:
        """Return the mechanism of what a device sends: all of the budget, less what was spent before."""
        releases = 3 if self.method == "adassp" else 1
        multiplier = require_target(setting, "noisy statistics").noise_multiplier(updates=releases)
        return GaussianMechanism(multiplier, releases)

    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[NoisyStatistics], UploadCost]:
        """Return the statistics that the server holds, and the cost."""
        target, bound = require_target(setting, "noisy statistics"), clip_norm_of(setting)
        multiplier = self.mechanism(setting).noise_multiplier * noise_of_upload(setting)
        devices = [setting.rows(i).clipped(bound) for i in range(setting.federation.devices)]
        gram = compute_gram(devices, setting.workers)
        least = 0.0
        if self.method == "adassp":
            deviation, cross_deviation = multiplier * bound**2, multiplier * bound * target.label_bound
            draw = float(setting.streams.at("private-least-eigenvalue").standard_normal())
            caution = math.sqrt(math.log(6 / target.delta))
            least = max(0.0, _sum_of_least_eigenvalues(devices) + deviation * (draw - caution))
        else:
            deviation = cross_deviation = multiplier * joint_sensitivity(bound, target.label_bound)
        rng = setting.streams.at("private-statistics")
        draws = rng.standard_normal(gram.features.shape)
        features = gram.features + deviation * (draws + draws.T) / 2
        cross = gram.cross + cross_deviation * rng.standard_normal(gram.cross.shape)
        held = NoisyStatistics(features, cross, deviation, cross_deviation, least)
        return (held,), self.cost(setting, plan)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:  # noqa: ARG002
        """Charge ``d (d + 1) / 2 + d o`` numbers, ``l`` times as many MACs, and ``4 d^3 / 3`` for a least eigenvalue."""
        federation, adaptive = setting.federation, self.method == "adassp"
        d, devices = federation.dimension, federation.devices
        moments = d * (d + 1) / 2 + d * federation.outputs
        return UploadCost.charged(
            setting,
            np.full(devices, moments + adaptive),
            federation.samples * moments + adaptive * 4 / 3 * float(d) ** 3,
            devices * moments,
        )

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse a setting without a target or a clip norm, and second moments that are too large to hold."""
        require_target(setting, "noisy statistics")
        clip_norm_of(setting)
        if setting.federation.dimension + setting.federation.outputs > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold X^T X (at most {LARGEST_GRAM} columns)"
                ": use fewer features, or leave this scheme out."
            )

    def depends_on(self, code: Code) -> Code:
        """Return a blank code with the clip norm: nothing is coded."""
        return replace(without_code(code), clip_norm=code.clip_norm)

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the mechanism of what a device sends."""
        return (Release("noisy statistics", self.mechanism(setting)),)


@dataclass(frozen=True)
class StatisticsSolution(OneShot):
    """Least squares from noisy statistics, with a ridge by the noise.

    ``ridge``: negative eigenvalues of ``X^T X + noise`` are set to zero, and the ridge is a share of `noise_norm`.
    ``adassp``: the ridge is ``max(0, sqrt(d ln(2 d^2 / rho)) s - lambda_min)``, as much as the noise may exceed the
    least eigenvalue.

    Args:
        ridge_share: the ridge in units of the predicted operator norm of the noise, for the method ``ridge``.
    """

    ridge_share: float = 0.25

    def __post_init__(self) -> None:
        require_non_negative("ridge_share", self.ridge_share)

    @property
    def private(self) -> bool:
        """True."""
        return True

    @one_blas_thread()
    def solve(self, prepared: PreparedScheme) -> FloatArray:
        """Return the solution."""
        (held,) = (held for held in prepared.uploaded if isinstance(held, NoisyStatistics))
        values, vectors = scipy.linalg.eigh(held.features)
        d = len(values)
        if cast(StatisticsUpload, self.upload).method == "adassp":
            bound = math.sqrt(d * math.log(2 * d**2 / FAILURE)) * held.deviation
            damped = values + max(0.0, bound - held.least_eigenvalue)
        else:
            damped = np.maximum(values, 0.0) + self.ridge_share * noise_norm(d, held.deviation)
        kept = damped > NEGLIGIBLE * damped.max()
        inverse = np.zeros_like(damped)
        inverse[kept] = 1.0 / damped[kept]
        solution: FloatArray = vectors @ (inverse[:, None] * (vectors.T @ held.cross))
        return solution

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        """Return ``4.5 d^3 + 2 d^2 o``, an eigendecomposition and two products."""
        d, o = setting.federation.dimension, setting.federation.outputs
        return 4.5 * float(d) ** 3 + 2 * float(d) ** 2 * o


@one_blas_thread()
def _sum_of_least_eigenvalues(devices: list[Rows]) -> float:
    """Return ``sum_i lambda_min(X_i^T X_i)``; a device with fewer rows than columns has 0."""
    return sum(
        max(0.0, float(scipy.linalg.eigvalsh(compute_gram([rows]).features, subset_by_index=[0, 0])[0]))
        for rows in devices
        if len(rows) >= rows.features.shape[1]
    )
