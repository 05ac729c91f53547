"""Training rows with some held out: what a plan knows about the data, without looking at the test set."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.linalg

from codedfl.coding import Gram, Rows, compute_gram
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.setting import Setting
from codedfl.typing import FloatArray

Kept = TypeVar("Kept")

LARGEST_DIMENSION = 4096
"""Columns up to which the eigenvectors of ``X^T X`` are computed."""

HELD_OUT = 0.15
"""Share of the rows of every device that is held out."""

ENOUGH_HELD_OUT = 6000
"""Rows to hold out over all folds, if the data is small enough to be split several times."""

MOST_FOLDS = 6

SMALL_DIMENSION = 500
"""Columns up to which the data is split more than once."""


@dataclass(frozen=True, eq=False)
class Fold:
    """The rows that are left after some were held out, as sums that stand for all rows.

    Args:
        data: the federation of the rows that are left; its test set holds the rows held out.
        gram: second moments of the rows that are left, scaled to the size of all data.
        index: which fold this is.
        kept: what several schemes need and is slow to compute, by what it depends on.
    """

    data: Federation
    gram: Gram
    index: int
    kept: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return what was computed for a key before, or compute it now."""
        if key not in self.kept:
            self.kept[key] = compute()
        kept: Kept = self.kept[key]
        return kept

    @cached_property
    @one_blas_thread()
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        values, vectors = scipy.linalg.eigh(self.gram.features)
        return np.maximum(values, 0.0), vectors

    @property
    def values(self) -> FloatArray:
        """``lambda_j``, the eigenvalues of ``H = X^T X``, rising, (d,)."""
        return self._eigen[0]

    @property
    def basis(self) -> FloatArray:
        """``U``, their eigenvectors as columns, (d, d)."""
        return self._eigen[1]

    @cached_property
    @one_blas_thread()
    def optimum(self) -> FloatArray:
        """``U^T W*``, the centralised optimum of the rows that are left, in the basis, (d, o)."""
        cross: FloatArray = self.basis.T @ self.gram.cross
        floor = float(self.values[-1]) * 1e-12
        return np.where(self.values[:, None] > floor, cross / np.maximum(self.values, floor)[:, None], 0.0)

    @cached_property
    def statistics(self) -> Gram:
        """``U^T X^T X U`` and ``U^T X^T Y`` of the rows that are left, without rounding in the null space of ``X``."""
        cross = self.values[:, None] * self.optimum
        matrix = np.block([[np.diag(self.values), cross], [cross.T, self.gram.labels]])
        return Gram(matrix, self.gram.dimension, self.gram.samples)

    @property
    def scale(self) -> float:
        """How many times more rows there are in all than are left."""
        return self.gram.samples / self.data.total_samples

    @cached_property
    def residual(self) -> float:
        """``||X W* - Y||_F^2``, in the size of all data."""
        explained = float(np.sum(self.values[:, None] * self.optimum**2))
        return max(float(np.trace(self.gram.labels)) - explained, 0.0)

    @property
    def shares(self) -> FloatArray:
        """Each device's share of all rows, (N,)."""
        return self.data.samples / self.data.total_samples

    @cached_property
    def gradients(self) -> tuple[FloatArray, FloatArray]:
        """``U^T g_i`` with ``g_i = X_i^T (X_i W* - Y_i)``, and ``U^T H_i g_i``, in the size of all data, both (N, d, o)."""
        model = self.basis @ self.optimum
        shape = self.data.devices, self.data.dimension, self.data.outputs
        gradients, curved = np.empty(shape, np.float32), np.empty(shape, np.float32)
        with one_blas_thread():
            for i in range(self.data.devices):
                X, Y = self.data.device(i)
                gradient = self.scale * (X.T @ (X @ model.astype(X.dtype) - Y))
                gradients[i] = self.basis.T @ gradient
                curved[i] = self.basis.T @ (self.scale * (X.T @ (X @ gradient)))
        return gradients, curved

    def held_in(self, basis: FloatArray) -> FloatArray:
        """Return the held-out rows in a basis, (h, d), in single precision."""
        with one_blas_thread():
            product: FloatArray = self.data.test_features @ basis.astype(self.data.test_features.dtype)
        return product

    @cached_property
    def held(self) -> FloatArray:
        """The held-out rows in the fold's own basis, (h, d)."""
        return self.held_in(self.basis)


def make_folds(setting: Setting) -> list[Fold]:
    """Hold out rows of every device: once if there are many, several times, with other rows each time, if there are few.

    Raises:
        InputError: if the data has too many columns, or is mapped from a file.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> folds = make_folds(build_experiment(load_config()).setting)
        >>> len(folds), folds[0].held.shape[1], folds[0].gram.samples
        (6, 100, 1258)
    """
    federation = setting.federation
    if federation.dimension > LARGEST_DIMENSION:
        raise InputError(
            f"features.dimension = {federation.dimension} is too large to plan with: eigenvectors of X^T X are computed"
            f" for at most {LARGEST_DIMENSION} columns."
        )
    if federation.mapped:
        raise InputError(
            "a plan holds rows out by copying them, which memory-mapped data is too large for: plan on a part of the data."
        )
    held = max(1, round(HELD_OUT * federation.total_samples))
    count = min(MOST_FOLDS, math.ceil(ENOUGH_HELD_OUT / held)) if federation.dimension <= SMALL_DIMENSION else 1
    return [_fold(setting, index) for index in range(count)]


def _fold(setting: Setting, index: int) -> Fold:
    federation = setting.federation
    data = federation.split_validation(HELD_OUT, setting.streams.at("plan-held-out", round=index))
    held = compute_gram([Rows(data.test_features, data.test_labels)], setting.workers)
    left = setting.gram.matrix - held.matrix
    scale = federation.total_samples / data.total_samples
    return Fold(data, replace(setting.gram, matrix=scale * left), index)
