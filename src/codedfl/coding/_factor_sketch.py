"""The subspace sketch that a server makes of factors: it may choose its directions after it has seen them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.linalg

from codedfl.coding._factor import effective_rows
from codedfl.coding._solution import second_moment_error
from codedfl.coding._subspace import SubspaceSketch
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray


@one_blas_thread()
def sketch_factors(
    factors: Mapping[int, FloatArray],
    coded_samples: int,
    rank: int,
    *,
    noise_variance: FloatArray,
    samples: FloatArray,
    dimension: int,
) -> SubspaceSketch:
    """Sketch the second moments ``R_i^T R_i / c - sigma_i^2 I`` of every device along the leading eigenvectors of their sum.

    Args:
        factors: ``R_i`` by device, (d + o, d + o).
        coded_samples: ``c``.
        rank: ``r``.
        noise_variance: ``sigma_i^2``, (N,).
        samples: ``l_i``, (N,).
        dimension: ``d``.

    Returns:
        The sketch. Its ``entry_variance`` is that of noise with the norm that is predicted for the error of the second moments.
    """
    devices, outputs = len(samples), next(iter(factors.values())).shape[1] - dimension
    total = np.zeros((dimension, dimension))
    for factor in factors.values():
        features = factor[:, :dimension].astype(np.float64)
        total += features.T @ features / coded_samples
    last = dimension - 1
    _, test_matrix = scipy.linalg.eigh(total, subset_by_index=[last - rank + 1, last])
    products, label_products = np.zeros((devices, dimension, rank)), np.zeros((devices, dimension, outputs))
    energy, rows = np.zeros((2, devices))
    traces = []
    for i, factor in factors.items():
        features, labels = factor[:, :dimension].astype(np.float64), factor[:, dimension:].astype(np.float64)
        products[i] = features.T @ (features @ test_matrix) / coded_samples - noise_variance[i] * test_matrix
        label_products[i] = features.T @ labels / coded_samples
        traces.append(float(np.sum(features**2)) / coded_samples)
        energy[i] = max(traces[-1] - dimension * noise_variance[i], 0.0)
        rows[i] = samples[i]
    error = second_moment_error(sum(traces) / dimension, dimension, effective_rows(coded_samples, traces))
    variance = (error / (np.sqrt(dimension) + np.sqrt(rank))) ** 2
    return SubspaceSketch(test_matrix, products, label_products, energy, rows, np.full(devices, variance / devices))
