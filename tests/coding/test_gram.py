from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from codedfl.coding import Gram, Rows, compute_gram
from codedfl.coding import _gram as gram_module
from codedfl.coding._gram import least_norm_solution
from codedfl.parallel import Workers
from codedfl.typing import FloatArray
from tests.coding.law import covariance, random_rows

EPS = np.finfo(np.float64).eps

SMALLEST = 1e-12


def cut(rows: Rows, at: list[int]) -> list[Rows]:
    """Cut rows into consecutive parts."""
    return [
        Rows(rows.features[a:b], rows.labels[a:b], None if rows.weights is None else rows.weights[a:b])
        for a, b in pairwise([0, *at, len(rows)])
    ]


def rounding(rows: Rows, eps: float) -> FloatArray:
    """Bound the rounding of ``Z^T Z``: gamma_n |Z|^T |Z|, with two roundings more a factor for weights."""
    Z = np.abs(rows.joined().astype(np.float64))
    bound: FloatArray = 1.1 * (len(rows) + 6) * eps * (Z.T @ Z)
    return bound


@pytest.mark.parametrize("weighted", [False, True])
def test_gram_is_the_sum_over_samples(weighted: bool) -> None:
    rows = random_rows(40, 5, 2, seed=1, weighted=weighted)
    gram = compute_gram(cut(rows, [3, 3, 17]))  # a device may hold nothing
    expected = covariance([rows], 0.0)
    assert (np.abs(gram.matrix - expected) <= rounding(rows, EPS)).all()
    assert gram.features.shape == (5, 5)
    assert gram.cross.shape == (5, 2)
    assert gram.labels.shape == (2, 2)
    assert (np.block([[gram.features, gram.cross], [gram.cross.T, gram.labels]]) == gram.matrix).all()
    assert (gram.dimension, gram.samples) == (5, 40)


def test_parts_of_gram_are_the_products_they_are_named_after() -> None:
    rows = random_rows(40, 5, 2, seed=2)
    X, Y = rows.features, rows.labels
    gram = compute_gram([rows])
    bound = rounding(rows, EPS)
    assert (np.abs(gram.features - X.T @ X) <= 2 * bound[:5, :5]).all()
    assert (np.abs(gram.cross - X.T @ Y) <= 2 * bound[:5, 5:]).all()
    assert (np.abs(gram.labels - Y.T @ Y) <= 2 * bound[5:, 5:]).all()


@given(
    samples=st.integers(1, 60),
    size=st.integers(1, 70),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    weighted=st.booleans(),
)
def test_neither_blocks_nor_parts_matter(samples: int, size: int, cuts: list[int], weighted: bool) -> None:
    rows = random_rows(samples, 3, 2, seed=3, weighted=weighted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram_module, "BLOCK_ROWS", size)
        gram = compute_gram(cut(rows, sorted(min(at, samples) for at in cuts)))
    assert (np.abs(gram.matrix - covariance([rows], 0.0)) <= rounding(rows, EPS)).all()
    assert gram.samples == samples


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_in_float32_are_added_up_in_float64(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_module, "BLOCK_ROWS", 16)
    wide = random_rows(4000, 4, 1, seed=4, weighted=weighted)
    narrow = Rows(wide.features.astype(np.float32), wide.labels.astype(np.float32), wide.weights)
    gram = compute_gram([narrow])
    assert gram.matrix.dtype == np.float64
    # the error is that of products of 16 rows, not of 4,000
    Z = np.abs(narrow.joined().astype(np.float64))
    bound = 1.1 * (16 + 6) * np.finfo(np.float32).eps * (Z.T @ Z)
    assert (np.abs(gram.matrix - covariance([narrow], 0.0)) <= bound).all()


def test_the_number_of_workers_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_module, "BLOCK_ROWS", 64)
    parts = cut(random_rows(3000, 30, 4, seed=5, weighted=True), [1000, 1003, 2500])
    alone = compute_gram(parts).matrix
    for count in (1, 2, 3, 5):
        with Workers(count) as workers:
            assert (compute_gram(iter(parts), workers).matrix == alone).all()


def test_joining_and_cutting_rows() -> None:
    rows = random_rows(10, 3, 2, seed=6, weighted=True)
    assert rows.weights is not None
    before = rows.features.copy()
    np.testing.assert_array_equal(rows.joined(), rows.weights[:, None] * np.hstack([rows.features, rows.labels]))
    assert (rows.features == before).all()
    blocks = list(rows.blocks(4))
    assert [len(block) for block in blocks] == [4, 4, 2]
    assert all(np.shares_memory(block.features, rows.features) for block in blocks)
    assert (np.vstack([block.joined() for block in blocks]) == rows.joined()).all()
    assert list(Rows(np.zeros((0, 3)), np.zeros((0, 1))).blocks(4)) == []


