"""What the server sees of the devices, as statistics of the coins of canaries in their data.

The auditor knows everything but the coins and the noise: all other samples, and which of them are in a batch. What those
contribute is computed by the code under test, without its noise, and subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Any, cast

import numpy as np

from codedfl.audits._canaries import MembershipStatistics, PlantedCanaries
from codedfl.coding import CodedData, Geometry, Gram, Rows, SubspaceSketch, compute_gram
from codedfl.errors import InputError
from codedfl.privacy import coded_scores
from codedfl.setting import Setting
from codedfl.training import (
    DevicePlan,
    DeviceUpdate,
    PreparedScheme,
    Round,
    Start,
    Steps,
    accumulate_gradients,
)
from codedfl.typing import FloatArray, IntArray
from codedfl.uploads import Mean, NoisyMoments, PrivateCurvature, Upload

_ROUNDING = 1e-3
"""Relative difference up to which two ways to compute a sum agree."""


@dataclass(frozen=True, eq=False)
class _Message:
    """An upload of one device, or the sum over devices, and whose data it is made of.

    Args:
        planted: the data and its canaries.
        devices: those whose data it is made of.
        setting: in which it was made.
        upload: how it was made.
        plan: the work of the devices.
        held: what the server holds.
    """

    planted: PlantedCanaries
    devices: Sequence[int]
    setting: Setting
    upload: Upload
    plan: DevicePlan
    held: Any

    @cached_property
    def canaries(self) -> IntArray:
        """Those that may be in the message, (k,)."""
        return np.flatnonzero(np.isin(self.planted.device, self.devices))

    @cached_property
    def clipped(self) -> tuple[FloatArray, FloatArray]:
        """Features and labels of these canaries, clipped."""
        return self.planted.clipped(self.canaries)

    @cached_property
    def background(self) -> Gram:
        """Second moments of all other samples, clipped."""
        bound = self.setting.code.clip_norm
        rows = [_clipped(Rows(*self.planted.real(device)), bound) for device in self.devices]
        return compute_gram(rows, self.setting.workers)


def add_uploads(statistics: MembershipStatistics, planted: PlantedCanaries, prepared: PreparedScheme) -> None:
    """Add what was uploaded before the first round.

    If the server sees every message, each device's upload is drawn anew by itself, by the same code and with the same noise,
    since the upload that training uses was drawn as a sum.
    """
    for message in _messages(planted, prepared):
        _add_held(message.held, statistics, message)


def add_updates(
    statistics: MembershipStatistics,
    planted: PlantedCanaries,
    prepared: PreparedScheme,
    model: FloatArray,
    round: Round,
    updates: Sequence[DeviceUpdate],
) -> None:
    """Add the updates of a round: those of each device, or their sum.

    With the residual ``r`` of its loss, a canary adds ``x' r^T min(1, C / (||x'|| ||r||))`` in the geometry ``x' = D x``.
    Without clipping, it adds about ``tau x r^T``. A sum of fewer updates than the noise counts on is not opened.
    """
    sizes = dict(round.attendance.arrivals())
    start = Start(model, round.step_size)
    target = planted.setting.privacy
    signals, released = [], []
    for device, update in updates:
        steps = prepared.device.steps(device, round.number, sizes[device], [start])
        others = next(iter(accumulate_gradients([_without_canaries(steps, int(planted.samples[device]))])))[0]
        released.append(update.astype(np.float64) / round.attendance.weight - others)
        signals.append(_signals(planted, np.flatnonzero(planted.device == device), steps, model))
    if target is None or not target.sums_only:
        for signal, observed in zip(signals, released, strict=True):
            _add_outer(statistics, *signal, observed)
    elif len(released) >= max(prepared.device.shares, 1):
        canaries, features, residuals = (np.concatenate(parts) for parts in zip(*signals, strict=True))
        _add_outer(statistics, canaries, features, residuals, np.sum(released, axis=0))


def _messages(planted: PlantedCanaries, prepared: PreparedScheme) -> Iterator[_Message]:
    upload, setting = prepared.scheme.upload, prepared.setting
    if upload is None:
        return
    sums_only = setting.privacy is not None and setting.privacy.sums_only
    if sums_only and upload.can_be_summed:
        yield _Message(planted, range(setting.federation.devices), setting, upload, prepared.device, prepared.held)
        return
    upload = upload.settled(setting)  # what is sent may depend on the sizes of all devices together
    for device in np.flatnonzero(setting.code.uploading).tolist():
        alone = _alone(setting, device)
        plan = prepared.scheme.plan(alone)
        yield _Message(planted, (device,), alone, upload, plan, upload.simulated(alone, plan))


def _alone(setting: Setting, device: int) -> Setting:
    """Return the setting with one device, whose noise does not depend on that of others."""
    federation, fleet, code = setting.federation, setting.fleet, setting.code
    features, labels = federation.device(device)
    only = slice(device, device + 1)
    return replace(
        setting,
        federation=replace(
            federation,
            features=features,
            labels=labels,
            offsets=np.array([0, len(features)]),
            device_names=federation.device_names[only],
        ),
        fleet=fleet.among(np.array([device])),
        code=replace(
            code,
            noise_variance=code.noise_variance[only],
            label_noise_variance=code.label_noise_variance[only],
            participants=None,
        ),
        streams=setting.streams.child(f"canaries-{device}"),
        cohort=None,
    )


def _without_canaries(steps: Steps, samples: int) -> Steps:
    """Return the steps on the rows that are no canaries, without noise."""
    private = steps.private and replace(steps.private, norms=steps.private.norms[:samples], standard_deviation=0.0)
    return replace(
        steps,
        features=steps.features[:samples],
        labels=steps.labels[:samples],
        batches=[batch if batch is None else batch[batch < samples] for batch in steps.batches],
        private=private,
    )


def _signals(
    planted: PlantedCanaries, canaries: IntArray, steps: Steps, model: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return canaries, their features and the residuals whose outer product each adds to an update."""
    features, labels = planted.features[canaries], planted.labels[canaries]
    outputs = features @ model.astype(np.float64)
    residuals = steps.loss.residuals(outputs, labels)
    if steps.private is None:
        return canaries, features, len(steps.batches) * residuals
    geometry, clip_norm = steps.private.geometry, steps.private.clip_norm
    inner = geometry.rows(features)
    norms = np.linalg.norm(inner, axis=1)
    sizes = norms * np.linalg.norm(residuals, axis=1)
    weights = clip_norm / np.maximum(sizes, clip_norm)
    quiet = replace(steps.private, norms=norms, standard_deviation=0.0)
    expected = inner.T @ (weights[:, None] * residuals)
    released = quiet.release(features, labels, None, model.astype(np.float64), 1.0, steps.loss)
    if np.linalg.norm(released - expected) > _ROUNDING * np.linalg.norm(expected):
        # The code under test does not clip as it should: take what it does to each canary.
        for place in range(len(canaries)):
            alone = replace(quiet, norms=norms[place : place + 1])
            one = slice(place, place + 1)
            response = alone.release(features[one], labels[one], None, model.astype(np.float64), 1.0, steps.loss)
            weights[place] = np.sum((inner[place] @ response) * residuals[place]) / max(sizes[place] ** 2, 1e-300)
    return canaries, inner, residuals * weights[:, None]


