"""Training rows with some held out, and the problem on them as a scheme sees it: the Hessian of its mean round, diagonalised."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.linalg

from codedfl.coding import CodedData, FactorOf, Gram, Rows, compute_gram, sample_coded, sample_factor
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

    def held_out_in(self, basis: FloatArray) -> FloatArray:
        """Return the held-out rows in a basis, (h, d), in single precision."""
        with one_blas_thread():
            product: FloatArray = self.data.test_features @ basis.astype(self.data.test_features.dtype)
        return product

    @cached_property
    def held_out(self) -> FloatArray:
        """The held-out rows in the fold's own basis, (h, d)."""
        return self.held_out_in(self.basis)


def make_folds(setting: Setting) -> list[Fold]:
    """Hold out rows of every device: once if there are many, several times, with other rows each time, if there are few.

    Raises:
        InputError: if the data has too many columns, or is mapped from a file.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> folds = make_folds(build_experiment(load_config()).setting)
        >>> len(folds), folds[0].held_out.shape[1], folds[0].gram.samples
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
    held_out = max(1, round(HELD_OUT * federation.total_samples))
    count = min(MOST_FOLDS, math.ceil(ENOUGH_HELD_OUT / held_out)) if federation.dimension <= SMALL_DIMENSION else 1
    return [_fold(setting, index) for index in range(count)]


def _fold(setting: Setting, index: int) -> Fold:
    federation = setting.federation
    data = federation.split_validation(HELD_OUT, setting.streams.at("plan-held-out", round=index))
    held_out = compute_gram([Rows(data.test_features, data.test_labels)], setting.workers)
    left = setting.gram.matrix - held_out.matrix
    scale = federation.total_samples / data.total_samples
    return Fold(data, replace(setting.gram, matrix=scale * left), index)


@dataclass(frozen=True, eq=False)
class View:
    """A basis in which the mean round of a scheme is diagonal.

    Args:
        values: eigenvalues of the Hessian that training sees, (d,).
        basis: its eigenvectors in the fold's basis, (d, d); None for that basis itself.
        target: right-hand side ``b`` of ``M W = b`` for the limit of training, in this basis, (d, o).
        curvature: ``v_j^T H v_j``, the true curvature along each direction, (d,).
        held_out: the held-out rows in this basis, (h, d).
    """

    values: FloatArray
    basis: FloatArray | None
    target: FloatArray
    curvature: FloatArray
    held_out: FloatArray

    def turned(self, vectors: FloatArray) -> FloatArray:
        """Return vectors of the fold's basis in this one."""
        return vectors if self.basis is None else self.basis.T @ vectors


def plain_view(fold: Fold) -> View:
    """Return the data as it is: ``H W = X^T Y``."""
    return View(fold.values, None, fold.values[:, None] * fold.optimum, fold.values, fold.held_out)


@dataclass(frozen=True, eq=False)
class CodedMoments:
    """Second moments of coded data as the server may come to hold them, in the fold's basis.

    Args:
        features: ``X~^T X~ / c`` without the noise's own part, (d, d).
        cross: ``X~^T Y~ / c``, (d, o).
        data: the coded data itself.
        label_noise_variance: variance of the noise on its labels.
    """

    features: FloatArray
    cross: FloatArray
    data: CodedData
    label_noise_variance: float

    @property
    def noise_variance(self) -> float:
        """``sigma^2``, which was subtracted."""
        return self.data.noise_variance

    @classmethod
    @one_blas_thread()
    def drawn(
        cls, fold: Fold, setting: Setting, rows: int, *, noise: bool, covered: float = 1.0, apart: bool = False
    ) -> CodedMoments:
        """Draw them from their law, a Wishart distribution, given the second moments of what is encoded.

        Args:
            fold: the data.
            setting: the code.
            rows: ``c``, in total over all coded batches.
            noise: whether noise is added.
            covered: share of the data that the coded data stands for.
            apart: whether the server keeps devices apart, so that their errors average out.
        """
        code = setting.code
        uploading = code.uploading
        variance = float(np.sum(code.noise_variance[uploading])) if noise else 0.0
        label_variance = float(np.sum(code.label_noise_variance[uploading])) if noise else 0.0
        gram = _encoded(fold, setting)
        inside = np.block(
            [
                [fold.basis.T @ gram.features @ fold.basis, fold.basis.T @ gram.cross],
                [gram.cross.T @ fold.basis, gram.labels],
            ]
        )
        inside = covered * (inside + inside.T) / 2
        if apart:
            rows = max(1, round(rows * _devices_in_effect(setting)))
        rng = setting.streams.at("plan-coded", round=fold.index)
        law = Gram(inside, gram.dimension, gram.samples)
        if rows >= len(inside):
            factor = sample_factor(
                law, rows, noise_variance=variance, label_noise_variance=label_variance, rng=rng
            ).astype(np.float64)
            columns, labels = factor[:, : gram.dimension], factor[:, gram.dimension :]
            data = CodedData(columns, labels, variance, FactorOf(rows, float(rows)))
        else:
            data = sample_coded(law, rows, noise_variance=variance, label_noise_variance=label_variance, rng=rng)
        features = data.features.T @ data.features / rows - variance * np.eye(gram.dimension)
        return cls(features, data.features.T @ data.labels / rows, data, label_variance)


def _encoded(fold: Fold, setting: Setting) -> Gram:
    """Return the second moments of what devices encode: all rows, or those of the devices that take part, clipped."""
    code, data = setting.code, fold.data
    if code.uploading.all() and code.clip_norm is None:
        return fold.gram
    parts = [Rows(*data.device(int(i))) for i in np.flatnonzero(code.uploading)]
    if code.clip_norm is not None:
        parts = [rows.clipped(code.clip_norm) for rows in parts]
    gram = compute_gram(parts, setting.workers)
    return Gram(fold.scale * gram.matrix, gram.dimension, fold.gram.samples)


def _devices_in_effect(setting: Setting) -> float:
    """Return by what factor keeping devices apart multiplies the rows: ``(sum_i t_i)^2 / sum_i t_i^2``, about ``N``."""
    code, federation = setting.code, setting.federation
    energy = np.array([np.sum(federation.device(i)[0].astype(np.float64) ** 2) for i in range(federation.devices)])
    traces = (energy + federation.dimension * code.noise_variance)[code.uploading]
    return float(traces.sum() ** 2 / np.sum(traces**2))


@one_blas_thread()
def coded_view(
    fold: Fold, coded: CodedMoments, data_weight: float, coded_weight: float, *, total: float, make_up: bool
) -> View:
    """Return what training on data and coded data together sees.

    The Hessian is ``(a H + v C) / t`` with weights ``a`` of the devices' own data and ``v`` of the coded data.

    Args:
        fold: the data.
        coded: second moments at the server.
        data_weight: ``a``.
        coded_weight: ``v``.
        total: ``t``, which brings the Hessian to the size of that of all data.
        make_up: whether the noise's own part of the coded Hessian is removed, as a make-up term does.
    """
    seen = coded.features if make_up else coded.features + coded.noise_variance * np.eye(len(coded.features))
    hessian = (coded_weight / total) * seen
    hessian[np.diag_indices_from(hessian)] += (data_weight / total) * fold.values
    values, vectors = scipy.linalg.eigh(hessian)
    target = (data_weight * fold.values[:, None] * fold.optimum + coded_weight * coded.cross) / total
    return View(
        values,
        vectors,
        vectors.T @ target,
        np.einsum("ij,i,ij->j", vectors, fold.values, vectors),
        fold.held_out @ vectors.astype(fold.held_out.dtype),
    )
