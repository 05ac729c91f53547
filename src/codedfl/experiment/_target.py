"""From a configuration to the privacy that a run has to keep, and the clip norm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from codedfl.coding import Rows, clipped_labels
from codedfl.config import Config
from codedfl.data import FeatureMap, Federation
from codedfl.errors import InputError
from codedfl.privacy import GaussianMechanism, PrivacyTarget
from codedfl.streams import Streams
from codedfl.typing import FloatArray

NORM_SHARE = 0.02
"""Share of ``mu^2`` for the private choice of the clip norm."""

KEPT = 0.8
"""Share of the samples that the chosen norm leaves as they are."""

BINS = 16
"""Bins of the histogram of norms: from ``2^-7 sqrt(d)`` to ``2 sqrt(d)``, each wider than the one before by ``sqrt(2)``."""


def clip_labels(config: Config, federation: Federation) -> Federation:
    """Return the data with the targets of a regression less ``privacy.label_center``, and clipped to ``privacy.label_bound``.

    Test rows are not clipped: they measure what the model is worth.

    Raises:
        InputError: if there is a centre for the targets of a classification.
    """
    bound, center = config.privacy.label_bound, config.privacy.label_center
    if federation.task == "classification":
        if center != 0:
            raise InputError(
                f"privacy.label_center = {center:g} is for the targets of a regression, and these are classes: leave it out."
            )
        return federation
    if center != 0:
        number = federation.labels.dtype.type(center)
        federation = replace(federation, labels=federation.labels - number, test_labels=federation.test_labels - number)
    return replace(federation, labels=clipped_labels(federation.labels, bound)) if bound > 0 else federation


def label_bound_of(config: Config, federation: Federation) -> float | None:
    """Return ``B_Y``: 1 for one-hot labels, the given bound for a regression, None without one."""
    return 1.0 if federation.task == "classification" else config.privacy.label_bound or None


def privacy_target(
    config: Config, federation: Federation, feature_map: FeatureMap, streams: Streams
) -> tuple[PrivacyTarget | None, float | None]:
    """Return the target of a configuration and the norm ``B`` to which samples are clipped; None for none.

    Random Fourier features have a mean square norm of 1, whatever the data, so they are clipped to that (with an intercept, to
    the norm with it). The norms of other features are not known without the data: a histogram of them, released with noise,
    gives the norm that leaves about `KEPT` of the samples as they are. It is charged to the budget.

    Raises:
        InputError: if a regression is to keep an epsilon without a bound on its targets, or there is nothing to charge to.
    """
    privacy, clip_norm = config.privacy, config.coding.clip_norm
    target = None
    if privacy.epsilon > 0:
        bound = label_bound_of(config, federation)
        if bound is None:
            raise InputError(
                "privacy.label_bound = 0 leaves the targets of the regression unbounded, so that no epsilon holds: give a bound"
                " on their size that is known without the data (--label-bound), or on their distance from --label-center."
            )
        target = PrivacyTarget(privacy.epsilon, privacy.delta, privacy.threat_model, bound)
    if clip_norm != "auto" and (clip_norm > 0 or target is None):
        return target, clip_norm or None
    if feature_map.frequencies is not None and (feature_map.output_scale == 1).all():
        return target, math.sqrt(1.0 + feature_map.intercept)
    if target is None:
        raise InputError(
            'coding.clip_norm = "auto" looks at the norms of the samples, which costs privacy: set privacy.epsilon to charge it,'
            " or give a norm."
        )
    multiplier = target.multiplier_for_share(NORM_SHARE)
    norm = private_norm(federation, multiplier, target.sums_only, streams)
    return replace(target, spent=(GaussianMechanism(multiplier),)), norm


def private_norm(federation: Federation, noise_multiplier: float, sums_only: bool, streams: Streams) -> float:
    """Return a norm that leaves about `KEPT` of the samples as they are, from a noisy histogram.

    One sample is in one bin, so the sensitivity is 1.

    Args:
        federation: the data.
        noise_multiplier: noise of every count.
        sums_only: whether devices share the noise instead of each adding it.
        streams: the source of the noise.
    """
    norms = Rows(federation.features, federation.labels).norms()
    edges = norm_edges(federation.dimension)
    counts = np.bincount(np.searchsorted(edges[:-1], norms), minlength=BINS)[:BINS].astype(np.float64)
    devices = 1 if sums_only else int(np.count_nonzero(federation.samples))
    counts += noise_multiplier * math.sqrt(devices) * streams.at("private-norms").standard_normal(BINS)
    enough = np.flatnonzero(np.cumsum(counts) >= KEPT * federation.total_samples)
    return float(edges[enough[0] if enough.size else -1])


def norm_edges(dimension: int) -> FloatArray:
    """Return the upper edges of the bins, (BINS,)."""
    return np.asarray(math.sqrt(dimension) * 2.0 ** (1.0 - np.arange(BINS)[::-1] / 2))
