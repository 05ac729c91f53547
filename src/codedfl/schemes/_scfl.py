"""SCFL: stochastic coded federated learning, Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from codedfl.training import CodedSGD, CodedUpload, InverseProbability, LocalSGD, Scheme


def scfl(batch: int | Literal["adaptive"] = "adaptive", device_weight: float = 0.5) -> Scheme:
    """Build SCFL.

    Before training, devices upload noisy coded data. In every round devices and server take ``tau`` SGD steps, the devices on
    their samples and the server on the coded data with a make-up term against the noise; what arrives is weighted by one over
    its arrival probability, so that the update is unbiased (for ``tau = 1``) although devices are missing. The model returned
    is the step-weighted average of all iterates.

    Args:
        batch: ``adaptive``, or a fixed batch for every device.
        device_weight: share of the devices in the update; the paper has 1/2.

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


def scfl_fixed(batch: int = 32, device_weight: float = 0.5) -> Scheme:
    """Build SCFL with a constant batch ``b_k^i = batch``, the variant of Fig. 3 in the paper.

    Args:
        batch: the batch of every device.
        device_weight: share of the devices in the update; the paper has 1/2.
    """
    return replace(scfl(batch, device_weight), name="scfl-fixed")
