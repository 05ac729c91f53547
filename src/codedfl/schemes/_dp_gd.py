"""DP-GD: private gradient descent, with everything that a device sends covered by one (epsilon, delta)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codedfl.private import CurvatureUpload, PrivateDescent, PrivateGradient
from codedfl.training import Scheme, Sum


def dp_gd(
    sampling_rate: Annotated[
        float, Field(description="probability with which a row is in a round's batch; 1 for all rows in every round")
    ] = 1.0,
    curvature: Annotated[
        Literal["auto", "second-moments", "mean", "none"],
        Field(
            description="what devices send about their features before training, with noise: second-moments, their mean, or none;"
            " auto is second-moments where the mean would take more than 64 rounds"
        ),
    ] = "auto",
    loss: Annotated[
        Literal["auto", "square", "softmax"],
        Field(
            description="what is minimised; auto is softmax (logistic regression) for classes, square for a regression"
        ),
    ] = "auto",
    rounds: Annotated[int, Field(ge=0, description="number of rounds; 0 for as many as the noise is worth")] = 0,
) -> Scheme:
    """Build private gradient descent.

    Devices first send the mean of their features with noise and, where there is enough data for it, their second moments. In
    these coordinates they then send, once a round, a sum of gradients clipped per sample, with noise. The server adds a ridge
    that the noise asks for and takes heavy-ball steps. Nothing is tuned on the data.

    References:
        Abadi et al.: Deep Learning with Differential Privacy. CCS, 2016.
    """
    return PrivateDescent(
        name="dp-gd",
        title="DP-GD",
        upload=CurvatureUpload(loss, curvature, sampling_rate, rounds),
        device=PrivateGradient(sampling_rate),
        server=None,
        aggregation=Sum(),
        final="average",
    )
