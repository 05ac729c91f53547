"""CCFL: curvature-coded federated learning, beyond the paper."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codedfl.curvature import CurvatureCoded, FactorUpload, SubspaceUpload
from codedfl.schemes._options import RoundDeadline
from codedfl.training import InverseProbability, LocalSGD, Scheme


def ccfl(
    rank: Annotated[
        int | Literal["auto"],
        Field(
            description="directions in which a sketch shows curvature; auto is a quarter of the features, from 16 to 60"
        ),
    ] = "auto",
    sketch_rows: Annotated[int, Field(description="rows that a device sketches")] = 100,
    deadline: RoundDeadline = "auto",
    memory: Annotated[
        Literal["carried", "stale", "none"],
        Field(
            description="carried: remember every device's gradient and carry it along; stale: without carrying; none: weights 1/p"
        ),
    ] = "carried",
    sampling: Annotated[
        Literal["walk", "bernoulli"],
        Field(description="walk: go through a device's rows in turn; bernoulli: sample them anew in every round"),
    ] = "walk",
    noise: Annotated[bool, Field(description="add the setting's noise to the sketch, too")] = False,
    damping_factor: Annotated[float, Field(description="factor on the damping that the sketch suggests")] = 1.0,
    estimate_arrivals: Annotated[
        bool, Field(description="with memory none: estimate arrival probabilities from who has arrived so far")
    ] = False,
    upload: Annotated[
        Literal["subspace", "factor"],
        Field(description="subspace: a small sketch; factor: that of noisy coded rows, dear but with their privacy"),
    ] = "subspace",
) -> Scheme:
    """Build CCFL, which uses coded data as curvature and has no step size to choose.

    Before training, every device uploads a small sketch of its second moments. In every round each device computes one gradient
    on as many rows as it has time for. The server remembers the last gradients of every device, carries them to the current
    model by the device's own sketch, so that devices that are missing are represented, and takes a preconditioned step.
    The sketch shapes the path of training, not where it ends: that is the centralised optimum.

    References:
        Frangella, Rathore, Zhao, Udell: SketchySGD. SIAM Journal on Mathematics of Data Science, 2024.
        Gu, Huang, Zhang, Huang: Fast Federated Learning in the Presence of Arbitrary Device Unavailability. NeurIPS, 2021.
    """
    return CurvatureCoded(
        name="ccfl",
        title="CCFL",
        upload=SubspaceUpload(rank, sketch_rows, noise) if upload == "subspace" else FactorUpload(rank),
        device=LocalSGD(steps=1, sampling=sampling, deadline=deadline),
        server=None,
        aggregation=InverseProbability(device_weight=1.0),
        final="average",
        memory=memory,
        damping_factor=damping_factor,
        estimate_arrivals=estimate_arrivals,
    )
