"""Checks of what a device uploads before training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from codedfl._messages import shown
from codedfl.flower._checks._fields import (
    LARGEST_ENTRY,
    LARGEST_PRODUCT,
    Array,
    BadMessage,
    checked_array,
    number,
    require_names,
    require_same,
    whole,
)
from codedfl.flower._packet import Packet

UploadKind = Literal["rows", "factor", "subspace", "mean", "masked"]
"""Coded rows, their triangular factor, a subspace sketch, the sum of the features, or coded rows under pairwise masks."""

LARGEST_NOISE_VARIANCE = 1e30


@dataclass(frozen=True, eq=False)
class ReceivedUpload:
    """What a device uploaded before training.

    Args:
        kind: what the arrays are.
        arrays: read-only arrays by name.
        noise_variance: ``sigma_i^2``, as the device declares it.
        label_noise_variance: variance of noise on coded labels, as the device declares it.
        rows: ``|S_i|``, the samples behind a subspace sketch; 0 for other kinds.
    """

    kind: UploadKind
    arrays: Mapping[str, Array]
    noise_variance: float
    label_noise_variance: float
    rows: int = 0


def checked_upload(
    packet: Packet,
    *,
    device: str,
    kind: UploadKind,
    dimension: int,
    outputs: int,
    coded_samples: int,
    samples: int,
    rank: int = 0,
) -> ReceivedUpload:
    """Check what a device uploads before training.

    It holds the values ``device``, ``kind``, ``coded_samples``, ``noise_variance`` and ``label_noise_variance``; a sketch also
    ``rows``. The arrays depend on the kind:

    - rows: ``features`` (c, d) and ``labels`` (c, o), float32;
    - factor: ``factor`` (d + o, d + o), float32, upper triangular with a diagonal of zero or more;
    - subspace: ``products`` (d, r), ``label_products`` (d, o) and ``energy`` (1,), float64; without noise the energy is not
      negative;
    - mean: ``total`` (d,), float64;
    - masked: ``features`` (c, d) and ``labels`` (c, o), uint64.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        kind: what was asked for.
        dimension: ``d``.
        outputs: ``o``.
        coded_samples: ``c``.
        samples: ``l_i``, as the device said before.
        rank: ``r``, of a subspace sketch.

    Raises:
        BadMessage: it is anything else.
    """
    if kind not in get_args(UploadKind):
        raise ValueError(f"there is no kind of upload {shown(kind)}")
    layout = _layout(kind, dimension, outputs, coded_samples, rank)
    require_names("array", packet.arrays, tuple(layout))
    values = packet.values
    declared = ("device", "kind", "coded_samples", "noise_variance", "label_noise_variance")
    require_names("value", values, (*declared, "rows") if kind == "subspace" else declared)
    require_same("device", values, device)
    require_same("kind", values, kind)
    whole("coded_samples", values, coded_samples, coded_samples)
    noise_variance = number("noise_variance", values, LARGEST_NOISE_VARIANCE)
    label_noise_variance = number("label_noise_variance", values, LARGEST_NOISE_VARIANCE)
    rows = whole("rows", values, 1, samples) if kind == "subspace" else 0
    arrays = {name: checked_array(name, packet.arrays, *expected) for name, expected in layout.items()}
    if kind == "factor":
        _require_factor(arrays["factor"])
    if kind == "subspace" and noise_variance == 0 and arrays["energy"][0] < 0:
        raise BadMessage(f"energy = {shown(arrays['energy'][0])}, expected zero or more, since no noise was added.")
    return ReceivedUpload(kind, arrays, noise_variance, label_noise_variance, rows)


def _layout(
    kind: UploadKind, dimension: int, outputs: int, coded_samples: int, rank: int
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], float]]:
    """Return dtype, shape and largest absolute value of the arrays of an upload."""
    single, double, words = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint64)
    if kind == "factor":
        return {"factor": (single, (dimension + outputs,) * 2, LARGEST_ENTRY)}
    if kind == "subspace":
        return {
            "products": (double, (dimension, rank), LARGEST_PRODUCT),
            "label_products": (double, (dimension, outputs), LARGEST_PRODUCT),
            "energy": (double, (1,), LARGEST_PRODUCT),
        }
    if kind == "mean":
        return {"total": (double, (dimension,), LARGEST_PRODUCT)}
    dtype = words if kind == "masked" else single
    return {
        "features": (dtype, (coded_samples, dimension), LARGEST_ENTRY),
        "labels": (dtype, (coded_samples, outputs), LARGEST_ENTRY),
    }


def _require_factor(factor: Array) -> None:
    if np.any(np.tril(factor, -1)):
        raise BadMessage("factor has values other than 0 below its diagonal, expected an upper triangular matrix.")
    diagonal = np.diagonal(factor)
    if np.any(diagonal < 0):
        raise BadMessage(f"factor has {shown(diagonal.min())} on its diagonal, expected zero or more.")