def test_chosen_rows_count_as_if_the_others_were_not_there() -> None:
    rows = random_rows(10, 3, 2, seed=6)
    chosen, weights = np.array([7, 2, 2, 9, 0]), np.array([1.0, 0.5, 2.0, 3.0, 0.1])
    some = Rows(rows.features, rows.labels, weights, chosen)
    alone = Rows(rows.features[chosen], rows.labels[chosen], weights)
    assert len(some) == 5
    assert (some.joined() == alone.joined()).all()
    assert (np.vstack([block.joined() for block in some.blocks(2)]) == alone.joined()).all()
    assert (some.norms() == alone.norms()).all()
    assert (some.clipped(0.5).joined() == alone.clipped(0.5).joined()).all()
    assert (compute_gram([some]).matrix == compute_gram([alone]).matrix).all()


@pytest.mark.parametrize("d", [1, 2, 3, 4, 10, 60])
@pytest.mark.parametrize("samples", [1, 3, 200])
def test_smoothness_is_the_largest_eigenvalue(d: int, samples: int) -> None:
    rows = random_rows(samples, d, 1, seed=7)
    assert compute_gram([rows]).smoothness == pytest.approx(
        float(np.linalg.eigvalsh(rows.features.T @ rows.features)[-1]), rel=1e-8
    )


@pytest.mark.parametrize(
    "H",
    [
        np.eye(6),
        np.diag([1.0, 2.0, 3.0, 3.0, 3.0, 3.0]),
        np.eye(6) + 10 * np.outer([1, -1, 0, 0, 0, 0], [1, -1, 0, 0, 0, 0]),  # the top is orthogonal to ones
    ],
    ids=["identity", "repeated", "orthogonal to ones"],
)
def test_smoothness_where_a_start_at_ones_finds_little(H: FloatArray) -> None:
    matrix = np.zeros((7, 7))
    matrix[:6, :6] = H
    assert Gram(matrix, 6, 6).smoothness == pytest.approx(float(np.linalg.eigvalsh(H)[-1]), rel=1e-8)


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4])
def test_smoothness_where_the_largest_eigenvalues_are_close(gap: float) -> None:
    d = 40
    H = np.diag(1.0 - gap * np.arange(d) / d)
    matrix = np.zeros((d + 1, d + 1))
    matrix[:d, :d] = H
    assert Gram(matrix, d, d).smoothness == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("X", [np.zeros((4, 3)), np.array([[1.0, -1.0, 0.0], [0.0, 2.0, -2.0]])], ids=["zero", "sum 0"])
def test_smoothness_of_rows_that_sum_to_zero(X: FloatArray) -> None:
    gram = compute_gram([Rows(X, np.zeros((len(X), 1)))])
    assert gram.smoothness == pytest.approx(float(np.linalg.eigvalsh(X.T @ X)[-1]), rel=1e-8)


def assert_is_least_norm_solution(gram: Gram, X: FloatArray, Y: FloatArray) -> None:
    """Compare with lstsq within the error that the condition of X^T X allows."""
    expected, _, rank, values = np.linalg.lstsq(X, Y)
    condition = (values[0] / values[rank - 1]) ** 2
    scale = np.linalg.norm(expected)
    assert np.linalg.norm(gram.optimum - expected) <= 10 * len(X.T) * EPS * condition * scale
    fitted_error = np.linalg.norm(X @ (gram.optimum - expected))
    assert fitted_error <= 10 * len(X.T) * EPS * condition * scale * values[0]


@pytest.mark.parametrize(("samples", "d"), [(50, 1), (50, 5), (200, 40)])
def test_optimum_of_full_rank_data(samples: int, d: int) -> None:
    rows = random_rows(samples, d, 3, seed=8)
    assert_is_least_norm_solution(compute_gram([rows]), rows.features, rows.labels)


@pytest.mark.parametrize("kind", ["few samples", "copied column", "zero column"])
def test_optimum_of_singular_data_has_least_norm(kind: str) -> None:
    rows = random_rows(5 if kind == "few samples" else 60, 12, 2, seed=9)
    if kind == "copied column":
        rows.features[:, 3] = rows.features[:, 7]
    elif kind == "zero column":
        rows.features[:, 3] = 0.0
    assert np.linalg.matrix_rank(rows.features) < 12
    assert_is_least_norm_solution(compute_gram([rows]), rows.features, rows.labels)


