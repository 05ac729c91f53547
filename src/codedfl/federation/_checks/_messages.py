"""Checks of everything that arrives at the server: a message is as described here, or it is a `BadMessage`."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from codedfl._messages import shown
from codedfl.federation._checks._fields import (
    BadMessage,
    checked_array,
    number,
    require_names,
    require_same,
    text,
    told,
    whole,
)
from codedfl.federation.transport import Packet
from codedfl.typing import FloatArray
from codedfl.uploads import LARGEST_PRODUCT, Array, ArrayLayout, Layout, Received, Terms, Upload

MOST_SAMPLES = 2**40
LONGEST_VERSION = 64


@dataclass(frozen=True)
class Hello:
    """How a device introduces itself.

    Args:
        samples: ``l_i``, the samples that it trains on.
        smoothness: the largest eigenvalue of its Hessian, if it says so.
        choice: the item of the contract's menu that it accepts, from 0; None if it accepts none.
        joins: whether it takes part; False if it declines the contract.
        version: that of its software, empty if it does not say.
    """

    samples: int
    smoothness: float | None
    choice: int | None
    joins: bool
    version: str


def checked_hello(packet: Packet, *, device: str, prescription: str, menu_items: int = 0) -> Hello:
    """Check how a device introduces itself.

    It holds the values ``device``, ``prescription``, ``samples`` and, if the device likes, ``smoothness``, ``version`` and
    ``choice``: the index of a menu item, or -1 to decline the contract.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        prescription: fingerprint of what all devices must agree on.
        menu_items: how many items of a contract were offered.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> packet = Packet({}, {"device": "north", "prescription": "ab12", "samples": 360, "choice": -1})
        >>> checked_hello(packet, device="north", prescription="ab12")
        Hello(samples=360, smoothness=None, choice=None, joins=False, version='')
        >>> checked_hello(packet, device="south", prescription="ab12")
        Traceback (most recent call last):
        codedfl.federation._checks._fields.BadMessage: device = 'north', expected 'south'.
    """
    require_names("array", packet.arrays, ())
    values = packet.values
    require_names("value", values, ("device", "prescription", "samples"), ("smoothness", "choice", "version"))
    require_same("device", values, device)
    require_same("prescription", values, prescription)
    samples = whole("samples", values, 1, MOST_SAMPLES)
    smoothness = number("smoothness", values, LARGEST_PRODUCT, positive=True) if "smoothness" in values else None
    choice = whole("choice", values, -1, menu_items - 1) if "choice" in values else None
    version = text("version", values, LONGEST_VERSION) if "version" in values else ""
    declines = choice == -1
    return Hello(samples, smoothness, None if declines else choice, not declines, version)


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


LONGEST_COMPUTATION_S = 1e6


@dataclass(frozen=True, eq=False)
class ReceivedUpdate:
    """What a device computed in a round.

    Args:
        arrays: what the scheme declares, by name, float32, read-only.
        batch_size: the samples of a local step.
        compute_s: how long the device computed, by its own clock.
    """

    arrays: Mapping[str, FloatArray]
    batch_size: int
    compute_s: float


def checked_update(
    packet: Packet, *, device: str, round: int, travels: Mapping[str, tuple[int, ...]], largest_batch: int
) -> ReceivedUpdate:
    """Check what a device computed in a round.

    It holds the arrays that the scheme declares, float32, and the values ``device``, ``round``, ``batch_size`` and ``compute_s``.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        round: the round that is under way.
        travels: shapes of the arrays that the scheme declares, by name.
        largest_batch: the samples that were asked for.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> values = {"device": "north", "round": 7, "batch_size": 5, "compute_s": 0.1}
        >>> packet = Packet({"update": np.full((3, 2), np.nan, np.float32)}, values)
        >>> checked_update(packet, device="north", round=7, travels={"update": (3, 2)}, largest_batch=20)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        codedfl.federation._checks._fields.BadMessage: update has 6 value(s) such as nan, the first at index (0, 0), ...
    """
    require_names("array", packet.arrays, tuple(travels))
    values = packet.values
    require_names("value", values, ("device", "round", "batch_size", "compute_s"))
    require_same("device", values, device)
    whole("round", values, round, round)
    batch_size = whole("batch_size", values, 1, largest_batch)
    compute_s = number("compute_s", values, LONGEST_COMPUTATION_S)
    single = np.dtype(np.float32)
    arrays = {
        name: checked_array(name, packet.arrays, single, shape, LARGEST_PRODUCT) for name, shape in travels.items()
    }
    return ReceivedUpdate(arrays, batch_size, compute_s)


def bounded(update: FloatArray, reference_norm: float | None, factor: float) -> tuple[FloatArray, bool]:
    """Scale an update down to ``factor`` times a reference norm, if its Frobenius norm is larger.

    This keeps one absurd update from destroying the model. It is not free: the bound acts whenever a device's true gradient is
    more than ``factor`` times the reference, which needs no malice, only data unlike that of the others, or a model that fits
    everybody but this device. That device then counts for less than its samples, in every such round, so the model tends to the
    optimum of a loss in which it has a smaller weight. Near the common optimum gradients of single devices do not vanish, so the
    bias does not vanish either. With a factor of 10 or more, devices with similar data are never affected.

    Args:
        update: accumulated gradients, (d, o).
        reference_norm: what is usual, for as many samples; None if that is not known yet, for no bound.
        factor: how many times as much is allowed.

    Returns:
        The update, and whether it was scaled.

    Example:
        >>> bounded(np.array([[3.0], [4.0]]), reference_norm=0.5, factor=2.0)
        (array([[0.6],
               [0.8]]), True)
    """
    if reference_norm is None:
        return update, False
    norm, limit = float(np.linalg.norm(update.astype(np.float64))), factor * reference_norm
    if norm <= limit:
        return update, False
    return (update.astype(np.float64) * (limit / norm)).astype(update.dtype), True


def typical_norm(norms: Mapping[str, float], excluding: str) -> float | None:
    """Return the median of the other devices' norms, the reference of `bounded`; None if there are none.

    A device has no influence on its own bound, and fewer than half of the others cannot move the median beyond what honest
    devices send.

    Args:
        norms: the Frobenius norm of the last accepted update of every device, per sample of its batch, by name.
        excluding: the device whose update is to be bounded.

    Example:
        >>> typical_norm({"a": 1.0, "b": 3.0, "c": 1e9, "d": 2.0}, excluding="c")
        2.0
    """
    others = [norm for name, norm in norms.items() if name != excluding]
    return float(statistics.median(others)) if others else None


@dataclass(frozen=True)
class ReceivedAnswer:
    """A device's part in one phase of a protocol.

    Args:
        phase: the phase.
        content: byte strings by name.
    """

    phase: str
    content: Mapping[str, bytes]


def checked_answer(
    packet: Packet,
    *,
    device: str,
    phase: str,
    names: Collection[str],
    most_bytes: int,
    least_bytes: int = 1,
    optional: Collection[str] = (),
) -> ReceivedAnswer:
    """Check a device's part in one phase of a protocol: the values ``device`` and ``phase``, and byte strings under given names.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        phase: the phase that is under way.
        names: byte strings that must be there, none of them called ``device`` or ``phase``.
        most_bytes: the longest that any of them may be.
        least_bytes: the shortest.
        optional: byte strings that may be missing.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> packet = Packet({}, {"device": "north", "phase": "keys", "public": bytes(32)})
        >>> answer = checked_answer(packet, device="north", phase="keys", names=["public"], most_bytes=32, least_bytes=32)
        >>> len(answer.content["public"])
        32
    """
    require_names("array", packet.arrays, ())
    values = packet.values
    require_names("value", values, ("device", "phase", *names), tuple(optional))
    require_same("device", values, device)
    require_same("phase", values, phase)
    content = {}
    for name in (*names, *(name for name in optional if name in values)):
        value = values[name]
        if type(value) is not bytes or not least_bytes <= len(value) <= most_bytes:
            size = f"{least_bytes}" if least_bytes == most_bytes else f"{least_bytes} to {most_bytes}"
            raise BadMessage(f"{name} = {told(value)}, expected {size} byte(s).")
        content[name] = value
    return ReceivedAnswer(phase, content)
