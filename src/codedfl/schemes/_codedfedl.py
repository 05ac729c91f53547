"""CodedFedL: mini-batch gradients with parity data at the server, one step a round."""

from __future__ import annotations

from typing import Literal

from codedfl.training import AllocatedGradient, CodedUpload, ParityGradient, Scheme, Sum


def codedfedl(mini_batches: int = 20, deadline: Literal["fixed", "free"] = "fixed", noise: bool = False) -> Scheme:
    """Build CodedFedL.

    All data is cut into mini-batches. In a round one of them is drawn; every device computes the gradient over the points of it
    that the load allocation gave to it, and the server adds the gradient on that mini-batch's parity data, whose weights
    make the sum unbiased over the projection and the arrivals. One step a round.

    Args:
        mini_batches: into how many parts the data is cut; each has ``c / mini_batches`` parity rows.
        deadline: ``fixed`` for the setting's ``T``, ``free`` for the least that the allocation allows.
        noise: add the setting's noise to the parity data. There is no make-up term, so the gradient gains ``sigma^2 W``.

    References:
        Prakash, Dhakal, Akdeniz, Yona, Talwar, Avestimehr, Himayat: Coded Computing for Low-Latency Federated Learning over
        Wireless Edge Networks. IEEE Journal on Selected Areas in Communications, 2021.
    """
    return Scheme(
        name="codedfedl",
        title="CodedFedL",
        upload=CodedUpload(noise=noise),
        device=AllocatedGradient(mini_batches, deadline),
        server=ParityGradient(),
        aggregation=Sum(),
        final="last",
    )
