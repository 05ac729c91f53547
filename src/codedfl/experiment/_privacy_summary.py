"""The privacy of a run's upload by itself: its epsilon, and what that would be against somebody who sees less."""

from __future__ import annotations

from typing import Any

import numpy as np

from codedfl.coding import Rows
from codedfl.experiment._privacy_statement import upload_releases
from codedfl.privacy import guarantee_of
from codedfl.setting import Setting
from codedfl.training import DevicePlan, RunResult, Scheme


def privacy_of(result: RunResult, delta: float) -> dict[str, Any]:
    """Return the budgets of a run's upload; see `upload_privacy`."""
    return upload_privacy(result.scheme, result.prepared.setting, result.prepared.device, delta)


def upload_privacy(scheme: Scheme, setting: Setting, plan: DevicePlan, delta: float) -> dict[str, Any]:
    """Return the budgets of a scheme's upload, the largest over devices, with their meaning.

    All epsilons follow from the mechanisms of `Upload.releases`, as the guarantee of a run does, and from nothing else.

    Args:
        scheme: the scheme.
        setting: data and code.
        plan: the work of the devices, which says how many coded rows there are.
        delta: that of the (epsilon, delta) guarantees.

    Returns:
        ``mi_dp_bits``, the paper's bound for one entry of the coded features, and ``mi_dp``, what it means; ``epsilon``, that of
        the guarantee of a run, which covers the upload and no more; ``epsilon_features``, if nobody saw what the upload tells
        about labels, and ``epsilon_in_sum``, if the server saw only the sum over devices. Infinite without a guarantee; None
        without an upload, and where the guarantee covers updates as well, so that the upload alone has none.
    """
    epsilons: dict[str, float | None] = dict.fromkeys(("epsilon_features", "epsilon", "epsilon_in_sum"))
    if scheme.upload is None:
        return {"mi_dp_bits": None, "mi_dp": "no coded upload", **epsilons}
    if plan.precision(0) == 0:
        upload = scheme.upload
        views = {
            "epsilon_features": upload.releases_of_features,
            "epsilon": upload.releases,
            "epsilon_in_sum": upload.releases_in_sum,
        }
        epsilons = {
            name: guarantee_of(upload_releases(scheme, setting, plan, releases), delta).epsilon
            for name, releases in views.items()
        }
    bits, meaning = scheme.upload.mi_dp(setting, plan)
    return {"mi_dp_bits": bits, "mi_dp": meaning, **epsilons}


def clipped_share(setting: Setting) -> float:
    """Return the share of samples that clipping weights down; 0 without clipping."""
    if setting.code.clip_norm is None:
        return 0.0
    norms = Rows(setting.federation.features, setting.federation.labels).norms()
    return float(np.mean(norms > setting.code.clip_norm))
