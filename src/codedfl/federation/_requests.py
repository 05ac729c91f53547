"""What a server asks, as a device checks it before it does anything, and the upload that all devices agreed on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._vault import NEVER
from codedfl.federation.transport import Packet
from codedfl.identity import identity
from codedfl.incentive import Menu
from codedfl.training import Payload
from codedfl.typing import FloatArray
from codedfl.uploads import Terms, Upload

MOST_ITEMS = 10_000
LARGEST_ITEM = 1e100
"""Largest budget or reward of a contract: products of two stay finite."""


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The work of a round.

    Args:
        sent: what the scheme broadcasts, by name, float32.
        round: ``k``.
        batch_size: rows of a local step, at most.
        local_steps: ``tau``.
        step_size: ``eta_k``.
        sampling: how rows are chosen.
        stride: rows that a walk moves on by in a round.
        counted: the last round in which the server counted a message of this device, if its scheme has a memory.
    """

    sent: Payload
    round: int
    batch_size: int
    local_steps: int
    step_size: float
    sampling: Literal["bernoulli", "walk"]
    stride: int
    counted: int = NEVER


def requested_train(request: Packet, federation: FederationConfig) -> TrainRequest:
    """Check a request to train.

    Raises:
        InputError: naming what is wrong; the device does nothing.
    """
    agreed = agreed_training(federation)
    shapes = federation.algorithm.travels_down((federation.dimension, federation.outputs))
    sent, values = {name: requested_array(request, name, shape) for name, shape in shapes.items()}, request.values
    if any(values.get(name) != value for name, value in agreed.items()):
        raise InputError(
            f"{' and '.join(f'{name} = {shown(values.get(name))}' for name in agreed)} are not those of federation.toml,"
            f" {' and '.join(map(shown, agreed.values()))}: use the same file on both sides."
        )
    step_size = values.get("step_size")
    if type(step_size) is not float or not (math.isfinite(step_size) and step_size > 0):
        raise InputError(f"step_size = {shown(step_size)} must be a positive number.")
    return TrainRequest(
        sent,
        requested_round(request),
        _whole(request, "batch_size", 1),
        int(agreed["local_steps"]),
        step_size,
        "walk" if agreed["sampling"] == "walk" else "bernoulli",
        _whole(request, "stride", 1),
        _whole(request, "counted", NEVER) if "counted" in values else NEVER,
    )


def agreed_training(federation: FederationConfig) -> Mapping[str, int | str]:
    """Return what both sides know of the work of a round, or refuse rounds of a scheme that has none."""
    agreed = federation.algorithm.device.agreed(federation.training.local_steps)
    if agreed is None:
        raise InputError(f"scheme = {shown(federation.scheme)} has no training on devices: nothing is computed.")
    return agreed


def requested_model(request: Packet, federation: FederationConfig) -> FloatArray:
    """Return the model that a server sends, or refuse it."""
    return requested_array(request, "model", (federation.dimension, federation.outputs))


def requested_array(request: Packet, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return an array that a server sends, or refuse it."""
    array = request.arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
        raise InputError(f"{name} must be float32 of the shape {shape}, as federation.toml prescribes.")
    if not np.isfinite(array).all():
        raise InputError(f"{name} has values that are not finite: the server's training has diverged.")
    return np.ascontiguousarray(array)


def requested_round(request: Packet) -> int:
    """Return the round that a server asks for, or refuse it."""
    return _whole(request, "round", 0)


def wants_smoothness(config: FederationConfig) -> bool:
    """Return whether the server can choose no step size unless devices tell how strongly their loss is curved."""
    scheme = config.algorithm
    return not scheme.tunes_itself and scheme.upload is None


def requested_menu(request: Packet) -> Menu | None:
    """Check the contract that a server offers; None if it offers none."""
    if "mi_dp_bits" not in request.values and "reward" not in request.values:
        return None
    columns = []
    for name in ("mi_dp_bits", "reward"):
        given = request.values.get(name)
        if not isinstance(given, list) or not 0 < len(given) <= MOST_ITEMS:
            raise InputError(f"{name} of the contract must be a list of 1 to {MOST_ITEMS} numbers.")
        if not all(isinstance(item, int | float) and 0 <= item <= LARGEST_ITEM for item in given):
            raise InputError(f"{name} of the contract must have numbers from 0 to {LARGEST_ITEM:g}.")
        columns.append(np.array(given, np.float64))
    if len(columns[0]) != len(columns[1]):
        raise InputError(
            f"the contract has {len(columns[0])} budgets and {len(columns[1])} rewards: give as many of both."
        )
    return Menu(*columns)


def _whole(request: Packet, name: str, least: int) -> int:
    value = request.values.get(name)
    if type(value) is not int or not least <= value <= 2**62:
        raise InputError(f"{name} = {shown(value)} must be a whole number, {least} or more.")
    return value


@dataclass(frozen=True)
class UploadTask:
    """What a device is to upload, as its federation prescribes.

    Args:
        upload: the upload of the scheme.
        terms: what everybody knows.
    """

    upload: Upload
    terms: Terms

    @classmethod
    def of(cls, config: FederationConfig) -> Self | None:
        """Return the task of a federation; None if its scheme needs no upload."""
        upload, terms = config.algorithm.upload, config.terms
        return cls(upload, terms) if upload is not None and upload.layout(terms) else None

    def key(self, prescription: str, noise_variance: float, label_noise_variance: float) -> str:
        """Return the fingerprint of an upload with this noise."""
        return identity((prescription, UploadKey.of(self), noise_variance, label_noise_variance))


@dataclass(frozen=True)
class UploadKey:
    """What the fingerprint of an upload is made of, besides its noise and the prescription.

    Vaults keep uploads under these fingerprints, and a device whose vault has none draws anew, which reveals more. So fields and
    the name under which the class enters a fingerprint stay as they are, for good.

    Args:
        kind: name of the upload.
        coded_samples: ``c``.
        rank: ``r``, of a sketch that devices make.
        sketch_rows: ``|S|`` at most, of such a sketch.
        clip_norm: the norm to which samples are clipped; None for no clipping.
        seed: public seed of a sketch's directions.
    """

    identity_name: ClassVar[str] = "codedfl.flower._uploads.UploadTask"

    kind: str
    coded_samples: int
    rank: int
    sketch_rows: int
    clip_norm: float | None
    seed: int

    @classmethod
    def of(cls, task: UploadTask) -> Self:
        """Return that of a task."""
        upload, terms = task.upload, task.terms
        rank, rows = upload.sketched(terms.dimension)
        return cls(upload.name, terms.coded_samples, rank, rows, terms.clip_norm, terms.public.seed)


def noiseless(config: FederationConfig) -> bool:
    """Return whether the scheme of a federation uploads without noise, unless a device decides otherwise."""
    upload = config.algorithm.upload
    return upload is not None and not upload.noise


def learnt_exactly(config: FederationConfig) -> str:
    """Return what the server learns exactly of every device, as no noise is possible; empty if there is no such thing."""
    upload = config.algorithm.upload
    return "" if upload is None or upload.can_have_noise else upload.message
