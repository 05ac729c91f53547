"""Noisy statistics: least squares from private second moments, in one shot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import numpy as np
import scipy.linalg
from pydantic import Field

from codedfl._validation import require_non_negative
from codedfl.coding import damped_solution
from codedfl.parallel import one_blas_thread
from codedfl.setting import Setting
from codedfl.training import DevicePlan, Idle, OneShot, Scheme, Sum
from codedfl.typing import FloatArray
from codedfl.uploads import NoisyMoments, NoisyStatistics

FAILURE = 0.05
"""``rho`` of AdaSSP, the probability with which its bound on the noise may fail."""


def noise_norm(dimension: int, deviation: float) -> float:
    """Return ``sqrt(2 d) s``, the operator norm of ``s (E + E^T) / 2`` for large ``d``, by Wigner's law.

    Example:
        >>> noise_norm(50, 3.0)
        30.0
    """
    return math.sqrt(2 * dimension) * deviation


@dataclass(frozen=True)
class StatisticsSolution(OneShot[NoisyMoments]):
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
    def solve(self, held: NoisyMoments) -> FloatArray:
        """Return the solution."""
        values, vectors = scipy.linalg.eigh(held.features)
        d = len(values)
        if cast(NoisyStatistics, self.upload).method == "adassp":
            bound = math.sqrt(d * math.log(2 * d**2 / FAILURE)) * held.deviation
            damped = values + max(0.0, bound - held.least_eigenvalue)
        else:
            damped = np.maximum(values, 0.0) + self.ridge_share * noise_norm(d, held.deviation)
        return damped_solution(damped, vectors, vectors.T @ held.cross)

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        """Return ``4.5 d^3 + 2 d^2 o``, an eigendecomposition and two products."""
        d, o = setting.federation.dimension, setting.federation.outputs
        return 4.5 * float(d) ** 3 + 2 * float(d) ** 2 * o


def ssp(
    method: Annotated[
        Literal["ridge", "adassp"],
        Field(
            description="ridge: all of the budget for the second moments, and a ridge by their noise; adassp: a third of"
            " it for the least eigenvalue, which decides the ridge (AdaSSP)"
        ),
    ] = "ridge",
    ridge_share: Annotated[
        float, Field(description="ridge of the method ridge, in units of the predicted operator norm of the noise")
    ] = 0.25,
) -> Scheme:
    """Build least squares from noisy statistics (sufficient statistics perturbation).

    Every device uploads ``X_i^T X_i`` and ``X_i^T Y_i`` of its clipped rows once, with the noise that the privacy
    target asks for; the server adds them up and solves. No rounds follow.

    References:
        Wang: Revisiting Differentially Private Linear Regression: Optimal and Adaptive Prediction & Estimation in
        Unbounded Domain. UAI, 2018.
    """
    return StatisticsSolution(
        name="ssp",
        title="Noisy statistics" if method == "ridge" else "AdaSSP",
        upload=NoisyStatistics(method),
        device=Idle(),
        server=None,
        aggregation=Sum(),
        final="last",
        colour="#44AA99",
        ridge_share=ridge_share,
    )
