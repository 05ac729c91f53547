"""The privacy of a run's upload by itself: its epsilon, and what that would be against somebody who sees less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from codedfl.coding import Rows
from codedfl.experiment._privacy_statement import upload_releases
from codedfl.privacy import CodedMechanism, Release, guarantee_of
from codedfl.setting import Setting
from codedfl.training import DevicePlan, RunResult, Scheme

HIDING_VARIANCE, HIDING_BOUND = 1e300, 1e150
"""Noise variance, and bound on labels that sizes their noise, with which labels tell nothing to the precision of a number."""


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
        sent = upload_releases(scheme, setting, plan)
        features = upload_releases(scheme, _without_labels(setting), plan)
        adds_up = scheme.upload.can_be_summed and not (setting.privacy is not None and setting.privacy.sums_only)
        summed = _in_sum(scheme, setting, plan) if adds_up else sent
        epsilons = {
            "epsilon_features": guarantee_of(features, delta).epsilon,
            "epsilon": guarantee_of(sent, delta).epsilon,
            "epsilon_in_sum": guarantee_of(summed, delta).epsilon,
        }
    bits, meaning = scheme.upload.mi_dp(setting, plan)
    return {"mi_dp_bits": bits, "mi_dp": meaning, **epsilons}


def _without_labels(setting: Setting) -> Setting:
    """Return a setting in which so much noise is on the labels that only what an upload tells about features counts."""
    code, target = setting.code, setting.privacy
    hiding = np.full_like(code.label_noise_variance, HIDING_VARIANCE)
    bound = 1.0 if code.label_bound is None else code.label_bound
    return replace(
        setting,
        code=replace(code, label_noise_variance=hiding, label_bound=bound),
        privacy=None if target is None else replace(target, label_bound=HIDING_BOUND),
    )


def _in_sum(scheme: Scheme, setting: Setting, plan: DevicePlan) -> list[tuple[Release, ...]]:
    """Return what each device sends as it is in the sum over devices, in which the noise of all of them adds up."""
    code, uploading = setting.code, setting.code.uploading
    if setting.privacy is None:
        noise, label_noise = (
            np.full_like(values, values[uploading].sum()) for values in (code.noise_variance, code.label_noise_variance)
        )
        summed = replace(code, noise_variance=noise, label_noise_variance=label_noise)
        return upload_releases(scheme, replace(setting, code=summed), plan)
    # With a target, all devices have the same noise.
    devices = int(np.count_nonzero(uploading))
    return [
        tuple(
            replace(release, mechanism=replace(mechanism, signal_to_noise=mechanism.signal_to_noise / devices))
            if isinstance(mechanism := release.mechanism, CodedMechanism)
            else release
            for release in sent
        )
        for sent in upload_releases(scheme, setting, plan)
    ]


def clipped_share(setting: Setting) -> float:
    """Return the share of samples that clipping weights down; 0 without clipping."""
    if setting.code.clip_norm is None:
        return 0.0
    norms = Rows(setting.federation.features, setting.federation.labels).norms()
    return float(np.mean(norms > setting.code.clip_norm))
