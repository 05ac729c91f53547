"""The privacy of a run: what its devices sent, what that guarantees, what no guarantee covers, and its upload by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codedfl._messages import listing
from codedfl.coding import Rows
from codedfl.config import Config
from codedfl.data import FeatureMap, Preprocessing
from codedfl.privacy import Guarantee, Release, guarantee_of, update_releases
from codedfl.setting import Setting
from codedfl.training import DevicePlan, RunResult, Scheme

SIMULATED = (
    "noise of a simulation comes from a seed and protects nobody; on real devices it comes from the operating system"
)

SPLIT = (
    "how a device splits its samples into mini-batches is taken to be public, and to stay as it is for the others when a sample"
    " is added or removed"
)

MOST_NAMES = 8
"""Largest number of columns that a clause names."""


def upload_releases(
    scheme: Scheme,
    setting: Setting,
    plan: DevicePlan,
    releases: Callable[[Setting, DevicePlan, int], tuple[Release, ...]] | None = None,
) -> list[tuple[Release, ...]]:
    """Return what each device sends before the rounds, each with its mechanism: what sets the clip norm, and the upload.

    Args:
        scheme: the scheme.
        setting: data and code.
        plan: the work of the devices.
        releases: those of the upload to somebody who sees less of it, such as `Upload.releases_in_sum`; by default all.
    """
    spent = setting.privacy.spent if setting.privacy else ()
    preparation = tuple(Release("norms of the samples", mechanism, preparation=True) for mechanism in spent)
    devices = range(setting.federation.devices)
    if scheme.upload is None:
        return [preparation for _ in devices]
    releases = releases or scheme.upload.releases
    return [(*preparation, *releases(setting, plan, device)) for device in devices]


def releases_of(result: RunResult) -> list[tuple[Release, ...]]:
    """Return everything that each device sent in a run, each with its mechanism.

    Uploads come from the scheme; updates are counted by the ledger of the run, late ones included. Which rounds a device took
    part in depends on the channel and not on its data.
    """
    prepared, ledger = result.prepared, result.progress.ledger
    uploads = upload_releases(result.scheme, prepared.setting, prepared.device)
    return [
        (*sent, *update_releases(int(updates), float(precision), prepared.device.sampling_rate))
        for sent, updates, precision in zip(uploads, ledger.updates, ledger.precision, strict=True)
    ]


def guarantee_of_run(
    result: RunResult, config: Config, feature_map: FeatureMap, preprocessing: Preprocessing | None = None
) -> Guarantee:
    """Return what may be claimed about a run, per sample added or removed.

    Args:
        result: the run.
        config: its configuration.
        feature_map: from raw inputs to features.
        preprocessing: from the columns of a table to raw inputs, if the data is one.
    """
    target = result.prepared.setting.privacy
    return guarantee_of(
        releases_of(result),
        config.privacy.delta,
        against="sums only" if target is not None and target.sums_only else "each message",
        outside=_outside(result, config, feature_map, preprocessing),
    )


def _outside(
    result: RunResult, config: Config, feature_map: FeatureMap, preprocessing: Preprocessing | None
) -> list[str]:
    """Return what the guarantee leaves out, one clause each."""
    outside = ["how many samples each device has is taken to be public", SIMULATED]
    prepared = result.prepared
    if prepared.scheme.upload is not None and len(prepared.device.coded_rows(prepared.setting.code.coded_samples)) > 1:
        outside.append(SPLIT)
    if result.choice is not None:
        outside.append("the step size was chosen on held-out samples of the devices")
    if feature_map.input_mean is not None or not (feature_map.output_scale == 1).all():
        outside.append("means and scales of the features were fitted to the pooled samples")
    if feature_map.frequencies is not None and config.features.gamma == "scale":
        outside.append("features.gamma was fitted to the variance of the pooled samples")
    if preprocessing is not None and preprocessing.learnt:
        outside.append(_learnt(preprocessing))
    return outside


def _learnt(preprocessing: Preprocessing) -> str:
    """Return the clause about what the preprocessing of a table learnt, and how to be without."""
    learnt = [column for column in preprocessing.columns if not column.given]
    by_kind = {
        "median": [column.name for column in learnt if column.kind in ("number", "date")],
        "most frequent value": [column.name for column in learnt if column.kind in ("boolean", "category")],
    }
    parts = [
        f"the {what}{'s' if len(names) > 1 else ''} of {listing(names, MOST_NAMES)}"
        for what, names in by_kind.items()
        if names
    ]
    if categories := [column.name for column in learnt if column.kind == "category"]:
        parts.append(f"the categories of {listing(categories, MOST_NAMES)}")
    return (
        f"{', and '.join(parts)} {'was' if len(learnt) == 1 and not categories else 'were'} learnt from the pooled samples"
        " (data.bounds and data.categories avoid that)"
    )


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
