"""DP-CFL: the server trains alone on noisy coded data."""

from __future__ import annotations

from codedfl.training import CodedSGD, CodedUpload, Idle, Scheme, Sum


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
        upload=CodedUpload(noise=True),
        device=Idle(),
        server=CodedSGD(make_up=False),
        aggregation=Sum(),
        final="last",
    )
