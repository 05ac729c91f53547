"""FedAvg: the server adds up whatever arrives (Sec. II-B)."""

from __future__ import annotations

from codedfl.schemes._options import Batch, RoundDeadline
from codedfl.training import LocalSGD, Scheme, Sum


def fedavg(batch: Batch = "adaptive", deadline: RoundDeadline = "fixed") -> Scheme:
    """Build FedAvg as in the paper: ``tau`` local SGD steps, then ``W_{k+1} = W_k - eta_k sum_i 1_i g_i``.

    Nothing compensates for missing devices, so the model is biased towards those that arrive often.

    References:
        McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
        Data. AISTATS, 2017.
    """
    return Scheme(
        name="fedavg",
        title="FedAvg",
        upload=None,
        device=LocalSGD(batch=batch, deadline=deadline),
        server=None,
        aggregation=Sum(),
        final="last",
        colour="#E69F00",
    )
