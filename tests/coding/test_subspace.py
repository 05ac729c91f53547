"""Sketches estimate what a device's second moments do to the test matrix, and their noise is what it is said to be."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.coding import Rows, SubspaceSketch, public_test_matrix, sketch_rows
from codedfl.errors import InputError
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import SIGMAS, assert_within, random_rows
from tests.uploads.support import sketch_all, sketch_one

D, OUTPUTS, R = 4, 2, 3
DRAWS = 1500
PUBLIC = Streams(5)
OMEGA = public_test_matrix(D, R, PUBLIC)


def moments(rows: Rows) -> tuple[FloatArray, FloatArray, float]:
    """Return ``X^T X Omega``, ``X^T Y`` and ``||X||_F^2`` of weighted rows, one sample after the other."""
    H, cross, energy = np.zeros((D, D)), np.zeros((D, OUTPUTS)), 0.0
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    for x, y, w in zip(rows.features, rows.labels, weights, strict=True):
        H += np.outer(w * x, w * x)
        cross += np.outer(w * x, w * y)
        energy += float(w * x @ (w * x))
    return H @ OMEGA, cross, energy


def all_of(sketch: SubspaceSketch) -> list[FloatArray]:
    return [sketch.products, sketch.label_products, sketch.energy, sketch.rows, sketch.entry_variance]


def sketches(devices: list[Rows], count: int, noise: float = 0.0, seed: int = 0, **options: float) -> SubspaceSketch:
    variances = np.full(len(devices), noise)
    return sketch_all(
        devices,
        R,
        count,
        noise_variance=variances,
        label_noise_variance=0.5 * variances,
        streams=Streams(seed),
        **options,
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sketch_of_all_rows_is_exact(weighted: bool) -> None:
    rows = random_rows(7, D, OUTPUTS, seed=1, weighted=weighted)
    for count in (7, 100):
        products, label_products, energy = sketch_one(rows, R, count, public=PUBLIC, rng=np.random.default_rng(0))
        expected = moments(rows)
        np.testing.assert_allclose(products, expected[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(label_products, expected[1], rtol=1e-12, atol=1e-12)
        assert energy == pytest.approx(expected[2], rel=1e-12)


def test_chosen_rows_are_those_alone() -> None:
    rows = random_rows(9, D, OUTPUTS, seed=2, weighted=True)
    assert rows.weights is not None
    chosen = np.array([8, 1, 4])
    part = rows.taking(chosen)
    alone = Rows(rows.features[chosen], rows.labels[chosen], rows.weights[chosen])
    ours, theirs = sketch_rows(part, OMEGA), moments(alone)
    for place in range(3):
        np.testing.assert_allclose(ours[place], theirs[place], rtol=1e-12, atol=1e-12)


@cache
def drawn(count: int, noise: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return many sketches of the same device, scaled to all of its rows."""
    rows, rng = random_rows(6, D, OUTPUTS, seed=3, weighted=True), np.random.default_rng(4)
    sent = [
        sketch_one(rows, R, count, public=PUBLIC, noise_variance=noise, label_noise_variance=noise / 4, rng=rng)
        for _ in range(DRAWS)
    ]
    scale = len(rows) / count
    return tuple(scale * np.array(values) for values in zip(*sent, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize(("count", "noise"), [(1, 0.0), (2, 0.0), (4, 0.7)])
def test_the_mean_over_the_choice_of_rows_is_that_of_all_rows(count: int, noise: float) -> None:
    """23 numbers, each within 4.5 of its own standard errors."""
    expected = moments(random_rows(6, D, OUTPUTS, seed=3, weighted=True))
    for values, target in zip(drawn(count, noise), expected, strict=True):
        error = values.std(axis=0, ddof=1) / np.sqrt(DRAWS)
        assert np.all(error > 0)
        assert_within(values.mean(axis=0) - target, error)


def test_rows_are_drawn_without_replacement_and_all_alike() -> None:
    """Unit rows show in the sketch of an identity: each was counted at most once, and in ``|S| / l`` of the draws."""
    rows, rng = Rows(np.eye(D), np.zeros((D, OUTPUTS))), np.random.default_rng(6)
    turned = public_test_matrix(D, D, PUBLIC).T
    draws = np.array(
        [np.diag(sketch_one(rows, D, 3, public=PUBLIC, rng=rng)[0] @ turned).round(12) for _ in range(400)]
    )
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert np.all(draws.sum(axis=1) == 3)
    assert_within(draws.mean(axis=0) - 0.75, np.full(D, np.sqrt(0.75 * 0.25 / 400)))


def test_noise_has_the_variance_that_was_asked_for() -> None:
    """The variance of ``n`` normal numbers has the standard error ``sigma^2 sqrt(2 / n)``, and its mean ``sigma / sqrt(n)``."""
    rows, rng = random_rows(6, D, OUTPUTS, seed=3), np.random.default_rng(7)
    exact = moments(rows)
    sent = [
        sketch_one(rows, R, 6, public=PUBLIC, noise_variance=0.3, label_noise_variance=2.0, rng=rng) for _ in range(300)
    ]
    for place, variance in ((0, 0.3), (1, 2.0), (2, 0.3)):
        noise = np.array([one[place] for one in sent]) - exact[place]
        assert abs(noise.var() / variance - 1) < SIGMAS * np.sqrt(2 / noise.size)
        assert abs(noise.mean()) < SIGMAS * np.sqrt(variance / noise.size)


def test_the_variance_of_scaled_entries_is_known() -> None:
    """The same streams choose the same rows, so that noisy and exact sketches differ by noise alone."""
    devices = [random_rows(size, D, OUTPUTS, seed=size) for size in (10, 3, 7)]
    differences = []
    for seed in range(200):
        noisy, exact = (sketches(devices, 4, noise, seed) for noise in (0.6, 0.0))
        differences.append(noisy.products - exact.products)
    assert noisy.entry_variance.tolist() == pytest.approx([0.6 * (10 / 4) ** 2, 0.6, 0.6 * (7 / 4) ** 2])
    assert not exact.entry_variance.any()
    found = np.array(differences).var(axis=(0, 2, 3))
    assert_within(found / noisy.entry_variance - 1, np.full(3, np.sqrt(2 / (200 * D * R))))


def test_sketches_are_scaled_to_all_rows_of_a_device() -> None:
    devices = [random_rows(size, D, OUTPUTS, seed=size) for size in (10, 3)]
    sketch = sketches(devices, 4)
    assert sketch.rows.tolist() == [4, 3]
    assert (sketch.devices, sketch.rank) == (2, R)
    for i, rows in enumerate(devices):
        sent = sketch_one(rows, R, 4, public=Streams(0), rng=Streams(0).at("sketch", device=i))
        scale = len(rows) / min(4, len(rows))
        np.testing.assert_allclose(sketch.products[i], scale * sent[0], rtol=1e-12)
        np.testing.assert_allclose(sketch.label_products[i], scale * sent[1], rtol=1e-12)
        assert sketch.energy[i] == pytest.approx(scale * sent[2], rel=1e-12)


def test_a_device_without_rows_sends_nothing_and_changes_nothing_for_others() -> None:
    first, empty, last = (
        random_rows(5, D, OUTPUTS, seed=1),
        Rows(np.zeros((0, D)), np.zeros((0, OUTPUTS))),
        random_rows(4, D, OUTPUTS, 2),
    )
    sketch, full = sketches([first, empty, last], 3, 0.2), sketches([first, first, last], 3, 0.2)
    for some, others in zip(all_of(sketch), all_of(full), strict=True):
        assert not some[1].any()
        assert np.array_equal(some[[0, 2]], others[[0, 2]])


def test_samples_are_clipped_first() -> None:
    rows = random_rows(6, D, OUTPUTS, seed=8)
    bound = float(np.median(rows.norms()))
    sketch = sketches([rows], 6, clip_norm=bound)
    factors = np.minimum(1.0, bound / np.linalg.norm(rows.features, axis=1))
    assert 0 < np.count_nonzero(factors < 1) < 6
    expected = sketches([Rows(rows.features * factors[:, None], rows.labels * factors[:, None])], 6)
    for some, others in zip(all_of(sketch), all_of(expected), strict=True):
        np.testing.assert_allclose(some, others, rtol=1e-12, atol=1e-12)
    assert sketch.energy[0] <= 6 * bound**2


def test_single_precision_is_summed_in_double() -> None:
    rows = random_rows(50, D, OUTPUTS, seed=9)
    single = Rows(rows.features.astype(np.float32), rows.labels.astype(np.float32))
    double = Rows(single.features.astype(np.float64), single.labels.astype(np.float64))
    for some, others in zip(all_of(sketches([single], 50)), all_of(sketches([double], 50)), strict=True):
        assert some.dtype == np.float64
        assert np.array_equal(some, others)


def test_the_test_matrix_spans_a_uniformly_random_subspace() -> None:
    """``E[Omega] = 0`` and ``E[Omega Omega^T] = (r / d) I``, each entry within 4.5 of its standard errors.

    The first would fail with the signs that LAPACK gives to the first column.
    """
    d, r, draws = 5, 2, 1000
    matrices = np.array([public_test_matrix(d, r, Streams(seed)) for seed in range(draws)])
    np.testing.assert_allclose(
        np.einsum("ndr,nds->nrs", matrices, matrices), np.tile(np.eye(r), (draws, 1, 1)), atol=1e-12
    )
    projections = np.einsum("ndr,ner->nde", matrices, matrices)
    for values, mean in ((matrices, np.zeros((d, r))), (projections, r / d * np.eye(d))):
        assert_within(values.mean(axis=0) - mean, values.std(axis=0, ddof=1) / np.sqrt(draws))


def test_the_norm_of_the_noise_is_predicted() -> None:
    """``s (sqrt d + sqrt r)`` bounds the mean norm (Gordon), and is met up to a few percent in large matrices."""
    d, r, o = 150, 12, 1
    rng = np.random.default_rng(10)
    devices = [Rows(rng.standard_normal((size, d)), rng.standard_normal((size, o))) for size in (6, 3)]
    variances = np.array([0.5, 2.0])
    norms = []
    for seed in range(20):
        noisy, exact = (
            sketch_all(
                devices, r, 3, noise_variance=on * variances, label_noise_variance=0 * variances, streams=Streams(seed)
            )
            for on in (1.0, 0.0)
        )
        norms.append(np.linalg.norm((noisy.products - exact.products).sum(axis=0), 2))
    assert exact.noise_norm == 0.0
    assert noisy.noise_norm == pytest.approx(np.sqrt(4 * 0.5 + 2.0) * (np.sqrt(d) + np.sqrt(r)))
    error = np.std(norms, ddof=1) / np.sqrt(len(norms))
    assert 0.93 * noisy.noise_norm < np.mean(norms) < noisy.noise_norm + SIGMAS * error


unit = st.floats(-1, 1, width=32)


@given(
    X=arrays(np.float64, (5, D), elements=unit),
    Y=arrays(np.float64, (5, OUTPUTS), elements=unit),
    bound=st.floats(0.1, 10),
)
def test_one_sample_changes_a_sketch_by_no_more_than_its_squared_norm(
    X: FloatArray, Y: FloatArray, bound: float
) -> None:
    """The features part by ``B^2`` in Frobenius norm, the labels part by ``B B_Y``, the energy by ``B^2``."""
    rows = Rows(X, Y).clipped(bound)
    assert rows.weights is not None
    without = Rows(X[1:], Y[1:], rows.weights[1:])
    with_it, left = (sketch_rows(some, OMEGA) for some in (rows, without))
    largest_label = float(np.linalg.norm(Y, axis=1).max())
    slack = 1e-12 * max(1.0, bound**2)
    assert np.linalg.norm(with_it[0] - left[0]) <= bound**2 + slack
    assert np.linalg.norm(with_it[1] - left[1]) <= bound * largest_label + slack
    assert abs(with_it[2] - left[2]).item() <= bound**2 + slack


def test_the_bound_on_one_sample_is_attained() -> None:
    """By a sample along a column of the test matrix: the guarantee has no slack to claim back."""
    x = 3.0 * OMEGA[:, :1].T
    products, _, energy = sketch_rows(Rows(x, np.ones((1, OUTPUTS))), OMEGA)
    assert np.linalg.norm(products) == pytest.approx(9.0)
    assert energy == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"count": 0}, "sketch_rows = 0"),
        ({"noise_variance": -0.1}, "noise_variance = -0.1"),
        ({"label_noise_variance": np.nan}, "label_noise_variance = nan"),
    ],
)
def test_bad_numbers_are_refused(bad: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        sketch_one(
            random_rows(3, D, OUTPUTS, seed=0),
            R,
            **{"count": 2, "public": PUBLIC, "rng": np.random.default_rng(0), **bad},  # type: ignore[arg-type]
        )


def test_more_directions_than_columns_are_refused() -> None:
    with pytest.raises(InputError, match=r"rank = 5 exceeds the 4 column\(s\)"):
        public_test_matrix(4, 5, Streams(0))
