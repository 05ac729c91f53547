"""Canaries: samples that are in the data of a device or not, by a fair coin each, and what messages say about the coins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

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


_LEAST_NOISE = 1e-6
"""Noise that is assumed at least, relative to the signals: numbers of single precision are no more exact."""


@dataclass(eq=False)
class MembershipStatistics:
    """Sufficient statistics of the coins ``b`` of ``m`` canaries, added up over messages.

    Of a message ``v = sum_j b_j a_j + noise``, with known signals ``a_j``, all that counts is ``A^T A`` and ``A^T v``. Messages
    add up to a precision ``P = sum A^T A / s^2`` and a vector ``h = sum A^T v / s^2``. Coded messages, which are not linear
    in the coins, add log-likelihood ratios.

    Args:
        precision: ``P``, (m, m).
        weighted: ``h``, (m,).
        ratios: sums of log-likelihood ratios, (m,).
        messages: how many messages were added.
    """

    precision: FloatArray
    weighted: FloatArray
    ratios: FloatArray
    messages: int = 0

    @classmethod
    def none(cls, canaries: int) -> MembershipStatistics:
        """Return no evidence."""
        return cls(np.zeros((canaries, canaries)), np.zeros(canaries), np.zeros(canaries))

    def add_linear(
        self, canaries: IntArray, products: FloatArray, projections: FloatArray, energy: float, numbers: float
    ) -> None:
        """Add a message that is linear in the coins.

        The variance of the noise is estimated from the message itself, so that noise that is missing is noticed: half of the
        canaries are present, so the mean of ``||v - A 1 / 2||^2`` is ``n s^2 + tr(A^T A) / 4``.

        Args:
            canaries: those that may be in the message, (k,).
            products: ``A^T A``, (k, k).
            projections: ``A^T v``, (k,), with what all others contribute subtracted from ``v``.
            energy: ``||v||^2``.
            numbers: ``n``, independent numbers in the message.
        """
        signal = float(np.trace(products))
        if not len(canaries) or signal == 0 or not np.isfinite(energy):
            return
        spread = energy - float(projections.sum()) + float(products.sum()) / 4
        variance = max(spread - signal / 4, _LEAST_NOISE * signal) / numbers
        self.precision[np.ix_(canaries, canaries)] += products / variance
        self.weighted[canaries] += projections / variance
        self.messages += 1

    def add_ratios(self, canaries: IntArray, ratios: FloatArray) -> None:
        """Add log-likelihood ratios of an independent message."""
        self.ratios[canaries] += ratios
        self.messages += 1

    def __add__(self, other: MembershipStatistics) -> MembershipStatistics:
        return MembershipStatistics(
            self.precision + other.precision,
            self.weighted + other.weighted,
            self.ratios + other.ratios,
            self.messages + other.messages,
        )

    def scores(self) -> FloatArray:
        """Return a log-likelihood ratio of "present" to "absent" for every canary, (m,).

        Coins have mean 1/2 and variance 1/4. If they were Gaussian, the posterior would have the covariance
        ``V = (P + 4 I)^-1`` and the mean ``1/2 + V (h - P 1 / 2)``. Taken so for all other canaries, it gives the ratio
        ``V (h - P 1 / 2) / diag(V)``, exact for a single canary: ``h_j - P_jj / 2``.
        """
        factor = scipy.linalg.cho_factor(self.precision + 4 * np.eye(len(self.weighted)), lower=True)
        covariance = scipy.linalg.cho_solve(factor, np.eye(len(self.weighted)))
        linear: FloatArray = covariance @ (self.weighted - self.precision.sum(axis=1) / 2) / np.diag(covariance)
        return linear + self.ratios
