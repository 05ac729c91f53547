"""Checks of everything that arrives at the server: a message is as described here, or it is a `BadMessage`."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from codedfl._messages import listing, shown
from codedfl.flower._packet import Packet
from codedfl.typing import FloatArray, row_blocks

Array = npt.NDArray[Any]

UploadKind = Literal["rows", "factor", "subspace", "masked"]
"""Coded rows, their triangular factor, a subspace sketch, or coded rows under pairwise masks."""

MOST_SAMPLES = 2**40
LARGEST_NOISE_VARIANCE = 1e30
LONGEST_COMPUTATION_S = 1e6
LONGEST_VERSION = 64

LARGEST_ENTRY = 1e15
"""Largest absolute value of an entry of coded data: with it, sums of squares stay finite in float32."""

LARGEST_PRODUCT = LARGEST_ENTRY**2
"""Largest absolute value of what is a sum of products: sketches, updates, eigenvalues."""


class BadMessage(ValueError):  # noqa: N818  (it names what came, as logs do)
    """A message that the server refuses: one sentence that names the field, what it holds and what was expected."""


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


@dataclass(frozen=True, eq=False)
class ReceivedUpdate:
    """What a device computed in a round.

    Args:
        update: accumulated gradients, (d, o), float32, read-only.
        batch_size: the samples of a local step.
        compute_s: how long the device computed, by its own clock.
    """

    update: FloatArray
    batch_size: int
    compute_s: float


@dataclass(frozen=True)
class ReceivedAnswer:
    """A device's part in one phase of a protocol.

    Args:
        phase: the phase.
        content: byte strings by name.
    """

    phase: str
    content: Mapping[str, bytes]


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
        codedfl.flower._checks.BadMessage: device = 'north', expected 'south'.
    """
    _require_names("array", packet.arrays, ())
    values = packet.values
    _require_names("value", values, ("device", "prescription", "samples"), ("smoothness", "choice", "version"))
    _require_same("device", values, device)
    _require_same("prescription", values, prescription)
    samples = _whole("samples", values, 1, MOST_SAMPLES)
    smoothness = _number("smoothness", values, LARGEST_PRODUCT, positive=True) if "smoothness" in values else None
    choice = _whole("choice", values, -1, menu_items - 1) if "choice" in values else None
    version = _text("version", values, LONGEST_VERSION) if "version" in values else ""
    declines = choice == -1
    return Hello(samples, smoothness, None if declines else choice, not declines, version)


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
    _require_names("array", packet.arrays, tuple(layout))
    values = packet.values
    declared = ("device", "kind", "coded_samples", "noise_variance", "label_noise_variance")
    _require_names("value", values, (*declared, "rows") if kind == "subspace" else declared)
    _require_same("device", values, device)
    _require_same("kind", values, kind)
    _whole("coded_samples", values, coded_samples, coded_samples)
    noise_variance = _number("noise_variance", values, LARGEST_NOISE_VARIANCE)
    label_noise_variance = _number("label_noise_variance", values, LARGEST_NOISE_VARIANCE)
    rows = _whole("rows", values, 1, samples) if kind == "subspace" else 0
    arrays = {name: _array(name, packet.arrays, *expected) for name, expected in layout.items()}
    if kind == "factor":
        _require_factor(arrays["factor"])
    if kind == "subspace" and noise_variance == 0 and arrays["energy"][0] < 0:
        raise BadMessage(f"energy = {shown(arrays['energy'][0])}, expected zero or more, since no noise was added.")
    return ReceivedUpload(kind, arrays, noise_variance, label_noise_variance, rows)


def checked_update(
    packet: Packet, *, device: str, round: int, dimension: int, outputs: int, largest_batch: int
) -> ReceivedUpdate:
    """Check what a device computed in a round.

    It holds the array ``update`` (d, o), float32, and the values ``device``, ``round``, ``batch_size`` and ``compute_s``.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        round: the round that is under way.
        dimension: ``d``.
        outputs: ``o``.
        largest_batch: the samples that were asked for.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> values = {"device": "north", "round": 7, "batch_size": 5, "compute_s": 0.1}
        >>> packet = Packet({"update": np.full((3, 2), np.nan, np.float32)}, values)
        >>> checked_update(packet, device="north", round=7, dimension=3, outputs=2, largest_batch=20)
        Traceback (most recent call last):
        codedfl.flower._checks.BadMessage: update has 6 value(s) such as nan, the first at index (0, 0), expected finite numbers.
    """
    _require_names("array", packet.arrays, ("update",))
    values = packet.values
    _require_names("value", values, ("device", "round", "batch_size", "compute_s"))
    _require_same("device", values, device)
    _whole("round", values, round, round)
    batch_size = _whole("batch_size", values, 1, largest_batch)
    compute_s = _number("compute_s", values, LONGEST_COMPUTATION_S)
    update = _array("update", packet.arrays, np.dtype(np.float32), (dimension, outputs), LARGEST_PRODUCT)
    return ReceivedUpdate(update, batch_size, compute_s)


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
    _require_names("array", packet.arrays, ())
    values = packet.values
    _require_names("value", values, ("device", "phase", *names), tuple(optional))
    _require_same("device", values, device)
    _require_same("phase", values, phase)
    content = {}
    for name in (*names, *(name for name in optional if name in values)):
        value = values[name]
        if type(value) is not bytes or not least_bytes <= len(value) <= most_bytes:
            size = f"{least_bytes}" if least_bytes == most_bytes else f"{least_bytes} to {most_bytes}"
            raise BadMessage(f"{name} = {_told(value)}, expected {size} byte(s).")
        content[name] = value
    return ReceivedAnswer(phase, content)


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
    dtype = words if kind == "masked" else single
    return {
        "features": (dtype, (coded_samples, dimension), LARGEST_ENTRY),
        "labels": (dtype, (coded_samples, outputs), LARGEST_ENTRY),
    }


