"""Fed3R: exact statistics of every device, and ridge regression at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy.linalg
from pydantic import Field

from codedfl._validation import require_non_negative
from codedfl.parallel import one_blas_thread
from codedfl.training import DevicePlan, ExactStatistics, Idle, OneShot, PreparedScheme, Scheme, Setting, Sum
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class RidgeRegression(OneShot):
    """``(X^T X + r I)^-1 X^T Y`` from the sums of all devices' statistics.

    Args:
        ridge: ``r``; 0 for plain least squares, with the solution of least norm where it is not unique.
    """

    ridge: float = 0.0

    def __post_init__(self) -> None:
        require_non_negative("ridge", self.ridge)

    @one_blas_thread()
    def solve(self, prepared: PreparedScheme) -> FloatArray:
        """Return the solution."""
        gram = prepared.setting.gram
        if self.ridge == 0.0:
            return gram.optimum
        damped = gram.features + self.ridge * np.eye(gram.dimension)
        solution: FloatArray = scipy.linalg.solve(damped, gram.cross, assume_a="pos")
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
        ridge=ridge,
    )
