"""Noisy statistics: least squares from private second moments, in one shot."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codedfl.private import StatisticsSolution, StatisticsUpload
from codedfl.training import Idle, Scheme, Sum


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
        upload=StatisticsUpload(method),
        device=Idle(),
        server=None,
        aggregation=Sum(),
        final="last",
        ridge_share=ridge_share,
    )
