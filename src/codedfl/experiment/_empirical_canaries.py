"""Canaries in the data of the devices: samples that are there or not, by a fair coin each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codedfl.coding import Rows
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.privacy import make_canaries
from codedfl.setting import Setting
from codedfl.typing import BoolArray, FloatArray, IntArray

OVERSIZE = 4.0
"""Norm of every other canary, in units of the clip norm: clipping that works brings it back, clipping that does not shows."""

LARGE = 0.99
"""Quantile of the norms of the samples that canaries have if nothing is clipped."""

FEWEST_CANARIES, MOST_CANARIES = 20, 5000


@dataclass(frozen=True, eq=False)
class PlantedCanaries:
    """A setting with canaries in it.

    Every device has a row for each of its canaries, after its own rows. The row of an absent canary is zero in features and
    label: it adds nothing to any sum, and the numbers of rows, which are public, do not tell the coins.

    Args:
        setting: the setting with the rows of the canaries.
        features: of the canaries, (m, d).
        labels: of the canaries, (m, o).
        included: the coins, (m,).
        device: whose data each is in, (m,).
        samples: rows of each device without those of canaries, (N,).
    """

    setting: Setting
    features: FloatArray
    labels: FloatArray
    included: BoolArray
    device: IntArray
    samples: IntArray

    def real(self, device: int) -> tuple[FloatArray, FloatArray]:
        """Return features and labels of the rows of a device that are no canaries."""
        features, labels = self.setting.federation.device(device)
        return features[: self.samples[device]], labels[: self.samples[device]]

    def clipped(self, canaries: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return features and labels of some canaries, clipped as those of samples should be before they are uploaded."""
        rows = Rows(self.features[canaries], self.labels[canaries])
        bound = self.setting.code.clip_norm
        joined = (rows if bound is None else rows.clipped(bound)).joined()
        return joined[:, : self.features.shape[1]], joined[:, self.features.shape[1] :]


def plant_canaries(setting: Setting, count: int) -> PlantedCanaries:
    """Return a setting with canaries, spread evenly over the devices, each present with probability 1/2.

    Features have the clip norm or, every other one, `OVERSIZE` times that; without a clip norm, the `LARGE` quantile of the
    norms. Labels have the largest norm that is allowed, or that quantile.

    Args:
        setting: the setting to audit.
        count: ``m``.

    Raises:
        InputError: if there are too few or too many canaries, or if the data is mapped from files.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> setting = build_experiment(load_config()).setting
        >>> planted = plant_canaries(setting, 100)
        >>> planted.setting.federation.samples - setting.federation.samples
        array([5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5])
    """
    if not FEWEST_CANARIES <= count <= MOST_CANARIES:
        raise InputError(
            f"canaries = {count} must be from {FEWEST_CANARIES} to {MOST_CANARIES}: fewer prove nothing, more take too long."
        )
    federation = setting.federation
    if federation.mapped:
        raise InputError(
            "data.dataset is memory-mapped, so canaries cannot be added to it: audit a part that fits into memory."
        )
    rng = setting.streams.at("canaries")
    included = rng.random(count) < 0.5
    device = np.arange(count) % federation.devices
    clip_norm = setting.code.clip_norm
    norm = clip_norm if clip_norm is not None else _large(federation.features)
    features, labels = make_canaries(count, federation.dimension, federation.outputs, norm, _label_norm(setting), rng)
    if clip_norm is not None:
        features[np.arange(count) // federation.devices % 2 == 1] *= OVERSIZE
    return PlantedCanaries(
        replace(setting, federation=_with_rows(federation, features, labels, included, device)),
        features,
        labels,
        included,
        device,
        federation.samples,
    )


def _with_rows(
    federation: Federation, features: FloatArray, labels: FloatArray, included: BoolArray, device: IntArray
) -> Federation:
    """Return a federation with a row more for every canary, zero for an absent one."""
    order = np.argsort(device, kind="stable")
    ends = federation.offsets[1:][device[order]]
    joined = (
        np.insert(rows, ends, (included[:, None] * added)[order], axis=0)
        for rows, added in ((federation.features, features), (federation.labels, labels))
    )
    new_features, new_labels = (np.ascontiguousarray(rows) for rows in joined)
    added = np.bincount(device, minlength=federation.devices)
    offsets = federation.offsets + np.concatenate([[0], np.cumsum(added)])
    return replace(federation, features=new_features, labels=new_labels, offsets=offsets)


def _label_norm(setting: Setting) -> float:
    federation = setting.federation
    if federation.task == "classification":
        return 1.0
    return setting.code.label_bound or _large(federation.labels)


def _large(rows: FloatArray) -> float:
    return float(np.quantile(np.linalg.norm(rows, axis=1), LARGE)) or 1.0