def _add_outer(
    statistics: MembershipStatistics, canaries: IntArray, left: FloatArray, right: FloatArray, observed: FloatArray
) -> None:
    """Add a message to which canary ``j`` adds the outer product of row ``j`` on the left and on the right."""
    products = (left @ left.T) * (right @ right.T)
    projections = np.sum((left @ observed) * right, axis=1)
    statistics.add_linear(canaries, products, projections, float(np.sum(observed**2)), observed.size)


def _add_symmetric(
    statistics: MembershipStatistics, canaries: IntArray, rows: FloatArray, observed: FloatArray
) -> None:
    """Add a symmetric matrix to which canary ``j`` adds ``z z^T``, with noise ``s (E + E^T) / 2``."""
    projections = np.sum((rows @ observed) * rows, axis=1)
    numbers = len(observed) * (len(observed) + 1) / 2
    statistics.add_linear(canaries, (rows @ rows.T) ** 2, projections, float(np.sum(observed**2)), numbers)


@singledispatch
def _add_held(held: object, statistics: MembershipStatistics, message: _Message) -> None:  # noqa: ARG001
    """Add what an upload left at the server, by what that is."""
    raise InputError(
        f"schemes: the audit cannot read the {type(held).__name__} that the server holds after the upload"
        f" {message.upload.describe()!r}: leave schemes with it out."
    )


@_add_held.register
def _(held: tuple, statistics: MembershipStatistics, message: _Message) -> None:  # type: ignore[type-arg]
    for batch, coded in enumerate(held):
        _add_coded(statistics, message, coded, batch)


@_add_held.register
def _(held: Gram, statistics: MembershipStatistics, message: _Message) -> None:
    _add_statistics(statistics, message, held.features, held.cross)


@_add_held.register
def _(held: NoisyMoments, statistics: MembershipStatistics, message: _Message) -> None:
    _add_statistics(statistics, message, held.features, held.cross)


def _add_statistics(
    statistics: MembershipStatistics, message: _Message, second_moment: FloatArray, cross: FloatArray
) -> None:
    features, labels = message.clipped
    _add_symmetric(statistics, message.canaries, features, second_moment - message.background.features)
    _add_outer(statistics, message.canaries, features, labels, cross - message.background.cross)


