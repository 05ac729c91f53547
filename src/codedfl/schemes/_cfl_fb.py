"""CFL-FB: full-batch gradients with parity data at the server, one step per round."""

from __future__ import annotations

from codedfl.schemes._options import Deadline, ParityNoise
from codedfl.training import AllocatedGradient, ParityGradient, Scheme, Sum
from codedfl.uploads import CodedRows


def cfl_fb(deadline: Deadline = "fixed", noise: ParityNoise = False) -> Scheme:
    """Build CFL-FB, which is CodedFedL with a single mini-batch: all data.

    References:
        Dhakal, Prakash, Yona, Talwar, Himayat: Coded Federated Learning. IEEE Globecom Workshops, 2019.
    """
    return Scheme(
        name="cfl-fb",
        title="CFL-FB",
        upload=CodedRows(noise=noise),
        device=AllocatedGradient(mini_batches=1, deadline=deadline),
        server=ParityGradient(),
        aggregation=Sum(),
        final="last",
        colour="#999999",
    )
