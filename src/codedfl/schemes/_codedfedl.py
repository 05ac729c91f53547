"""CodedFedL: mini-batch gradients with parity data at the server, one step per round."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codedfl.schemes._options import Deadline, ParityNoise
from codedfl.training import AllocatedGradient, ParityGradient, Scheme, Sum
from codedfl.uploads import CodedRows


def codedfedl(
    mini_batches: Annotated[
        int, Field(description="number of parts the data is split into; each has c / mini_batches parity rows")
    ] = 20,
    deadline: Deadline = "fixed",
    noise: ParityNoise = False,
) -> Scheme:
    """Build CodedFedL.

    The data is split into mini-batches, and each round draws one. Every device computes the gradient over its allocated
    points of that mini-batch. The server adds the gradient on the mini-batch's parity data, weighted so that the sum is
    unbiased over the projection and the arrivals. There is one step per round.

    References:
        Prakash, Dhakal, Akdeniz, Yona, Talwar, Avestimehr, Himayat: Coded Computing for Low-Latency Federated Learning over
        Wireless Edge Networks. IEEE Journal on Selected Areas in Communications, 2021.
    """
    return Scheme(
        name="codedfedl",
        title="CodedFedL",
        upload=CodedRows(noise=noise),
        device=AllocatedGradient(mini_batches, deadline),
        server=ParityGradient(),
        aggregation=Sum(),
        final="last",
        colour="#009E73",
    )
