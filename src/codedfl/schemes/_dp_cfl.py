"""DP-CFL: the server trains alone on noisy coded data."""

from __future__ import annotations

from codedfl.training import CodedSGD, Idle, Scheme, Sum
from codedfl.uploads import CodedRows


def dp_cfl() -> Scheme:
    """Build DP-CFL.

    The coded data is that of SCFL. Devices are idle after the upload, and there is no make-up term, so training tends
    to the ridge solution with penalty ``sigma^2``.

    References:
        Anand, Dhakal, Akdeniz, Edwards, Himayat: Differentially Private Coded Federated Linear Regression. IEEE Data Science and
        Learning Workshop, 2021.
    """
    return Scheme(
        name="dp-cfl",
        title="DP-CFL",
        upload=CodedRows(noise=True),
        device=Idle(),
        server=CodedSGD(make_up=False),
        aggregation=Sum(),
        final="last",
        colour="#CC79A7",
    )
