"""SCFL: stochastic coded federated learning, Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from codedfl.schemes._options import Batch, DeviceWeight, UploadKind, WeightCap, coded_upload
from codedfl.training import CodedSGD, InverseProbability, LocalSGD, Scheme


def scfl(
    batch: Batch = "adaptive",
    device_weight: DeviceWeight = 0.5,
    weight_cap: WeightCap = 100.0,
    upload: UploadKind = "rows",
) -> Scheme:
    """Build SCFL.

    Before training, devices upload noisy coded data. In every round the devices take ``tau`` SGD steps on their
    samples, and the server takes ``tau`` on the coded data, with a make-up term that removes the bias of the noise.
    Updates that arrive are weighted by one over their arrival probability, so the global update is unbiased (for
    ``tau = 1``) although devices are missing. SCFL returns the step-weighted average of all iterates.

    With the triangular factor of the coded rows (``upload``) the server takes full-batch steps, and keeps devices apart, which
    makes its part more exact.

    References:
        Sun, Shao, Mao, Li, Zhang: Stochastic Coded Federated Learning: Theoretical Analysis and Incentive Mechanism
        Design. 2023.
    """
    return Scheme(
        name="scfl",
        title="SCFL" if batch == "adaptive" else f"SCFL (b={batch})",
        upload=coded_upload(upload),
        device=LocalSGD(batch=batch),
        server=CodedSGD(make_up=True),
        aggregation=InverseProbability(device_weight, weight_cap),
        final="average",
        colour="#0072B2",
        prominent=True,
    )


def scfl_fixed(
    batch: Annotated[int, Field(description="batch of every device")] = 32,
    device_weight: DeviceWeight = 0.5,
    weight_cap: WeightCap = 100.0,
) -> Scheme:
    """Build SCFL with a constant batch ``b_k^i = batch``, the variant of Fig. 3 in the paper."""
    scheme = scfl(batch, device_weight, weight_cap)
    return replace(scheme, name="scfl-fixed", colour="#56B4E9", prominent=False)
