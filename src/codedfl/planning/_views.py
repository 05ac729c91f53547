"""The problem as a scheme sees it: the Hessian of its mean round, diagonalised, and where that leads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from codedfl.coding import CodedData, FactorOf, Gram, Rows, compute_gram, sample_coded, sample_factor
from codedfl.parallel import one_blas_thread
from codedfl.planning._folds import Fold
from codedfl.setting import Setting
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class View:
    """A basis in which the mean round of a scheme is diagonal.

    Args:
        values: eigenvalues of the Hessian that training sees, (d,).
        basis: its eigenvectors in the fold's basis, (d, d); None for that basis itself.
        target: right-hand side ``b`` of ``M W = b`` for the limit of training, in this basis, (d, o).
        curvature: ``v_j^T H v_j``, the true curvature along each direction, (d,).
        held: the held-out rows in this basis, (h, d).
    """

    values: FloatArray
    basis: FloatArray | None
    target: FloatArray
    curvature: FloatArray
    held: FloatArray

    def turned(self, vectors: FloatArray) -> FloatArray:
        """Return vectors of the fold's basis in this one."""
        return vectors if self.basis is None else self.basis.T @ vectors


def plain_view(fold: Fold) -> View:
    """Return the data as it is: ``H W = X^T Y``."""
    return View(fold.values, None, fold.values[:, None] * fold.optimum, fold.values, fold.held)


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
        fold.held @ vectors.astype(fold.held.dtype),
    )
