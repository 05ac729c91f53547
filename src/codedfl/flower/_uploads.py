"""The upload before training, in two halves: what a device makes, and what the server builds from what it received."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.coding import (
    CodedData,
    ReceivedSketch,
    Rows,
    add_factors,
    collect_sketches,
    compute_gram,
    encode,
    public_test_matrix,
    sample_factor,
    sketch_factors,
    sketch_rows,
)
from codedfl.curvature import FactorUpload, SubspaceUpload, rank_within
from codedfl.errors import InputError
from codedfl.flower._checks import ReceivedUpload
from codedfl.flower._exact_uploads import make_exact_upload
from codedfl.flower._federation_config import FederationConfig
from codedfl.flower._randomness import UploadGenerator
from codedfl.private import CurvatureUpload, PrivateCurvature, clipped_total
from codedfl.schemes import make_scheme
from codedfl.streams import Streams
from codedfl.training import CodedUpload, Scheme, Setting, Uploaded
from codedfl.typing import FloatArray

Kind = Literal["rows", "factor", "subspace", "mean"]


@dataclass(frozen=True)
class UploadTask:
    """What a device is to upload, as its federation prescribes.

    Args:
        kind: coded rows, their triangular factor, a subspace sketch, or the mean of the features.
        coded_samples: ``c``, of rows and factors.
        rank: ``r``, of a sketch.
        sketch_rows: ``|S|`` at most, of a sketch.
        clip_norm: the norm to which samples are clipped; None for no clipping.
        seed: public seed of the sketch's directions.
    """

    kind: Kind
    coded_samples: int
    rank: int
    sketch_rows: int
    clip_norm: float | None
    seed: int

    @classmethod
    def of(cls, config: FederationConfig) -> UploadTask | None:
        """Return the task of a federation; None if its scheme needs no upload."""
        kind: Kind
        rank = rows = 0
        match make_scheme(config.scheme, config.options).upload:
            case None:
                return None
            case CodedUpload(kind=coded):
                kind = coded
            case FactorUpload():
                kind = "factor"
            case SubspaceUpload(rank=wanted, rows=rows):
                kind, rank = "subspace", rank_within(config.dimension, wanted)
            case CurvatureUpload(curvature="none"):
                return None
            case CurvatureUpload():
                kind = "mean"
            case _:
                raise InputError(f"scheme = {config.scheme!r} has an upload that cannot be sent: choose another.")
        coding = config.coding
        return cls(kind, coding.coded_samples, rank, rows, config.clip_norm, config.features.seed)

    def test_matrix(self, dimension: int) -> FloatArray:
        """Return ``Omega``, which everybody knows."""
        return public_test_matrix(dimension, self.rank, Streams(self.seed))


def noiseless(config: FederationConfig) -> bool:
    """Return whether the scheme of a federation uploads without noise, unless a device decides otherwise."""
    upload = make_scheme(config.scheme, config.options).upload
    return upload is not None and not upload.noise


def make_upload(
    task: UploadTask, rows: Rows, noise_variance: float, label_noise_variance: float, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Make what a device uploads: with the draws of the simulator, or with exact noise if the generator has it.

    Args:
        task: what is prescribed.
        rows: the samples of the device.
        noise_variance: ``sigma_i^2``, of this device's own choice.
        label_noise_variance: the same for labels.
        rng: the source of projection and noise; drawn from once, and never again for the same data. That of a real device is an
            `UploadGenerator`.
    """
    if isinstance(rng, UploadGenerator):
        return make_exact_upload(task, rows, noise_variance, label_noise_variance, rng)
    if task.kind == "mean":
        assert task.clip_norm is not None
        noise = math.sqrt(noise_variance) * rng.standard_normal(rows.features.shape[1])
        return {"total": clipped_total(rows.features.astype(np.float64), task.clip_norm) + noise}
    rows = rows if task.clip_norm is None else rows.clipped(task.clip_norm)
    if task.kind == "rows":
        coded = encode(
            rows, task.coded_samples, noise_variance=noise_variance, label_noise_variance=label_noise_variance, rng=rng
        )
        return {"features": coded.features, "labels": coded.labels}
    if task.kind == "factor":
        factor = sample_factor(
            compute_gram([rows]),
            task.coded_samples,
            noise_variance=noise_variance,
            label_noise_variance=label_noise_variance,
            rng=rng,
        )
        return {"factor": factor.astype(np.float32)}
    products, label_products, energy = sketch_rows(
        rows,
        task.test_matrix(rows.features.shape[1]),
        min(task.sketch_rows, len(rows)),
        noise_variance=noise_variance,
        label_noise_variance=label_noise_variance,
        rng=rng,
    )
    return {"products": products, "label_products": label_products, "energy": np.array([energy])}


def gather(
    scheme: Scheme, task: UploadTask, setting: Setting, received: Iterable[tuple[int, ReceivedUpload]]
) -> Uploaded:
    """Build what the server holds from what it received, one upload at a time.

    Args:
        scheme: the scheme.
        task: what was asked for.
        setting: the setting of the server.
        received: index and upload of every device that sent one.
    """
    federation, code = setting.federation, setting.code
    noise = code.noise_variance * code.uploading
    total_noise = float(noise.sum())
    if task.kind == "rows":
        return (_sum_of_rows((upload.arrays for _, upload in received), total_noise),)
    if task.kind == "mean":
        totals = {i: upload.arrays["total"] for i, upload in received}
        assert task.clip_norm is not None
        return (
            PrivateCurvature.from_mean(
                np.sum(list(totals.values()), axis=0),
                math.sqrt(total_noise),
                summed=int(federation.samples[list(totals)].sum()),
                samples=federation.total_samples,
                bound=task.clip_norm,
                dtype=np.dtype(np.float32),
            ),
        )
    if task.kind == "subspace":
        sketches = {
            i: ReceivedSketch(
                upload.arrays["products"],
                upload.arrays["label_products"],
                float(upload.arrays["energy"][0]),
                upload.rows,
                float(noise[i]),
            )
            for i, upload in received
        }
        matrix = task.test_matrix(federation.dimension)
        return (collect_sketches(matrix, sketches, federation.samples.astype(np.float64), federation.outputs),)
    factors: Iterator[tuple[int, FloatArray]] = ((i, upload.arrays["factor"]) for i, upload in received)
    if isinstance(scheme.upload, FactorUpload):
        sketch = sketch_factors(
            dict(factors),
            task.coded_samples,
            scheme.upload.rank_in(setting),
            noise_variance=noise,
            samples=np.where(code.uploading, federation.samples, 0).astype(np.float64),
            dimension=federation.dimension,
        )
        return (sketch,)
    only = (factor for _, factor in factors)
    return (add_factors(only, task.coded_samples, federation.dimension, total_noise, np.dtype(np.float32)),)


def _sum_of_rows(uploads: Iterable[Mapping[str, FloatArray]], noise_variance: float) -> CodedData:
    """Return the global coded dataset ``(sum_i X~_i, sum_i Y~_i)``, (2) in the paper."""
    features: FloatArray | None = None
    labels: FloatArray | None = None
    for arrays in uploads:
        features = arrays["features"].copy() if features is None else np.add(features, arrays["features"], out=features)
        labels = arrays["labels"].copy() if labels is None else np.add(labels, arrays["labels"], out=labels)
    if features is None or labels is None:
        raise InputError(
            "no device uploaded coded data: let at least one take part, or use a scheme without an upload."
        )
    return CodedData(features, labels, noise_variance)
