"""The encoder that a device runs: a random projection plus Gaussian noise, in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.identity import ByObject
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray, ShortRepr

CODED_BLOCK = 512
SAMPLE_BLOCK = 4096


@dataclass(frozen=True)
class FactorOf:
    """What a triangular factor stands for.

    Args:
        coded_samples: ``c``, by which its second moments are divided.
        effective_rows: ``n``, the number of rows of one coded dataset whose second moments err as much: ``c`` for one device, and
            ``c (sum_i t_i)^2 / sum_i t_i^2`` for a sum over devices with the traces ``t_i``, which is ``N c`` if they are alike.
    """

    coded_samples: int
    effective_rows: float


@dataclass(frozen=True, eq=False, repr=False)
class CodedData(ShortRepr, ByObject):
    """A coded dataset, of one device or summed over devices: its rows, or a triangle with the same second moments.

    ``X~^T X~ / c``, ``X~^T Y~ / c`` and so full-batch gradients have the same formula for both, with ``c = coded_samples``.

    Args:
        features: ``X~``, (c, d); (d + o, d) of a factor.
        labels: ``Y~``, (c, o); (d + o, o) of a factor.
        noise_variance: variance of the noise in every entry of ``X~``; for a sum over devices, the sum of their
            variances.
        factor: what the factor stands for; None for rows.
    """

    features: FloatArray
    labels: FloatArray
    noise_variance: float
    factor: FactorOf | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def coded_samples(self) -> int:
        """``c``, coded rows of each device."""
        return self.factor.coded_samples if self.factor else len(self)

    @property
    def effective_rows(self) -> float:
        """The number of coded rows that decides how far the second moments are off."""
        return self.factor.effective_rows if self.factor else float(len(self))

    def gram(self) -> Gram:
        """Return ``[X~ Y~]^T [X~ Y~]``."""
        return compute_gram([Rows(self.features, self.labels)])

    def moments(self) -> FloatArray:
        """Return ``X~^T X~ / c``, the noise's own part included, (d, d)."""
        return self.gram().features / self.coded_samples


@one_blas_thread()
def encode(
    rows: Rows,
    coded_samples: int,
    *,
    noise_variance: float,
    label_noise_variance: float = 0.0,
    clip_norm: float | None = None,
    rng: np.random.Generator,
) -> CodedData:
    """Encode one device's data (Sec. III-A).

    ``X~_i = G_i W_i X_i + N_i`` and ``Y~_i = G_i W_i Y_i (+ label noise)``, with the entries of ``G_i`` (c, l_i) from N(0, 1)
    and those of ``N_i`` from N(0, sigma_i^2). SCFL and DP-CFL have ``W_i = I``; the parity of CFL-FB and CodedFedL
    weights each sample. ``G_i`` is drawn block by block and never held whole.

    On a real device ``rng`` must be seeded from the operating system (``np.random.default_rng()``) and then discarded:
    anyone who knows ``G_i`` can undo the projection.

    Args:
        rows: the samples and, for a parity, their weights.
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2``.
        label_noise_variance: variance of noise on the coded labels; the paper has none.
        clip_norm: ``B``, the norm to which every sample is clipped first; None for no clipping.
        rng: the source of ``G_i`` and ``N_i``.

    Returns:
        The coded dataset, in the precision of the data.

    Example:
        >>> rows = Rows(np.eye(4, 3), np.ones((4, 1)))
        >>> coded = encode(rows, 5, noise_variance=0.25, rng=np.random.default_rng(0))
        >>> coded.features.shape, coded.labels.shape
        ((5, 3), (5, 1))
    """
    require_at_least("coded_samples", coded_samples, 1)
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("label_noise_variance", label_noise_variance)
    if clip_norm is not None:
        rows = rows.clipped(clip_norm)
    features = np.zeros((coded_samples, rows.features.shape[1]), rows.features.dtype)
    labels = np.zeros((coded_samples, rows.labels.shape[1]), rows.labels.dtype)
    for start in range(0, coded_samples, CODED_BLOCK):
        part = slice(start, start + CODED_BLOCK)
        for block in rows.blocks(SAMPLE_BLOCK):
            projection = gaussian(rng, (len(features[part]), len(block)), 1.0, features.dtype)
            if block.weights is not None:
                projection *= block.weights.astype(projection.dtype)
            features[part] += projection @ block.features
            labels[part] += projection @ block.labels
    # Noise is drawn after the projection, so that runs with different noise share their projection.
    for coded, variance in ((features, noise_variance), (labels, label_noise_variance)):
        if variance > 0:
            coded += gaussian(rng, coded.shape, variance, coded.dtype)
    return CodedData(features, labels, noise_variance)


def gaussian(
    rng: np.random.Generator, shape: tuple[int, ...], variance: float, dtype: np.dtype[np.floating]
) -> FloatArray:
    """Draw independent N(0, variance) entries in float32 or float64."""
    draws: FloatArray = rng.standard_normal(shape, dtype=np.float32 if dtype == np.float32 else np.float64)
    draws *= draws.dtype.type(np.sqrt(variance))
    return draws
