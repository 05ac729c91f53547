"""The privacy of a run's coded uploads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from codedfl.coding import Rows
from codedfl.curvature import FactorUpload, SubspaceUpload
from codedfl.privacy import PrivacyAccountant, gaussian_epsilon, mi_dp_bits, sketch_sensitivity
from codedfl.training import CodedUpload, DevicePlan, RunResult, Scheme, Setting


def privacy_of(result: RunResult, delta: float) -> dict[str, Any]:
    """Return the budgets of a run's upload; see `upload_privacy`."""
    return upload_privacy(result.scheme, result.prepared.setting, result.prepared.device, delta)


def upload_privacy(scheme: Scheme, setting: Setting, plan: DevicePlan, delta: float) -> dict[str, Any]:
    """Return the budgets of a scheme's upload, the largest over devices, with their meaning.

    The factor of coded rows has the budgets of the rows, since ``R^T R`` is sufficient for their law. A sketch with noise is a
    Gaussian mechanism; MI-DP says nothing about it.

    Args:
        scheme: the scheme.
        setting: data and code.
        plan: the work of the devices, which says how many coded rows there are.
        delta: that of the (epsilon, delta) guarantees.

    Returns:
        ``mi_dp_bits`` for one entry of the features; ``epsilon_features`` for the features alone, ``epsilon`` for features and
        labels as they were uploaded and ``epsilon_in_sum`` if the server sees only the sum over devices, all in the worst
        case; None without an upload, infinite without a guarantee.
    """
    if scheme.upload is None:
        none = dict.fromkeys(("mi_dp_bits", "epsilon_features", "epsilon", "epsilon_in_sum"))
        return {**none, "mi_dp": "no coded upload"}
    if isinstance(scheme.upload, SubspaceUpload):
        return _privacy_of_sketch(setting, scheme.upload, delta)
    if not isinstance(scheme.upload, CodedUpload | FactorUpload):
        if scheme.upload.noise:
            none = dict.fromkeys(("mi_dp_bits", "epsilon_features", "epsilon", "epsilon_in_sum"))
            return {**none, "mi_dp": "no coded upload"}
        unbounded = dict.fromkeys(("mi_dp_bits", "epsilon_features", "epsilon", "epsilon_in_sum"), math.inf)
        return {**unbounded, "mi_dp": "no bound: exact statistics"}
    rows = max(plan.coded_rows(setting.code.coded_samples))
    kept_apart = isinstance(scheme.upload, FactorUpload) or scheme.upload.kind == "factor"
    code = CodedUpload(scheme.upload.noise, "factor" if kept_apart else "rows", _share(scheme)).code(setting, plan)
    on, uploading = 1.0 if scheme.upload.noise else 0.0, code.uploading
    noise, label_noise = on * code.noise_variance[uploading], on * code.label_noise_variance[uploading]
    bits = mi_dp_bits(rows, float(noise.min()))
    meaning = "data-free bound for one entry of the coded features" if math.isfinite(bits) else "no bound: no noise"
    epsilon = _epsilon(setting, rows, float(noise.min()), float(label_noise.min()), delta)
    # Second moments of several devices do not share their noise as rows do that are added up.
    return {
        "mi_dp_bits": bits,
        "mi_dp": meaning,
        "epsilon_features": _epsilon(setting, rows, float(noise.min()), None, delta),
        "epsilon": epsilon,
        "epsilon_in_sum": epsilon
        if kept_apart
        else _epsilon(setting, rows, float(noise.sum()), float(label_noise.sum()), delta),
    }


def _epsilon(setting: Setting, rows: int, noise: float, label_noise: float | None, delta: float) -> float:
    """Return the worst-case epsilon under this noise; infinite if samples are not clipped."""
    label_bound = setting.label_bound
    if setting.code.clip_norm is None or (label_noise is not None and label_bound is None):
        return math.inf
    return PrivacyAccountant(
        coded_samples=rows,
        noise_variance=noise,
        delta=delta,
        norm_bound=setting.code.clip_norm,
        label_noise_variance=label_noise,
        label_norm_bound=label_bound or 1.0,
    ).epsilon


def _share(scheme: Scheme) -> float:
    return scheme.upload.budget_share if isinstance(scheme.upload, CodedUpload) else 1.0


def _privacy_of_sketch(setting: Setting, upload: SubspaceUpload, delta: float) -> dict[str, Any]:
    """Return the budgets of a sketch; see `codedfl.privacy.sketch_sensitivity`.

    The server keeps devices apart, so there is no sum that would hide one among others.
    """
    code, bound, samples = setting.code, setting.code.clip_norm, setting.federation.samples
    sending = code.uploading & (samples > 0)
    if not upload.noise or not np.all(code.noise_variance[sending] > 0):
        unbounded = dict.fromkeys(("mi_dp_bits", "epsilon_features", "epsilon", "epsilon_in_sum"), math.inf)
        return {**unbounded, "mi_dp": "no bound: sketch without noise"}
    features = both = math.inf
    label_bound = setting.label_bound
    if bound is not None and label_bound is not None:
        features = both = 0.0
        for i in np.flatnonzero(sending):
            some = bool(upload.rows < samples[i])
            changes = sketch_sensitivity(bound, label_bound, some_rows=some)
            squares = [
                change**2 / variance if variance > 0 else math.inf
                for change, variance in zip(
                    changes, (float(code.noise_variance[i]), float(code.label_noise_variance[i])), strict=True
                )
            ]
            features, both = max(features, squares[0]), max(both, sum(squares))
    epsilon = gaussian_epsilon(math.sqrt(both), delta)
    return {
        "mi_dp_bits": None,
        "mi_dp": "not defined for sketches",
        "epsilon_features": gaussian_epsilon(math.sqrt(features), delta),
        "epsilon": epsilon,
        "epsilon_in_sum": epsilon,
    }


def clipped_share(setting: Setting) -> float:
    """Return the share of samples that clipping weights down; 0 without clipping."""
    if setting.code.clip_norm is None:
        return 0.0
    norms = Rows(setting.federation.features, setting.federation.labels).norms()
    return float(np.mean(norms > setting.code.clip_norm))
