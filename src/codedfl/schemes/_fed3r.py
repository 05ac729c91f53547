"""Fed3R: exact statistics of every device, and ridge regression at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import scipy.linalg
from pydantic import Field

from codedfl._validation import require_non_negative
from codedfl.coding import Gram
from codedfl.parallel import one_blas_thread
from codedfl.setting import Setting
from codedfl.training import DevicePlan, Forecastable, Idle, OneShot, Scheme, Sum
from codedfl.typing import FloatArray
from codedfl.uploads import ExactStatistics


@dataclass(frozen=True)
class RidgeRegression(OneShot[Gram]):
    """``(X^T X + r I)^-1 X^T Y`` from the sums of all devices' statistics.

    Args:
        ridge: ``r``; 0 for plain least squares, with the solution of least norm where it is not unique.
    """

    ridge: float = 0.0

    forecast: ClassVar[Forecastable | None] = "solution"

    def __post_init__(self) -> None:
        require_non_negative("ridge", self.ridge)

    @one_blas_thread()
    def solve(self, held: Gram) -> FloatArray:
        """Return the solution."""
        if self.ridge == 0.0:
            return held.optimum
        damped = held.features + self.ridge * np.eye(held.dimension)
        solution: FloatArray = scipy.linalg.solve(damped, held.cross, assume_a="pos")
        return solution

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        """Return ``d^3 / 3 + d^2 o``, a factorisation and two triangular solves."""
        d, o = setting.federation.dimension, setting.federation.outputs
        return d**3 / 3 + float(d) ** 2 * o


def fed3r(
    ridge: Annotated[
        float, Field(description="penalty on the squared model, in units of X^T X; 0 for least squares")
    ] = 0.0,
) -> Scheme:
    """Build Fed3R.

    Every device uploads ``X_i^T X_i`` and ``X_i^T Y_i`` once, exact; the server adds them up and solves. The result is that of
    centralised ridge regression. There is no privacy guarantee.

    References:
        Fanì, Camoriano, Caputo, Ciccone: Accelerating Heterogeneous Federated Learning with Closed-form Classifiers. ICML, 2024.
    """
    return RidgeRegression(
        name="fed3r",
        title="Fed3R",
        upload=ExactStatistics(),
        device=Idle(),
        server=None,
        aggregation=Sum(),
        final="last",
        colour="#117733",
        ridge=ridge,
    )
