"""Checks of what a device uploads before training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codedfl._messages import shown
from codedfl.federation._checks._fields import BadMessage, checked_array, number, require_names, require_same, whole
from codedfl.federation.transport import Packet
from codedfl.uploads import Array, ArrayLayout, Layout, Received, Terms, Upload

MASKED = "masked"
"""The kind of an upload that is hidden by pairwise masks: its arrays hold words."""

LARGEST_NOISE_VARIANCE = 1e30

WORDS = np.dtype(np.uint64)


def checked_upload(
    packet: Packet, *, device: str, upload: Upload, terms: Terms, samples: int, masked: bool = False
) -> Received:
    """Check what a device uploads before training.

    It holds the values ``device``, ``kind``, ``coded_samples``, ``noise_variance`` and ``label_noise_variance``; if some of a
    device's rows are behind it, also ``rows``. The arrays are those of its layout; under masks, words in the same shapes.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        upload: what was asked for.
        terms: what everybody knows of it.
        samples: ``l_i``, as the device said before.
        masked: whether it is hidden by masks.

    Raises:
        BadMessage: it is anything else.
    """
    layout = _layout(upload, terms, masked=masked)
    require_names("array", packet.arrays, tuple(layout))
    values, kind = packet.values, MASKED if masked else upload.name
    declared = ("device", "kind", "coded_samples", "noise_variance", "label_noise_variance")
    require_names("value", values, (*declared, "rows") if upload.declares_rows else declared)
    require_same("device", values, device)
    require_same("kind", values, kind)
    whole("coded_samples", values, terms.coded_samples, terms.coded_samples)
    noise_variance = number("noise_variance", values, LARGEST_NOISE_VARIANCE)
    label_noise_variance = number("label_noise_variance", values, LARGEST_NOISE_VARIANCE)
    rows = whole("rows", values, 1, samples) if upload.declares_rows else 0
    arrays = {
        name: checked_array(name, packet.arrays, expected.dtype, expected.shape, expected.largest)
        for name, expected in layout.items()
    }
    for name, expected in layout.items():
        _require_as_told(name, arrays[name], expected, noiseless=noise_variance == 0)
    return Received(arrays, noise_variance, label_noise_variance, rows, kind)


def _layout(upload: Upload, terms: Terms, *, masked: bool) -> Layout:
    layout = upload.layout(terms)
    return {name: replace(each, dtype=WORDS) for name, each in layout.items()} if masked else layout


def _require_as_told(name: str, array: Array, expected: ArrayLayout, *, noiseless: bool) -> None:
    if expected.not_negative and noiseless and array.min() < 0:
        raise BadMessage(f"{name} = {shown(array.min())}, expected zero or more, since no noise was added.")
    if not expected.upper:
        return
    if np.any(np.tril(array, -1)):
        raise BadMessage(f"{name} has values other than 0 below its diagonal, expected an upper triangular matrix.")
    diagonal = np.diagonal(array)
    if np.any(diagonal < 0):
        raise BadMessage(f"{name} has {shown(diagonal.min())} on its diagonal, expected zero or more.")
