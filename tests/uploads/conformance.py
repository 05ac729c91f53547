"""What every upload has to keep, as functions that fail with an `AssertionError`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from codedfl.coding import CodedData, Gram, SubspaceSketch
from codedfl.fleet import BITS_PER_NUMBER
from codedfl.privacy import ExactNoise, Noise, PrivacyTarget, Release, SeededNoise, epsilon_of
from codedfl.setting import Setting
from codedfl.training import Idle
from codedfl.typing import FloatArray
from codedfl.uploads import NoisyMoments, PrivateCurvature, Received, Terms, Upload

DRAWS = 150
"""Uploads in a Monte Carlo estimate."""

SIGMAS = 5.0
"""Standard errors that an entry may be off by: one in two million is, and a few hundred are looked at."""


def check_that_a_draw_is_as_laid_out(upload: Upload, setting: Setting) -> None:
    """In a simulation and on a device, with and without noise."""
    terms = terms_of(setting)
    layout = upload.layout(terms)
    rows = setting.rows(0)
    for exact in (False, True):
        for variance in (0.0, 0.3):
            arrays = upload.draw(terms, rows, noise_of(7, variance, exact=exact))
            assert set(arrays) == set(layout)
            for name, expected in layout.items():
                array = arrays[name]
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape), name
                assert np.isfinite(array).all()
                assert np.abs(array).max() <= expected.largest
                if expected.upper:
                    assert (array == np.triu(array)).all()
                    assert (np.diagonal(array) >= 0).all()
                if expected.not_negative and variance == 0:
                    assert (array >= 0).all()


def check_that_a_draw_depends_on_rows_and_noise_alone(upload: Upload, setting: Setting) -> None:
    """The same generator gives the same arrays, whatever else draws numbers, and rows stay as they are."""
    terms, rows = terms_of(setting), setting.rows(0)
    before = rows.features.copy(), rows.labels.copy()
    np.random.seed(0)  # noqa: NPY002 (that nobody is to use)
    first = upload.draw(terms, rows, noise_of(7, 0.3))
    np.random.seed(1)  # noqa: NPY002
    second = upload.draw(terms, rows, noise_of(7, 0.3))
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name
    assert np.array_equal(before[0], rows.features)
    assert np.array_equal(before[1], rows.labels)


def check_that_order_does_not_matter(upload: Upload, setting: Setting) -> None:
    """What the server holds is the same up to rounding in float32."""
    received = list(uploads_of(upload, setting))
    samples = setting.federation.samples.astype(np.float64)
    terms = terms_of(setting)
    one, other = (numbers(upload.collect(terms, samples, iter(each))) for each in (received, received[::-1]))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.nanmax(np.abs(one)))


def check_that_a_simulation_has_the_law_of_the_two_halves(upload: Upload, setting: Setting) -> None:
    """Mean and mean square of every number that the server holds, each within its standard errors."""
    plan, samples = Idle().plan(setting), setting.federation.samples.astype(np.float64)
    apart, at_once = (
        [replace(setting, streams=setting.streams.child(f"{way}-{draw}")) for draw in range(DRAWS)]
        for way in ("apart", "at-once")
    )
    drawn = np.array([numbers(upload.collect(terms_of(each), samples, uploads_of(upload, each))) for each in apart])
    simulated = np.array([numbers(upload.simulated(each, plan)) for each in at_once])
    known = ~np.isnan(drawn).all(axis=0)  # exact statistics leave out what nobody sent
    for power in (1, 2):
        one, other = drawn[:, known] ** power, simulated[:, known] ** power
        error = np.sqrt((one.var(axis=0, ddof=1) + other.var(axis=0, ddof=1)) / DRAWS)
        rounding = 1e-5 * np.maximum(np.abs(one).mean(axis=0), np.abs(one).mean())
        off = np.abs(one.mean(axis=0) - other.mean(axis=0)) / (error + rounding)
        assert off.max() < SIGMAS, f"off by {off.max():.1f} standard errors in the moment of order {power}"


def check_that_releases_admit_the_mechanism(upload: Upload, setting: Setting) -> None:
    """Whoever sees it learns no more than what is told."""
    plan, terms, delta = Idle().plan(setting), terms_of(setting), 1e-5
    levels = upload.noise_levels(setting, plan)
    summed = setting.privacy is not None and setting.privacy.sums_only and upload.can_be_summed
    for device in np.flatnonzero(~setting.code.uploading).tolist():
        assert upload.releases(setting, plan, device) == ()
    for device in np.flatnonzero(setting.code.uploading & (setting.federation.samples > 0)).tolist():
        noise, label_noise = (float(level.sum() if summed else level[device]) for level in levels)
        mechanism = upload.mechanism(terms, noise, label_noise, int(setting.federation.samples[device]))
        told = [release.mechanism for release in upload.releases(setting, plan, device)]
        assert told
        if mechanism is None:
            assert None in told
            continue
        stated = [each for each in told if each is not None]
        if len(stated) == len(told):
            assert epsilon_of(stated, delta) >= epsilon_of([mechanism], delta) * (1 - 1e-6)


def check_that_who_sees_less_learns_no_more(upload: Upload, setting: Setting) -> None:
    """Whether that is features alone or the sum over devices."""
    plan, delta = Idle().plan(setting), 1e-5
    for device in np.flatnonzero(setting.code.uploading & (setting.federation.samples > 0)).tolist():
        views = (upload.releases, upload.releases_of_features, upload.releases_in_sum)
        everything, features, in_sum = (_epsilon(view(setting, plan, device), delta) for view in views)
        assert features <= everything
        assert in_sum <= everything
        if not upload.can_be_summed:
            assert in_sum == everything, "the server keeps devices apart"


def check_that_a_budget_is_kept(upload: Upload, setting: Setting) -> None:
    """Noise of the largest ratio uses up an epsilon; half of it is for labels, where they are told about."""
    terms, samples = terms_of(setting), 10
    features, labels = upload.sensitivities(terms, samples)
    if not np.isfinite([features, labels]).all():
        assert upload.mechanism(terms, 1.0, 1.0, samples) is None
        return
    ratio = upload.largest_ratio(terms, 1.5, 1e-5)
    share = 1.0 if labels == 0 else 2.0
    noise, label_noise = share * features**2 / ratio, share * labels**2 / ratio
    assert abs(upload.epsilon(terms, noise, label_noise, samples, 1e-5) / 1.5 - 1) < 1e-4
    assert upload.epsilon(terms, 2 * noise, 2 * label_noise, samples, 1e-5) < 1.5
    kept = upload.rounding_delta(
        terms, samples=samples, noise_variance=noise, label_noise_variance=label_noise, epsilon=1.5
    )
    assert 0 < kept < 1e-9
    assert upload.mechanism(replace(terms, clip_norm=None), noise, label_noise, samples) is None


def check_that_noise_is_agreed_on_as_it_is_simulated(upload: Upload, setting: Setting) -> None:
    """A device that knows the terms alone adds the noise of a simulation under a target, and accounts for it in the same way."""
    assert upload.agreed_noise(replace(terms_of(setting), target=None)) is None
    private = replace(setting, privacy=PrivacyTarget(100.0, 1e-5))
    plan, agreed = Idle().plan(private), upload.agreed_noise(terms_of(private))
    for device in np.flatnonzero(setting.code.uploading & (setting.federation.samples > 0)).tolist():
        levels = [float(level[device]) for level in upload.noise_levels(private, plan)]
        if agreed is None:
            assert levels == [float(level[device]) for level in upload.noise_levels(setting, plan)]
            continue
        np.testing.assert_allclose(levels, [agreed.noise_variance, agreed.label_noise_variance], rtol=1e-12)
        assert [release.mechanism for release in upload.releases(private, plan, device)] == [agreed.mechanism]


def check_that_the_cost_is_that_of_the_layout(upload: Upload, setting: Setting) -> None:
    """Every number that is laid out is paid for, and no other."""
    numbers_sent = sum(array.numbers for array in upload.layout(terms_of(setting)).values())
    bits = upload.cost(setting, Idle().plan(setting)).bits
    assert bits.tolist() == (setting.code.uploading * float(BITS_PER_NUMBER * numbers_sent)).tolist()


def check_that_it_can_be_told_about(upload: Upload, setting: Setting) -> None:
    """It has a name, and words for tables and plans."""
    assert upload.name
    assert upload.message
    assert upload.describe()
    assert upload.in_words()
    upload.require_possible(setting, Idle().plan(setting))


CHECKS = (
    check_that_a_draw_is_as_laid_out,
    check_that_a_draw_depends_on_rows_and_noise_alone,
    check_that_order_does_not_matter,
    check_that_a_simulation_has_the_law_of_the_two_halves,
    check_that_releases_admit_the_mechanism,
    check_that_who_sees_less_learns_no_more,
    check_that_a_budget_is_kept,
    check_that_noise_is_agreed_on_as_it_is_simulated,
    check_that_the_cost_is_that_of_the_layout,
    check_that_it_can_be_told_about,
)


def _epsilon(releases: Sequence[Release], delta: float) -> float:
    mechanisms = [release.mechanism for release in releases]
    known = [mechanism for mechanism in mechanisms if mechanism is not None]
    return epsilon_of(known, delta) if len(known) == len(mechanisms) else math.inf


def terms_of(setting: Setting) -> Terms:
    """Return the terms of the only coded batch."""
    (rows,) = Idle().plan(setting).coded_rows(setting.code.coded_samples)
    return Terms.of(setting, rows)


def noise_of(seed: int, variance: float, *, exact: bool = False) -> Noise:
    """Return noise of a simulation, or of a device with bytes from a seed."""
    rng = np.random.Generator(np.random.Philox(seed))
    if exact:
        return ExactNoise(rng, variance, variance, np.random.default_rng(seed).bytes)
    return SeededNoise(rng, variance, variance)


def uploads_of(upload: Upload, setting: Setting) -> Iterator[tuple[int, Received]]:
    """Draw what all devices send."""
    devices = {int(i): setting.rows(int(i)) for i in np.flatnonzero(setting.code.uploading)}
    levels = upload.noise_levels(setting, Idle().plan(setting))
    return upload.drawn(terms_of(setting), devices, *levels, setting.streams)


@singledispatch
def numbers(held: Any) -> FloatArray:
    """Return what a server holds as numbers that do not depend on signs which mean nothing."""
    raise TypeError(type(held).__name__)


@numbers.register
def _(held: tuple) -> FloatArray:  # type: ignore[type-arg]
    return np.concatenate([_of_coded(coded) for coded in held])


def _of_coded(coded: CodedData) -> FloatArray:
    moments = coded.gram().matrix / coded.coded_samples
    return np.append(moments[np.triu_indices(len(moments))], [coded.noise_variance, coded.effective_rows])


@numbers.register
def _(held: Gram) -> FloatArray:
    return np.append(held.matrix.ravel(), held.samples)


@numbers.register
def _(held: NoisyMoments) -> FloatArray:
    scalars = [held.deviation, held.cross_deviation, held.least_eigenvalue]
    return np.concatenate([held.features[np.triu_indices(len(held.features))], held.cross.ravel(), scalars])


@numbers.register
def _(held: SubspaceSketch) -> FloatArray:
    shown = held.products @ held.test_matrix.T
    parts = (shown, held.label_products, held.energy, held.rows, held.entry_variance.sum(keepdims=True))
    return np.concatenate([part.ravel() for part in parts])


@numbers.register
def _(held: PrivateCurvature) -> FloatArray:
    directions = [
        (part * factors) @ part.T for part, factors in zip(held.geometry.directions, held.geometry.factors, strict=True)
    ]
    return np.concatenate([*(part.ravel() for part in directions), [held.smoothness, held.row_norm]]).astype(np.float64)


@numbers.register
def _(held: np.ndarray) -> FloatArray:
    return held.ravel().astype(np.float64)
