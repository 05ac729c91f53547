"""SCFL with private updates: one (epsilon, delta) for the coded upload and all updates together."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codedfl.private import CodedDescent, PrivateGradient
from codedfl.schemes._options import DeviceWeight, UploadKind
from codedfl.training import CodedSGD, CodedUpload, Scheme, Sum


def scfl_private(
    budget_share: Annotated[
        float,
        Field(gt=0, lt=1, description="share of epsilon and delta for the coded upload; updates use what is left"),
    ] = 0.5,
    device_weight: DeviceWeight = 0.5,
    upload: UploadKind = "rows",
    rounds: Annotated[
        int, Field(ge=0, description="number of rounds; 0 for as many as the predicted conditioning asks for")
    ] = 0,
) -> Scheme:
    """Build SCFL with private updates.

    Devices upload noisy coded data as in SCFL, with a share of the budget. In every round they send one sum of
    gradients, clipped per sample and with noise, and the server computes a gradient on the coded data with the make-up
    term. Both are combined as in SCFL, with a ridge that makes up for the negative eigenvalues of the coded Hessian.
    Nothing is tuned on the data.

    References:
        Sun, Shao, Mao, Li, Zhang: Stochastic Coded Federated Learning: Theoretical Analysis and Incentive Mechanism
        Design. 2023.
    """
    return CodedDescent(
        name="scfl-private",
        title="SCFL, private",
        upload=CodedUpload(noise=True, kind=upload, budget_share=budget_share),
        device=PrivateGradient(),
        server=CodedSGD(make_up=True),
        aggregation=Sum(),
        final="average",
        device_weight=device_weight,
        own_rounds=rounds,
    )
