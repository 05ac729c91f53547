"""SCFL: stochastic coded federated learning, Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from codedfl.schemes._options import Batch, DeviceWeight
from codedfl.training import CodedSGD, CodedUpload, InverseProbability, LocalSGD, Scheme


def scfl(batch: Batch = "adaptive", device_weight: DeviceWeight = 0.5) -> Scheme:
    """Build SCFL.

    Before training, devices upload noisy coded data. In every round devices and server take ``tau`` SGD steps, the devices on
    their samples and the server on the coded data with a make-up term against the noise; what arrives is weighted by one over
    its arrival probability, so that the update is unbiased (for ``tau = 1``) although devices are missing. The model returned
    is the step-weighted average of all iterates.

    References:
        Sun, Shao, Mao, Li, Zhang: Stochastic Coded Federated Learning: Theoretical Analysis and Incentive Mechanism
        Design. 2023.
    """
    return Scheme(
        name="scfl",
        title="SCFL" if batch == "adaptive" else f"SCFL (b={batch})",
        upload=CodedUpload(noise=True),
        device=LocalSGD(batch=batch),
        server=CodedSGD(make_up=True),
        aggregation=InverseProbability(device_weight),
        final="average",
    )


def scfl_fixed(
    batch: Annotated[int, Field(description="batch of every device")] = 32, device_weight: DeviceWeight = 0.5
) -> Scheme:
    """Build SCFL with a constant batch ``b_k^i = batch``, the variant of Fig. 3 in the paper."""
    return replace(scfl(batch, device_weight), name="scfl-fixed")
