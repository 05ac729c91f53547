"""One shot: least squares from the coded data alone, without training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from codedfl._validation import require_non_negative
from codedfl.coding import CodedData, coded_solution
from codedfl.schemes._options import UploadKind, coded_upload
from codedfl.setting import Setting
from codedfl.training import DevicePlan, Forecastable, Idle, OneShot, Scheme, Sum
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class CodedSolution(OneShot[tuple[CodedData, ...]]):
    """The solution of `codedfl.coding.coded_solution` on the coded data.

    Args:
        ridge_share: the ridge, in units of the predicted operator norm of the error.
    """

    ridge_share: float = 0.25

    forecast: ClassVar[Forecastable | None] = "solution"

    def __post_init__(self) -> None:
        require_non_negative("ridge_share", self.ridge_share)

    def solve(self, held: tuple[CodedData, ...]) -> FloatArray:
        """Return the solution."""
        (coded,) = held
        return coded_solution(coded, self.ridge_share)

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:
        """Return the arithmetic of second moments of the rows held, an eigendecomposition (``4.5 d^3``) and two products."""
        d, o = setting.federation.dimension, setting.federation.outputs
        rows = self.upload.rows_held(setting, plan) if self.upload else 0
        return rows * (d * (d + 1) / 2 + d * o) + 4.5 * float(d) ** 3 + 2 * float(d) ** 2 * o


def one_shot(
    upload: UploadKind = "factor",
    ridge_share: Annotated[
        float,
        Field(description="ridge, in units of the predicted operator norm of the error of the coded second moments"),
    ] = 0.25,
) -> Scheme:
    """Build the one-shot solution.

    Devices upload noisy coded data as in SCFL. The server removes the mean of the noise from its second moments, sets negative
    eigenvalues to zero, adds a ridge that the error of the second moments calls for, and solves. No rounds follow, so nothing
    but the upload reveals anything.
    """
    return CodedSolution(
        name="one-shot",
        title="One shot",
        upload=coded_upload(upload),
        device=Idle(),
        server=None,
        aggregation=Sum(),
        final="last",
        colour="#882255",
        ridge_share=ridge_share,
    )
