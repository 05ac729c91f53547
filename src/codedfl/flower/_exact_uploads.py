"""Uploads of a real device, which meet the attack on floating-point noise: every number sent has noise that is drawn exactly.

The functions of the simulator compute, in float64, what has no noise of its own yet, and `gaussian_noise_on_grid` adds it:

- coded rows: the projection ``G X`` is computed, and ``N`` is drawn exactly;
- a sketch: ``X_S^T [X_S Omega, Y_S]`` and ``||X_S||^2`` are computed, and their noise is drawn exactly;
- a factor ``R`` has no noise that is added last: its noise is inside. So a blur with a sixteenth of the standard deviation of the
  noise is drawn exactly and added to its upper triangle. To add independent noise to the ideal factor cannot make it reveal
  more, and no rounding on the way to ``R`` shows through it. It raises the variance of the error of second
  moments by at most 1/128, up to terms of (d + o) / c of that.

What errors before the exact noise are worth is in `rounding_delta_of_upload`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from codedfl.coding import Gram, Rows, compute_gram, encode, sample_factor, sketch_rows
from codedfl.flower._policy import LABEL_NORM
from codedfl.flower._randomness import UploadGenerator
from codedfl.privacy import gaussian_noise_on_grid, rounding_delta
from codedfl.private import clipped_total
from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.flower._uploads import UploadTask

BLUR = 1 / 16
"""Standard deviation of the blur on a factor, relative to the noise of the same column."""

BLOCK_ROWS = 4096
"""Rows held in float64 at once."""

UNIT_ROUNDOFF = 2.0**-53
NORMAL_ERROR = 2.0**-50
"""Mean distance of a normal number of numpy from an ideal one: its sampler takes 52 bits, and its widest layer of 3.66 has values
that are 3.66 / 2^52 apart. That tables and rare branches err no more than the other half of this is an assumption."""

CHI_ERROR = 2.0**-48
"""The same for the root of a chi-square number, relative to the root of its degrees of freedom: an assumption."""


def make_exact_upload(
    task: UploadTask, rows: Rows, noise_variance: float, label_noise_variance: float, generator: UploadGenerator
) -> dict[str, FloatArray]:
    """Make what a device uploads, with exact noise; the arguments are those of `make_upload`."""
    deviations = math.sqrt(noise_variance), math.sqrt(label_noise_variance)
    if task.kind == "rows":
        return _coded_rows(task, rows, *deviations, generator)
    if task.kind == "factor":
        return _factor(task, rows, *deviations, generator)
    if task.kind == "mean":
        return _mean(task, rows, deviations[0], generator)
    return _sketch(task, rows, *deviations, generator)


def rounding_delta_of_upload(
    task: UploadTask,
    *,
    samples: int,
    dimension: int,
    outputs: int,
    noise_variance: float,
    label_noise_variance: float,
    epsilon: float,
) -> float:
    """Return what the arithmetic of a device adds to the delta of its upload, by `codedfl.privacy.rounding_delta`.

    The error in front of the exact noise, in its standard deviations, is at most the sum of the following. Here ``u = 2^-53``,
    ``n = d + o``, ``r = B^2 / sigma^2 + B_Y^2 / sigma_Y^2``, and any order of summation is allowed for.

    - rows: ``(l + d + 10) u sqrt(c l) sqrt(l r)`` of clipping and of the product ``G X``, by
      ``|fl(G X) - G X| <= l u |G| |X|``, and ``c l w sqrt(r)`` with the error ``w`` of numpy's normal numbers.
    - factor ``R = A F``, relative to a blur of ``b sigma``, with ``q = l r + n``, the scaled trace of ``F^T F``:
      ``n u (sqrt(c) + n / sqrt(2)) sqrt(q) / b`` of the product, from the diagonal of ``A`` and what is above it, and
      ``(n w + sqrt(c) w') sqrt(n q) / b`` of the random numbers. The Gram matrix and its Cholesky factor are exact for
      a covariance that is off by ``(l + 4 n + 20) u q``, scaled, which counts ``sqrt(c / 8)`` times in total variation,
      hence ``sqrt(2 pi c / 8)`` times here.
    - sketch and mean: none, since their noise is raised with their sensitivity.

    Args:
        task: what is uploaded.
        samples: ``l``.
        dimension: ``d``.
        outputs: ``o``.
        noise_variance: ``sigma^2``, positive.
        label_noise_variance: ``sigma_Y^2``, positive; without meaning for a mean.
        epsilon: that of the upload with ideal arithmetic.

    Returns:
        The term; 1 where there is no bound at all, as samples are not clipped or have no noise.
    """
    without_noise = noise_variance == 0 or (label_noise_variance == 0 and task.kind != "mean")
    if task.clip_norm is None or without_noise:
        return 1.0
    if task.kind == "mean":
        return rounding_delta(dimension, 0.0, epsilon)
    width, coded = dimension + outputs, task.coded_samples
    ratio = task.clip_norm**2 / noise_variance + LABEL_NORM**2 / label_noise_variance
    if task.kind == "subspace":
        return rounding_delta(dimension * (task.rank + outputs) + 1, 0.0, epsilon)
    if task.kind == "rows":
        product = (samples + dimension + 10) * UNIT_ROUNDOFF * math.sqrt(coded * samples) * math.sqrt(samples * ratio)
        draws = coded * samples * NORMAL_ERROR * math.sqrt(ratio)
        return rounding_delta(coded * width, product + draws, epsilon)
    trace = samples * ratio + width
    product = width * UNIT_ROUNDOFF * (math.sqrt(coded) + width / math.sqrt(2)) * math.sqrt(trace) / BLUR
    draws = (width * NORMAL_ERROR + math.sqrt(coded) * CHI_ERROR) * math.sqrt(width * trace) / BLUR
    covariance = (samples + 4 * width + 20) * UNIT_ROUNDOFF * trace * math.sqrt(2 * math.pi * coded / 8)
    return rounding_delta(width * (width + 1) // 2, product + draws + covariance, epsilon)


def _coded_rows(
    task: UploadTask, rows: Rows, deviation: float, label_deviation: float, generator: UploadGenerator
) -> dict[str, FloatArray]:
    features = np.zeros((task.coded_samples, rows.features.shape[1]))
    labels = np.zeros((task.coded_samples, rows.labels.shape[1]))
    for block in _in_float64(rows, task.clip_norm):
        part = encode(block, task.coded_samples, noise_variance=0.0, rng=generator)
        features += part.features
        labels += part.labels
    return {
        "features": _with_noise(features, deviation, generator).astype(np.float32),
        "labels": _with_noise(labels, label_deviation, generator).astype(np.float32),
    }


def _factor(
    task: UploadTask, rows: Rows, deviation: float, label_deviation: float, generator: UploadGenerator
) -> dict[str, FloatArray]:
    dimension, outputs = rows.features.shape[1], rows.labels.shape[1]
    total = np.zeros((dimension + outputs, dimension + outputs))
    for block in _in_float64(rows, task.clip_norm):
        total += compute_gram([block]).matrix
    factor = sample_factor(
        Gram(total, dimension, len(rows)),
        task.coded_samples,
        noise_variance=deviation**2,
        label_noise_variance=label_deviation**2,
        rng=generator,
    )
    row, column = np.triu_indices(len(factor))
    for where, noise in ((column < dimension, deviation), (column >= dimension, label_deviation)):
        places = row[where], column[where]
        factor[places] = _with_noise(factor[places], BLUR * noise, generator)
    # A triangle with a negative number on its diagonal stands for the same second moments as one with that row turned round.
    factor[np.diag(factor) < 0] *= -1
    return {"factor": factor.astype(np.float32)}


def _mean(task: UploadTask, rows: Rows, deviation: float, generator: UploadGenerator) -> dict[str, FloatArray]:
    assert task.clip_norm is not None
    dimension, bound = rows.features.shape[1], task.clip_norm
    total = np.zeros(dimension)
    for block in rows.blocks(BLOCK_ROWS):
        total += clipped_total(block.features.astype(np.float64), bound)
    # Norms are clipped up to (d + 10) roundings, and the sum errs by a rounding of all norms together for every row.
    error = (len(rows) + dimension + 10) * UNIT_ROUNDOFF * len(rows) * bound
    return {"total": _with_noise(total, deviation, generator, bound, error)}


def _sketch(
    task: UploadTask, rows: Rows, deviation: float, label_deviation: float, generator: UploadGenerator
) -> dict[str, FloatArray]:
    dimension, count = rows.features.shape[1], min(task.sketch_rows, len(rows))
    chosen = generator.permutation(len(rows))[:count]
    taken = Rows(rows.features[chosen].astype(np.float64), rows.labels[chosen].astype(np.float64))
    taken = taken if task.clip_norm is None else taken.clipped(task.clip_norm)
    products, label_products, energy = sketch_rows(taken, task.test_matrix(dimension), count, rng=generator)
    bound = math.inf if task.clip_norm is None else task.clip_norm
    # Summation in any order errs by so many roundings of the sum of absolute values, and norms are clipped up to a few more.
    # The sensitivity about labels is that of a sketch of all rows: if it is of some, noise is raised more than it has to be.
    roundings = (count + 2 * dimension + 16) * math.sqrt(task.rank) + count * dimension
    label_roundings = count + dimension + 16
    told = _with_noise(
        np.append(products, energy),
        deviation,
        generator,
        math.sqrt(2) * bound**2,
        roundings * UNIT_ROUNDOFF * count * bound**2,
    )
    told_of_labels = _with_noise(
        label_products,
        label_deviation,
        generator,
        bound * LABEL_NORM,
        label_roundings * UNIT_ROUNDOFF * count * bound * LABEL_NORM,
    )
    return {"products": told[:-1].reshape(products.shape), "label_products": told_of_labels, "energy": told[-1:]}


def _with_noise(
    values: FloatArray,
    deviation: float,
    generator: UploadGenerator,
    sensitivity: float = math.inf,
    error: float = 0.0,
) -> FloatArray:
    if deviation == 0:
        return values
    return gaussian_noise_on_grid(
        values,
        deviation,
        sensitivity,
        computation_error=0.0 if sensitivity == math.inf else error,
        random_bytes=generator.random_bytes,
    )


def _in_float64(rows: Rows, clip_norm: float | None) -> Iterator[Rows]:
    """Yield clipped rows in float64, in blocks, so that a mapped file is never in memory as a whole."""
    for block in rows.blocks(BLOCK_ROWS):
        double = Rows(block.features.astype(np.float64), block.labels.astype(np.float64), block.weights)
        yield double if clip_norm is None else double.clipped(clip_norm)
