"""The global coded dataset: the sum of what all devices upload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from codedfl._validation import require_non_negative
from codedfl.coding._encoder import CodedData, encode
from codedfl.coding._gram import Gram, Rows, compute_gram
from codedfl.coding._sampler import sample_coded
from codedfl.errors import InputError
from codedfl.parallel import Workers, one_blas_thread
from codedfl.streams import Streams
from codedfl.typing import FloatArray

EncoderName = Literal["auto", "direct", "gram"]


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
        streams: where ``G_i`` and ``N_i`` come from: purpose ``coding``, by device and batch.
        batch: which coded batch this is, for schemes that have several.
        encoder: ``direct`` draws every ``G_i`` as devices do; ``gram`` draws the sum from its law; ``auto`` takes the one with
            less arithmetic.
        clip_norm: ``B``, to which the norm of every sample is clipped first; None for no clipping.
        gram: the Gram matrix of ``devices`` (clipped, if they are to be), where it is at hand.
        workers: threads to spread devices or blocks over.

    Returns:
        The sum of the coded datasets, with the summed noise variance.
    """
    for name, variances in (("noise_variance", noise_variance), ("label_noise_variance", label_noise_variance)):
        if len(variances) != len(devices):
            raise InputError(
                f"{name} has {len(variances)} value(s) for {len(devices)} device(s): give one for each device."
            )
        for variance in variances:
            require_non_negative(name, float(variance))
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
