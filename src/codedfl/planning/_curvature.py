"""The time that training with curvature takes, by a rule that was fitted to simulations.

The gap ``f(W) - f(W*)`` of CCFL, as a share of that of the zero model, follows

    ``gap / gap_0 = LEFT_AT_F (t / F)^-DECAY``, ``F = 15 T + mean epoch``,

with the time ``F`` that its deadline minimises (`codedfl.fleet.fastest_deadline`). What a gap means in accuracy is read off a
path of preconditioned gradient flow, ``e_j(s) = e_j(0) exp(-s lambda_j / (lambda_j + mu))``, on held-out rows, with noise of the
law that sampled rows give a preconditioned step, ``lambda_j / (lambda_j + mu)^2``, in a fixed share of the gap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codedfl.coding import DAMPING_FACTOR, KEPT_SHARE, LARGEST_MISMATCH
from codedfl.fleet import ROUNDS_NEEDED, SLOWEST, epoch_seconds
from codedfl.planning._folds import Fold
from codedfl.planning._paths import Scores, reference_values, row_values, standard_normal
from codedfl.schemes import CurvatureCoded
from codedfl.setting import Setting
from codedfl.training import DevicePlan
from codedfl.typing import FloatArray

LEFT_AT_F = 0.0087
"""Share of the initial gap that is left after the time ``F``: between those fitted to digits (0.0135) and MNIST (0.0055)."""

DECAY = 1.5
"""The exponent of the same fits: 1.40 on digits, 1.57 on MNIST (geometric means over shares of stragglers, seed 0)."""

NOISE_SHARE = 0.8
"""Share of the gap that is noise. Scores on the held-out rows of the same runs fit 0.7 and 0.9 equally well, 0.5 less."""

SEEN_SHARE = 1 / 3
"""What a sketch shows of the first eigenvalue that it leaves out."""

LENGTHS = 2.0 ** np.arange(-4.0, 14.1, 0.5)
"""Lengths ``s`` of the path."""


def predicted_seconds(setting: Setting, plan: DevicePlan) -> float:
    """Return ``F``: `ROUNDS_NEEDED` rounds and the mean time in which a device gets through its rows.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> from codedfl.schemes import make_scheme
        >>> setting = build_experiment(load_config()).setting
        >>> plan = make_scheme("ccfl").plan(setting)
        >>> 15 * plan.arrivals.duration_s < predicted_seconds(setting, plan) < 60 * plan.arrivals.duration_s
        True
    """
    duration = plan.arrivals.duration_s
    timing = replace(setting.timing(plan.local_steps), deadline_s=duration)
    epochs = epoch_seconds(timing, setting.federation.samples)
    asked = (setting.cohort or setting.federation.devices) / setting.federation.devices
    longest = SLOWEST * float(np.median(epochs))
    return ROUNDS_NEEDED * duration + float(np.mean(np.minimum(epochs, longest))) / asked


def seconds_of(gap_share: FloatArray, predicted_s: float, round_s: float) -> FloatArray:
    """Return the time until a share of the initial gap is left, at least a round and 0 where all of it is.

    Example:
        >>> seconds_of(np.array([1.0, 0.0087]), predicted_s=200.0, round_s=10.0)
        array([  0., 200.])
    """
    seconds = predicted_s * (LEFT_AT_F / np.maximum(gap_share, 1e-300)) ** (1.0 / DECAY)
    return np.where(gap_share >= 1.0, 0.0, np.maximum(seconds, round_s))


def damping_of(scheme: CurvatureCoded, setting: Setting, values: FloatArray) -> float:
    """Return ``mu`` for eigenvalues of ``H`` (rising) as the scheme's sketch is expected to suggest it, without noise."""
    rank = scheme.upload.rank_in(setting.federation.dimension) if scheme.upload else 1
    if len(values) < 2:
        return 0.0
    kept = min(max(1, int(KEPT_SHARE * min(rank, len(values)))), len(values) - 1)
    return DAMPING_FACTOR * SEEN_SHARE * float(values[::-1][kept])


def noise_norm(scheme: CurvatureCoded, setting: Setting) -> float:
    """Return the norm of the noise in the sum of all sketches, ``s (sqrt d + sqrt r)``, which bounds the damping from below."""
    upload, code, d = scheme.upload, setting.code, setting.federation.dimension
    rank, rows = upload.sketched(d) if upload else (0, 0)
    if upload is None or not rank or not upload.noise:
        return 0.0
    samples = setting.federation.samples
    scale = samples / np.minimum(rows, samples)
    variance = float(np.sum((scale**2 * code.noise_variance)[code.uploading]))
    return float(np.sqrt(variance) * (np.sqrt(d) + np.sqrt(rank)))


def flow(scheme: CurvatureCoded, fold: Fold, setting: Setting) -> tuple[FloatArray, Scores]:
    """Return the share of the initial gap after each of `LENGTHS` with the usual damping, and the scores of the models.

    The scores are those of the path with the scheme's own damping, which noise in the sketch and ``damping_factor`` raise: it
    gets less far in the same time.
    """
    usual = damping_of(scheme, setting, fold.values)
    damping = scheme.damping_factor * max(usual, noise_norm(scheme, setting) / LARGEST_MISMATCH)
    energy = fold.values * np.sum(fold.optimum**2, axis=1)
    share = _left(fold.values, usual) ** 2 @ energy / max(float(energy.sum()), 1e-300) / (1.0 - NOISE_SHARE)
    models = _models(fold, damping, energy)
    scores = row_values(fold, fold.held_out, models)
    return share, Scores.of(scores, reference_values(fold), np.ones(len(LENGTHS), np.bool_))


def _models(fold: Fold, damping: float, energy: FloatArray) -> FloatArray:
    """Return a model at each of `LENGTHS`: its mean, and noise in the share `NOISE_SHARE` of the gap, (k, d, o)."""
    left = _left(fold.values, damping)
    law = fold.values / np.maximum(fold.values + damping, 1e-300) ** 2
    gap = left**2 @ energy * NOISE_SHARE / (1.0 - NOISE_SHARE)
    variance = gap[:, None] * law / max(float(fold.values @ law), 1e-300) / fold.optimum.shape[1]
    models: FloatArray = (1.0 - left)[:, :, None] * fold.optimum
    models += np.sqrt(variance)[:, :, None] * standard_normal(fold, fold.optimum.shape)
    return models


def _left(values: FloatArray, damping: float) -> FloatArray:
    left: FloatArray = np.exp(-np.outer(LENGTHS, values / np.maximum(values + damping, 1e-300)))
    return left
