"""Coded data drawn from its law, without ever drawing the projection."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding._encoder import CODED_BLOCK, CodedData, gaussian
from codedfl.coding._gram import Gram
from codedfl.typing import FloatArray, aligned_empty


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
        gram: of the (weighted) data.
        coded_samples: ``c``.
        noise_variance: ``sigma^2``.
        label_noise_variance: variance of noise on the coded labels.
        rng: the source of ``E``.
        dtype: precision of the result, float64 unless told.

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
    noise = np.repeat([noise_variance, label_noise_variance], [d, size - d])
    factor = covariance_factor(gram.matrix + np.diag(noise)).astype(dtype)
    features = aligned_empty((coded_samples, d), dtype)
    labels = np.empty((coded_samples, size - d), dtype)
    for start in range(0, coded_samples, CODED_BLOCK):
        part = slice(start, min(start + CODED_BLOCK, coded_samples))
        joined = gaussian(rng, (part.stop - part.start, len(factor)), 1.0, dtype) @ factor
        features[part], labels[part] = joined[:, :d], joined[:, d:]
    return CodedData(features, labels, noise_variance)


def covariance_factor(covariance: FloatArray) -> FloatArray:
    """Return ``F`` with ``F^T F`` equal to a positive semidefinite matrix: Cholesky, or eigenvectors if it is singular.

    Columns without variance, like the label of a class that nobody has, are left out: eigenvectors take far longer.
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
