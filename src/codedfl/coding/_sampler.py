"""The coded dataset of the whole fleet: encoded device by device, or drawn from its law without the projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.linalg

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding._encoder import CODED_BLOCK, CodedData, encode, gaussian
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.errors import InputError
from codedfl.parallel import Workers, one_blas_thread
from codedfl.streams import Streams
from codedfl.typing import FloatArray, aligned_empty

EncoderName = Literal["auto", "direct", "gram"]


@one_blas_thread()
def sample_coded(
    gram: Gram,
    coded_samples: int,
    *,
    noise_variance: float,
    label_noise_variance: float = 0.0,
    rng: np.random.Generator,
    dtype: np.dtype[np.floating] | None = None,
) -> CodedData:
    """Draw a coded dataset from the Gram matrix of the data it stands for.

    Given the data, the rows of ``[X~ Y~]`` are independent ``N(0, [X Y]^T [X Y] + diag(sigma^2 I_d, sigma_Y^2 I_o))``. With a
    factor ``F^T F`` of that covariance, ``E F`` with standard normal ``E`` (c, d + o) has the same law as the direct encoder,
    for one device and for the sum over devices alike (then ``sigma^2`` is the sum of the devices' variances).

    A simulation needs only this; a real device may use it too, on its own Gram matrix.

    Args:
        gram: Gram matrix of the (weighted) data.
        coded_samples: ``c``.
        noise_variance: ``sigma^2``.
        label_noise_variance: variance of noise on the coded labels.
        rng: the source of ``E``.
        dtype: precision of the result, float64 by default.

    Returns:
        The coded dataset.

    Example:
        >>> from codedfl.coding import Rows, compute_gram
        >>> gram = compute_gram([Rows(np.eye(4, 3), np.ones((4, 1)))])
        >>> sample_coded(gram, 5, noise_variance=0.25, rng=np.random.default_rng(0)).features.shape
        (5, 3)
    """
    require_at_least("coded_samples", coded_samples, 1)
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("label_noise_variance", label_noise_variance)
    dtype = np.dtype(np.float64) if dtype is None else dtype
    size, d = len(gram.matrix), gram.dimension
    factor = covariance_factor(coded_covariance(gram, noise_variance, label_noise_variance)).astype(dtype)
    features = aligned_empty((coded_samples, d), dtype)
    labels = np.empty((coded_samples, size - d), dtype)
    for start in range(0, coded_samples, CODED_BLOCK):
        part = slice(start, min(start + CODED_BLOCK, coded_samples))
        joined = gaussian(rng, (part.stop - part.start, len(factor)), 1.0, dtype) @ factor
        features[part], labels[part] = joined[:, :d], joined[:, d:]
    return CodedData(features, labels, noise_variance)


def encode_all(
    devices: Sequence[Rows],
    coded_samples: int,
    *,
    noise_variance: FloatArray,
    label_noise_variance: FloatArray,
    streams: Streams,
    batch: int = 0,
    encoder: EncoderName = "auto",
    clip_norm: float | None = None,
    gram: Gram | None = None,
    workers: Workers | None = None,
) -> CodedData:
    """Build the global coded dataset ``X~ = sum_i X~_i``, ``Y~ = sum_i Y~_i`` of (2) in the paper.

    Args:
        devices: the samples (and weights) of each device.
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2`` of each device, (N,).
        label_noise_variance: the same for the coded labels, (N,).
        streams: source of ``G_i`` and ``N_i``: purpose ``coding``, by device and batch.
        batch: index of the coded batch, for schemes with several.
        encoder: ``direct`` draws every ``G_i`` as devices do; ``gram`` draws the sum from its law; ``auto`` picks the
            one with less arithmetic.
        clip_norm: ``B``, the norm to which every sample is clipped first; None for no clipping.
        gram: the Gram matrix of ``devices`` (after any clipping), if already computed.
        workers: threads to spread devices or blocks over.

    Returns:
        The sum of the coded datasets, with the summed noise variance.
    """
    require_one_each(len(devices), noise_variance=noise_variance, label_noise_variance=label_noise_variance)
    if clip_norm is not None:
        devices = [rows.clipped(clip_norm) for rows in devices]
    workers = workers or Workers(1)
    dtype = devices[0].features.dtype
    if encoder == "auto":
        encoder = cheaper_encoder(devices, coded_samples, gram_at_hand=gram is not None)
    with one_blas_thread():
        if encoder == "gram":
            return sample_coded(
                gram or compute_gram(devices, workers),
                coded_samples,
                noise_variance=float(np.sum(noise_variance)),
                label_noise_variance=float(np.sum(label_noise_variance)),
                rng=streams.at("coding-sum", round=batch),
                dtype=dtype,
            )

        def encode_one(i: int) -> CodedData:
            return encode(
                devices[i],
                coded_samples,
                noise_variance=float(noise_variance[i]),
                label_noise_variance=float(label_noise_variance[i]),
                rng=streams.at("coding", device=i, round=batch),
            )

        coded = iter(workers.map(encode_one, range(len(devices))))
        total = next(coded)
        for one in coded:
            np.add(total.features, one.features, out=total.features)
            np.add(total.labels, one.labels, out=total.labels)
        return CodedData(total.features, total.labels, float(np.sum(noise_variance)))


def require_one_each(devices: int, **variances: FloatArray) -> None:
    """Require a variance of zero or more for each device."""
    for name, values in variances.items():
        if len(values) != devices:
            raise InputError(f"{name} has {len(values)} value(s) for {devices} device(s): give one for each device.")
        for variance in values:
            require_non_negative(name, float(variance))


def coded_covariance(gram: Gram, noise_variance: float, label_noise_variance: float) -> FloatArray:
    """Return ``S = [X Y]^T [X Y] + diag(sigma^2 I_d, sigma_Y^2 I_o)``, the covariance of a coded row given the data."""
    noise = np.repeat([noise_variance, label_noise_variance], [gram.dimension, len(gram.matrix) - gram.dimension])
    covariance: FloatArray = gram.matrix + np.diag(noise)
    return covariance


def cheaper_encoder(
    devices: Sequence[Rows], coded_samples: int, *, gram_at_hand: bool = False
) -> Literal["direct", "gram"]:
    """Return the encoder with fewer multiplications: ``c m n`` against ``m n^2 / 2 + n^3 / 3 + c n^2``, with ``n = d + o``."""
    samples = sum(len(rows) for rows in devices)
    width = devices[0].features.shape[1] + devices[0].labels.shape[1]
    direct = coded_samples * samples * width
    square = 0 if gram_at_hand else samples * width**2 / 2
    through_gram = square + width**3 / 3 + coded_samples * width**2
    return "direct" if direct < through_gram else "gram"


def covariance_factor(covariance: FloatArray) -> FloatArray:
    """Return ``F`` with ``F^T F`` equal to a positive semidefinite matrix: Cholesky, or eigenvectors if it is singular.

    Columns without variance, such as the label of an absent class, are left out: eigenvectors take far longer.
    """
    varying = np.diag(covariance) > 0
    if varying.all():
        return _factor(covariance)
    factor = np.zeros_like(covariance)
    block = np.ix_(varying, varying)
    factor[block] = _factor(covariance[block])
    return factor


def _factor(covariance: FloatArray) -> FloatArray:
    try:
        upper: FloatArray = scipy.linalg.cholesky(covariance, lower=False)
    except scipy.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(covariance)
        upper = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return upper
