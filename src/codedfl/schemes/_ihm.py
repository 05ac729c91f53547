"""IHM: iterative Hessian mixing, a few Newton steps with private sketches and private gradients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codedfl.private import HessianMixing, PrivateGradient, SketchUpload
from codedfl.training import Scheme, Sum


def ihm(
    rounds: Annotated[
        int, Field(ge=1, le=100, description="number of rounds, each with a sketch of its own and one gradient")
    ] = 3,
    budget_share: Annotated[
        float, Field(description="share of epsilon and delta for the sketches; gradients use what is left")
    ] = 0.3,
) -> Scheme:
    """Build iterative Hessian mixing.

    Before training, every device uploads one Gaussian sketch of its clipped features with noise for each round. In
    every round devices send a sum of gradients that are clipped per sample, with noise, and the server takes a Newton
    step whose Hessian comes from the sketch of that round. The ridge follows from the noise; nothing is tuned on the
    data.

    References:
        Lev, Shenfeld, Srinivasan, Ligett, Wilson: Near-Optimal Private Linear Regression via Iterative Hessian Mixing.
        arXiv:2601.07545, 2026.
    """
    return HessianMixing(
        name="ihm",
        title="IHM",
        upload=SketchUpload(rounds, budget_share),
        device=PrivateGradient(),
        server=None,
        aggregation=Sum(),
        final="last",
    )