def _add_coded(statistics: MembershipStatistics, message: _Message, coded: CodedData, batch: int) -> None:
    """Add coded rows or a factor of them, which stand for the samples of a coded batch, each with its weight."""
    planted, bound = message.planted, message.setting.code.clip_norm
    others, canaries, joined = [], [], []
    for place, device in enumerate(message.devices):
        rows = message.plan.uncovered(place, batch)
        chosen = np.arange(len(rows.features)) if rows.chosen is None else rows.chosen
        weights = np.ones(len(chosen)) if rows.weights is None else rows.weights
        real = chosen < planted.samples[device]
        others.append(Rows(rows.features, rows.labels, weights[real], chosen[real]))
        coded_canaries = np.flatnonzero(planted.device == device)[chosen[~real] - planted.samples[device]]
        canaries.append(coded_canaries)
        joined.append(
            _clipped(
                Rows(planted.features[coded_canaries], planted.labels[coded_canaries], weights[~real]), bound
            ).joined()
        )
    observed = np.hstack([coded.features, coded.labels])
    both = np.concatenate(joined)[:, : observed.shape[1]]
    if not len(both):
        return
    background = compute_gram([_clipped(rows, bound) for rows in others], message.setting.workers).matrix
    # Without coded labels, the last feature takes their place: only its noise matters, which is that of the features.
    split, label_noise = (
        (coded.features.shape[1], _label_noise(message))
        if coded.labels.shape[1]
        else (coded.features.shape[1] - 1, coded.noise_variance)
    )
    ratios = coded_scores(
        observed[:, :split],
        observed[:, split:],
        coded.noise_variance,
        label_noise,
        both[:, :split],
        both[:, split:],
        background=background[: observed.shape[1], : observed.shape[1]],
        coded_samples=coded.coded_samples,
    )
    statistics.add_ratios(np.concatenate(canaries), ratios)


def _label_noise(message: _Message) -> float:
    """Return the noise variance of coded labels."""
    _, label_noise = message.upload.noise_levels(message.setting, message.plan)
    return float(label_noise[message.setting.code.uploading].sum())


def _clipped(rows: Rows, bound: float | None) -> Rows:
    return rows if bound is None else rows.clipped(bound)


@_add_held.register
def _(sketch: SubspaceSketch, statistics: MembershipStatistics, message: _Message) -> None:
    features, labels = message.clipped
    projected = features @ sketch.test_matrix
    others = message.background.features @ sketch.test_matrix
    _add_outer(statistics, message.canaries, features, projected, sketch.products.sum(axis=0) - others)
    _add_outer(
        statistics, message.canaries, features, labels, sketch.label_products.sum(axis=0) - message.background.cross
    )


@_add_held.register
def _(held: PrivateCurvature, statistics: MembershipStatistics, message: _Message) -> None:
    _add_mean(statistics, message, held)
    _add_moments(statistics, message, held)


def _add_mean(statistics: MembershipStatistics, message: _Message, held: PrivateCurvature) -> None:
    """Add the noisy sum of features, of which the server keeps the direction: its length is estimated."""
    mean, _ = _parts(message, held)
    if not mean.directions:
        return
    direction = mean.directions[0][:, 0].astype(np.float64)
    features, _ = message.clipped
    others = np.zeros(len(direction))
    for device in message.devices:
        rows = _clipped(Rows(*message.planted.real(device)), message.setting.code.clip_norm)
        others += rows.joined()[:, : len(direction)].sum(axis=0, dtype=np.float64)
    expected = others + features.sum(axis=0) / 2
    along = float(direction @ expected)
    if along > 0:
        observed = float(expected @ expected) / along * direction - others
        _add_outer(statistics, message.canaries, features, np.ones((len(features), 1)), observed[:, None])


def _add_moments(statistics: MembershipStatistics, message: _Message, held: PrivateCurvature) -> None:
    """Add the noisy second moments, of which the server keeps the leading eigenvectors and eigenvalues."""
    mean, moments = _parts(message, held)
    if not moments.directions or not moments.directions[0].size:
        return
    upload, setting = cast(Mean, message.upload), message.setting
    edge, shrunk = held.smoothness, moments.factors[0] ** 2
    values = edge * (1 / shrunk - 1)
    values = values + edge**2 / (4 * values)  # as released
    devices = 1 if setting.privacy is None or setting.privacy.sums_only else len(message.devices)
    deviation = upload.budget(setting).moments_multiplier * np.sqrt(devices)
    bound = np.sqrt(edge / (np.sqrt(2 * setting.federation.dimension) * deviation))
    directions = moments.directions[0].astype(np.float64)

    def coordinates(features: FloatArray) -> FloatArray:
        inner = mean.rows(features.astype(np.float64))
        norms = np.maximum(np.linalg.norm(inner, axis=1), bound)
        shrunk: FloatArray = (bound / norms)[:, None] * (inner @ directions)
        return shrunk

    others = np.zeros((len(values), len(values)))
    for device in message.devices:
        rows = coordinates(message.planted.real(device)[0])
        others += rows.T @ rows
    canaries = message.canaries
    _add_symmetric(statistics, canaries, coordinates(message.planted.features[canaries]), np.diag(values) - others)


def _parts(message: _Message, held: PrivateCurvature) -> tuple[Geometry, Geometry]:
    """Return the parts of the geometry that stem from the mean and from second moments."""
    upload = cast(Mean, message.upload)
    directions, factors = held.geometry.directions, held.geometry.factors
    first = int(np.isfinite(upload.budget(message.setting).mean_multiplier))
    return Geometry(directions[:first], factors[:first]), Geometry(directions[first:], factors[first:])