def test_optimum_of_weighted_data_is_weighted_least_squares() -> None:
    rows = random_rows(50, 5, 2, seed=10, weighted=True)
    assert rows.weights is not None
    X, Y = rows.weights[:, None] * rows.features, rows.weights[:, None] * rows.labels
    assert_is_least_norm_solution(compute_gram([rows]), X, Y)


def test_optimum_of_columns_in_very_different_units() -> None:
    rng = np.random.default_rng(11)
    X = rng.standard_normal((200, 3)) * np.array([1e7, 1.0, 1.0])  # say, a price next to two rates
    Y = X @ np.array([[1e-7], [1.0], [1.0]])
    gram = compute_gram([Rows(X, Y)])
    assert gram.gap(np.zeros((3, 1))) == pytest.approx(0.5 * np.sum(Y**2), rel=1e-6)


def test_optimum_of_singular_float32_data_has_least_norm() -> None:
    wide = random_rows(50, 100, 2, seed=12)
    narrow = Rows(wide.features.astype(np.float32), wide.labels.astype(np.float32))
    expected = np.linalg.lstsq(narrow.features.astype(np.float64), narrow.labels.astype(np.float64))[0]
    assert np.linalg.norm(compute_gram([narrow]).optimum) == pytest.approx(np.linalg.norm(expected), rel=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loss_and_gap_are_their_formulas(dtype: type[np.floating]) -> None:
    rows = random_rows(50, 5, 2, seed=13)
    X, Y = rows.features, rows.labels
    gram = compute_gram([rows])
    best = np.linalg.lstsq(X, Y)[0]
    rng = np.random.default_rng(14)
    for size in (0.0, 0.1, 10.0):
        W = (size * rng.standard_normal((5, 2))).astype(dtype)
        loss = 0.5 * np.linalg.norm(X @ W.astype(np.float64) - Y) ** 2
        floor = 0.5 * np.linalg.norm(X @ best - Y) ** 2
        assert gram.loss(W) == pytest.approx(loss, rel=1e-11)
        assert gram.gap(W) == pytest.approx(loss - floor, rel=1e-10)


def test_gap_keeps_its_digits_next_to_the_optimum() -> None:
    rows = random_rows(50, 5, 2, seed=15)
    gram = compute_gram([rows])
    assert gram.gap(gram.optimum) == 0.0
    step = 1e-8 * np.random.default_rng(16).standard_normal((5, 2))
    expected = 0.5 * np.linalg.norm(rows.features @ step) ** 2
    assert expected < 1e-14 * gram.loss(gram.optimum)  # the difference of two losses would be rounding
    # adding the step to the optimum rounds it by eps |W*|, which is what remains
    rounded = 2 * EPS * np.abs(gram.optimum).max() / np.abs(step).min()
    assert gram.gap(gram.optimum + step) == pytest.approx(expected, rel=10 * rounded)


def wide(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((12, 70))


def repeated(rng: np.random.Generator) -> FloatArray:
    X = rng.standard_normal((90, 8))
    return np.hstack([X, X[:, :3], X @ rng.standard_normal((8, 4))])


def scaled(rng: np.random.Generator) -> FloatArray:
    X = rng.standard_normal((60, 6)) * 10.0 ** np.arange(-2, 4)
    return np.hstack([X, np.zeros((60, 2)), X[:, 2:3]])


def tall(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((50, 9))


@pytest.mark.parametrize("make", [wide, repeated, scaled, tall])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_pseudo_inverse(make: Callable[[np.random.Generator], FloatArray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = make(rng)
    H, b = X.T @ X, X.T @ rng.standard_normal((len(X), 3))
    expected = scipy.linalg.pinvh(H, rtol=SMALLEST) @ b
    # Both lose at most the condition number of what is kept, times a few ulps.
    values = scipy.linalg.eigvalsh(H)
    condition = values[-1] / values[values > SMALLEST * values[-1]].min()
    found = least_norm_solution(H, b, SMALLEST)
    assert np.linalg.norm(found - expected) <= 100 * condition * np.finfo(float).eps * np.linalg.norm(expected)


def test_it_solves_and_is_the_shortest() -> None:
    rng = np.random.default_rng(5)
    X = wide(rng)
    Y = rng.standard_normal((len(X), 2))
    found = least_norm_solution(X.T @ X, X.T @ Y, SMALLEST)
    assert np.allclose(X @ found, Y, rtol=0, atol=1e-9)
    assert np.allclose(found, np.linalg.pinv(X) @ Y, rtol=0, atol=1e-9)


def test_nothing_to_learn_from_gives_zeros() -> None:
    assert (least_norm_solution(np.zeros((4, 4)), np.zeros((4, 2)), SMALLEST) == 0).all()
