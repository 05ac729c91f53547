"""The privacy of a whole run: what covers everything that its devices sent, and what does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from codedfl._messages import listing
from codedfl.config import Config
from codedfl.data import FeatureMap, Preprocessing
from codedfl.privacy import GaussianMechanism, Mechanism, epsilon_of
from codedfl.training import Release, RunResult

Covers = Literal["everything", "upload", "nothing"]

SIMULATED = (
    "noise of a simulation comes from a seed and protects nobody; on real devices it comes from the operating system"
)

MOST_NAMES = 8
"""Largest number of columns that a clause names."""


def releases_of(result: RunResult, device: int) -> tuple[Release, ...]:
    """Return everything that a device sent in a run, each with its mechanism.

    Uploads come from the scheme; updates are counted by the ledger of the run, late ones included. Which rounds a device took
    part in depends on the channel and not on its data.
    """
    prepared, ledger = result.prepared, result.progress.ledger
    plan, setting = prepared.device, prepared.setting
    target = setting.privacy
    sent = [
        Release("norms of the samples", mechanism, preparation=True) for mechanism in (target.spent if target else ())
    ]
    if result.scheme.upload is not None:
        sent += result.scheme.upload.releases(setting, plan, device)
    rate = float(getattr(plan, "sampling_rate", 1.0))
    return (*sent, *update_releases(int(ledger.updates[device]), float(ledger.precision[device]), rate))


def update_releases(updates: int, precision: float, sampling_rate: float = 1.0) -> tuple[Release, ...]:
    """Return the updates of a device as one release; none if there were none.

    Args:
        updates: how many it sent.
        precision: the sum of ``1 / z^2`` over them; 0 if they have no noise.
        sampling_rate: ``q``.
    """
    if updates == 0:
        return ()
    if precision == 0:
        return (Release("updates", None, upload=False),)
    mechanism = (
        GaussianMechanism(1 / math.sqrt(precision))
        if sampling_rate == 1
        else GaussianMechanism(math.sqrt(updates / precision), updates, sampling_rate)
    )
    return (Release("updates", mechanism, upload=False),)


def covers(releases: tuple[Release, ...]) -> Covers:
    """Return what a guarantee covers: everything that was sent, the uploads alone, or nothing."""
    if all(release.mechanism is not None for release in releases):
        return "everything"
    uploads = [release for release in releases if release.upload and not release.preparation]
    if uploads and all(release.mechanism is not None for release in uploads):
        return "upload"
    return "nothing"


def privacy_statement(
    result: RunResult, config: Config, feature_map: FeatureMap, preprocessing: Preprocessing | None = None
) -> dict[str, Any]:
    """Return the privacy of a run in words and numbers, per sample added or removed.

    Args:
        result: the run.
        config: its configuration.
        feature_map: from raw inputs to features.
        preprocessing: from the columns of a table to raw inputs, if the data is one.

    Returns:
        ``epsilon``, the largest over devices, of what is covered (infinite if nothing is); ``delta``; ``covers``: ``everything``,
        ``upload`` or ``nothing``; ``threat_model``: ``each message`` or ``sums only``; ``devices``: epsilon of each;
        ``messages``: what the device with the largest epsilon sent, with the mechanisms; ``outside``: what no number covers.
    """
    delta, setting = config.privacy.delta, result.prepared.setting
    everything = [releases_of(result, device) for device in range(setting.federation.devices)]
    sums = setting.privacy is not None and setting.privacy.sums_only
    outside = _outside(result, config, feature_map, preprocessing)
    return statement_of(everything, delta, "sums only" if sums else "each message", outside)


def statement_of(
    everything: Sequence[tuple[Release, ...]], delta: float, threat_model: str, outside: Sequence[str]
) -> dict[str, Any]:
    """Return the privacy of what devices sent, as `privacy_statement` does.

    Args:
        everything: what each device sent.
        delta: probability with which the bound may fail.
        threat_model: what the server sees.
        outside: what no number covers, one clause each.
    """
    what = min((covers(releases) for releases in everything), key=("nothing", "upload", "everything").index)
    epsilons = [_epsilon(releases, what, delta) for releases in everything]
    worst = max(range(len(epsilons)), key=lambda device: (epsilons[device], len(everything[device])))
    return {
        "epsilon": epsilons[worst],
        "delta": delta,
        "covers": what,
        "threat_model": threat_model,
        "adjacency": "one sample more or less",
        "devices": epsilons,
        "messages": [_in_words(release) for release in everything[worst]],
        "outside": list(outside),
    }


def _epsilon(releases: tuple[Release, ...], what: Covers, delta: float) -> float:
    """Return the epsilon of what is covered."""
    if what == "nothing":
        return math.inf
    counted = [r.mechanism for r in releases if r.mechanism is not None and (what == "everything" or r.upload)]
    return _composed(tuple(counted), delta)


@lru_cache(maxsize=512)
def _composed(mechanisms: tuple[Mechanism, ...], delta: float) -> float:
    return epsilon_of(mechanisms, delta)


def _in_words(release: Release) -> dict[str, Any]:
    mechanism = release.mechanism
    if mechanism is None:
        return {"message": release.message, "mechanism": "none"}
    return {"message": release.message, "mechanism": type(mechanism).__name__, **vars(mechanism)}


def _outside(
    result: RunResult, config: Config, feature_map: FeatureMap, preprocessing: Preprocessing | None
) -> list[str]:
    """Return what the guarantee leaves out, one clause each."""
    outside = ["how many samples each device has is taken to be public", SIMULATED]
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