def _require_names(
    what: str, given: Mapping[str, object], required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Refuse missing and unknown names."""
    for name in required:
        if name not in given:
            raise BadMessage(f"the {what} {shown(name)} is missing, expected {listing((*required, *optional))}.")
    known = {*required, *optional}
    for name in given:
        if name not in known:
            expected = listing((*required, *optional)) or f"no {what} at all"
            raise BadMessage(f"the {what} {_told(name)} is unknown, expected {expected}.")


def _require_same(name: str, values: Mapping[str, object], expected: str) -> None:
    value = values[name]
    if type(value) is not str or value != expected:
        raise BadMessage(f"{name} = {_told(value)}, expected {shown(expected)}.")


def _text(name: str, values: Mapping[str, object], longest: int) -> str:
    value = values[name]
    if type(value) is not str or len(value) > longest or not value.isprintable():
        raise BadMessage(f"{name} = {_told(value)}, expected at most {longest} characters of text.")
    return value


def _whole(name: str, values: Mapping[str, object], least: int, most: int) -> int:
    value = values[name]
    if type(value) is not int or not least <= value <= most:
        expected = f"{least}" if least == most else f"a whole number from {least} to {most}"
        raise BadMessage(f"{name} = {_told(value)}, expected {expected}.")
    return value


def _number(name: str, values: Mapping[str, object], most: float, *, positive: bool = False) -> float:
    """Return a finite number from zero to ``most``; it may come as an integer."""
    value = values[name]
    # Compared before it is converted: a long integer does not fit into a float.
    if type(value) in (int, float) and 0 <= cast(float, value) <= most:
        number = float(cast(float, value))
        if number > 0 or not positive:
            return number
    least = "a number above 0 and up" if positive else "a number from 0"
    raise BadMessage(f"{name} = {_told(value)}, expected {least} to {most:g}.")


def _array(
    name: str, arrays: Mapping[str, object], dtype: np.dtype[Any], shape: tuple[int, ...], largest: float
) -> Array:
    """Return a read-only copy in C order of an array that is as expected; its content is looked at last."""
    given = arrays[name]
    if not isinstance(given, np.ndarray):
        raise BadMessage(f"{name} is {_told(given)}, expected an array.")
    # A dtype of the other byte order is a different one.
    if given.dtype != dtype:
        raise BadMessage(f"{name} has the type {_cut(given.dtype.str)}, expected {dtype.str} ({dtype.name}).")
    if given.shape != shape:
        raise BadMessage(f"{name} has the shape {shown(given.shape)}, expected {shape}.")
    array = np.array(given, dtype, order="C", copy=True, subok=False)
    if dtype.kind == "f":
        _require_sound(name, array, largest)
    array.flags.writeable = False
    return array


def _require_sound(name: str, array: Array, largest: float) -> None:
    """Refuse NaN, infinities and absurdly large numbers, and say where the first one is."""
    count, first = 0, 0
    flat = array.reshape(-1)
    for block in row_blocks(len(flat), 1):
        bad = ~(np.abs(flat[block]) <= largest)  # negated, so that NaN is bad
        if not count and bad.any():
            first = block.start + int(np.argmax(bad))
        count += int(np.count_nonzero(bad))
    if count:
        where = tuple(int(i) for i in np.unravel_index(first, array.shape))
        expected = "finite numbers" if not np.isfinite(flat[first]) else f"numbers from -{largest:g} to {largest:g}"
        raise BadMessage(
            f"{name} has {count} value(s) such as {shown(flat[first])}, the first at index {where}, expected {expected}."
        )


def _require_factor(factor: Array) -> None:
    if np.any(np.tril(factor, -1)):
        raise BadMessage("factor has values other than 0 below its diagonal, expected an upper triangular matrix.")
    diagonal = np.diagonal(factor)
    if np.any(diagonal < 0):
        raise BadMessage(f"factor has {shown(diagonal.min())} on its diagonal, expected zero or more.")


def _told(value: object) -> str:
    """Show a value of any type and size, without writing out much more of it than is shown."""
    if isinstance(value, str | bytes) and len(value) > _LONG:
        return f"{shown(value[:_LONG])} and so on ({len(value)} in all)"
    if value is None or isinstance(value, str | bytes | bool | int | float | np.number | np.bool_):
        return shown(value)
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {_cut(type(value).__name__)}"


_LONG = 50


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
