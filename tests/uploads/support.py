"""What many devices upload, and what the server makes of it, in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedfl.coding import CodedData, Rows, SubspaceSketch
from codedfl.parallel import Workers
from codedfl.privacy import SeededNoise
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from codedfl.uploads import CodedFactor, Subspace, Terms


def terms_for(
    rows: Rows, coded_samples: int = 1, clip_norm: float | None = None, public: Streams | None = None
) -> Terms:
    """Return the terms of data of this width."""
    dimension, outputs = rows.features.shape[1], rows.labels.shape[1]
    return Terms(dimension, outputs, coded_samples, clip_norm, None, public or Streams(0))


def encode_factors(
    devices: Sequence[Rows],
    coded_samples: int,
    *,
    noise_variance: FloatArray,
    label_noise_variance: FloatArray,
    streams: Streams,
    batch: int = 0,
    clip_norm: float | None = None,
    workers: Workers | None = None,
) -> CodedData:
    """Return the factor of the sum of the second moments of all devices' coded rows."""
    upload, terms = CodedFactor(), terms_for(devices[0], coded_samples, clip_norm)
    received = upload.drawn(
        terms, dict(enumerate(devices)), noise_variance, label_noise_variance, streams, workers, batch
    )
    (held,) = upload.collect(terms, np.array([len(rows) for rows in devices], np.float64), received)
    return held


def sketch_all(
    devices: Sequence[Rows],
    rank: int,
    count: int,
    *,
    noise_variance: FloatArray,
    label_noise_variance: FloatArray,
    streams: Streams,
    clip_norm: float | None = None,
) -> SubspaceSketch:
    """Return the sketches of all devices, at most as many directions as columns."""
    upload, terms = Subspace(max(rank, 2), count), terms_for(devices[0], clip_norm=clip_norm, public=streams)
    received = upload.drawn(terms, dict(enumerate(devices)), noise_variance, label_noise_variance, streams)
    return upload.collect(terms, np.array([len(rows) for rows in devices], np.float64), received)


def sketch_one(
    rows: Rows,
    rank: int,
    count: int,
    *,
    public: Streams,
    rng: np.random.Generator,
    noise_variance: float = 0.0,
    label_noise_variance: float = 0.0,
) -> tuple[FloatArray, FloatArray, float]:
    """Return the sketch that one device sends."""
    terms = terms_for(rows, public=public)
    sent = Subspace(rank, count).draw(terms, rows, SeededNoise(rng, noise_variance, label_noise_variance))
    return sent["products"], sent["label_products"], float(sent["energy"][0])
