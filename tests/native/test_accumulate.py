from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from codedfl.training.engine._kernel import MOST_OUTPUTS
from codedfl.typing import FloatArray, IntArray
from tests.gradients import gradient, gradient_by_numpy, kernel_suits
from tests.native.needs import needs_kernel

pytestmark = needs_kernel

L = 230
Floats = type[np.floating[Any]]


def problem(
    d: int, o: int, sizes: list[int], dtype: Floats, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray, list[IntArray]]:
    rng = np.random.default_rng([seed, d, o, *sizes])
    X, Y, W = (rng.standard_normal(shape).astype(dtype) for shape in ((L, d), (L, o), (d, o)))
    return X, Y, W, [np.sort(rng.choice(L, size, replace=False)) for size in sizes]


def error_bound(X: FloatArray, Y: FloatArray, W: FloatArray, batches: list[IntArray], **how: float) -> FloatArray:
    """First-order bound of |computed - exact|: ``(d + n + 8 tau) eps`` times the total of absolute values, every step.

    A product of length n is off by at most n eps times the product of absolute values, in whatever order it is summed; the
    bound takes the steps as gradients of absolute values and lets every error pass through the steps that follow.
    """
    eps = float(np.finfo(W.dtype).eps)
    A, B, local = (np.abs(a).astype(np.float64) for a in (X, Y, W))
    start, total = local, np.zeros_like(local)
    for rows in batches:
        gradient = how["scale"] * A[rows].T @ (A[rows] @ local + B[rows]) + how["make_up"] * local
        total = total + gradient
        local = start + how["step_size"] * total
    longest = max((rows.size for rows in batches), default=0)
    bound: FloatArray = 2 * (X.shape[1] + longest + 8 * len(batches)) * eps * total
    return bound


def check(d: int, o: int, sizes: list[int], dtype: Floats, make_up: float = 0.0) -> None:
    X, Y, W, batches = problem(d, o, sizes, dtype)
    how = {"scale": L / 64, "step_size": 1e-2 / (L * d), "make_up": make_up}
    assert kernel_suits(X, Y, W)
    compiled = gradient(X, Y, W, batches, **how)
    by_numpy = gradient_by_numpy(X, Y, W, batches, **how)
    assert compiled.dtype == dtype
    assert compiled.shape == W.shape
    assert compiled.flags.c_contiguous
    excess = np.abs(compiled.astype(np.float64) - by_numpy) - error_bound(X, Y, W, batches, **how)
    assert excess.max() <= 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("o", [1, 2, 3, 5, 10, 11, 26])
@pytest.mark.parametrize("d", [1, 7, 16, 17, 999, 2000, 2001, 4096])
def test_agrees_with_numpy_for_all_shapes(d: int, o: int, dtype: Floats) -> None:
    check(d, o, [64, 63], dtype, make_up=0.3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("d", [5, 33, 2000])
def test_agrees_with_numpy_for_all_sizes_of_a_batch(d: int, size: int, dtype: Floats) -> None:
    check(d, 10, [size], dtype)
    check(d, 4, [size, 3, size], dtype, make_up=0.7)


@pytest.mark.parametrize("tau", [1, 2, 3, 4, 5])
def test_agrees_with_numpy_for_any_number_of_steps(tau: int) -> None:
    check(130, 10, [60 + u for u in range(tau)], np.float32)
    check(130, 10, [0, 7, 0, 64, 0][:tau], np.float64, make_up=0.5)


def test_the_bound_is_not_so_wide_that_a_wrong_row_would_pass() -> None:
    X, Y, W, batches = problem(2000, 10, [64], np.float32)
    how = {"scale": L / 64, "step_size": 1e-6, "make_up": 0.0}
    wrong = [batches[0].copy()]
    wrong[0][0] = (wrong[0][0] + 1) % L
    difference = np.abs(gradient_by_numpy(X, Y, W, batches, **how) - gradient_by_numpy(X, Y, W, wrong, **how))
    assert (difference > error_bound(X, Y, W, batches, **how)).mean() > 0.5


def test_what_lies_beside_the_rows_and_in_old_workspaces_leaves_no_trace() -> None:
    """The columns that do not fill a cache line end where the next row starts, here with a value that is not a number."""
    X, Y, W, batches = problem(37, 3, [9], np.float64)
    clean = gradient(X, Y, W, batches * 2, scale=1.0, step_size=1e-3)
    spoilt = np.full_like(X, np.nan)
    spoilt[batches[0]] = X[batches[0]]
    gradient(np.full((3, 500), np.nan), np.zeros((3, 9)), np.full((500, 9), np.nan), [np.arange(3)],
                         scale=1.0, step_size=1.0)  # fmt: skip
    assert np.array_equal(gradient(spoilt, Y, W, batches * 2, scale=1.0, step_size=1e-3), clean)


def test_a_row_out_of_range_is_refused() -> None:
    X, Y, W, _ = problem(20, 3, [5], np.float32)
    for row in (L, -1):
        with pytest.raises(IndexError, match=f"there are {L} rows"):
            gradient(X, Y, W, [np.array([0, row])], scale=1.0, step_size=0.1)


def test_batches_may_have_any_kind_of_index() -> None:
    X, Y, W, batches = problem(50, 10, [20, 30], np.float32)
    how = {"scale": 1.0, "step_size": 1e-4}
    expected = gradient(X, Y, W, batches, **how)
    narrow = [rows.astype(np.int32) for rows in batches]
    strided = [np.repeat(rows, 2)[::2] for rows in batches]
    assert np.array_equal(gradient(X, Y, W, narrow, **how), expected)  # type: ignore[arg-type]
    assert np.array_equal(gradient(X, Y, W, strided, **how), expected)


def test_data_and_models_may_be_read_only() -> None:
    X, Y, W, batches = problem(50, 10, [20, 30], np.float32)
    expected = gradient(X, Y, W, batches, scale=1.0, step_size=1e-4)
    for array in (X, Y, W, *batches):
        array.flags.writeable = False
    assert np.array_equal(gradient(X, Y, W, batches, scale=1.0, step_size=1e-4), expected)


def test_unusual_arrays_are_left_to_numpy() -> None:
    X, Y, W, _ = problem(20, 3, [5], np.float64)
    assert kernel_suits(X, Y, W)
    for args in (
        (np.asfortranarray(X), Y, W),
        (X, Y, np.asfortranarray(W)),
        (X[:, ::2], Y, W[::2]),
        (X.astype(np.float16), Y.astype(np.float16), W.astype(np.float16)),
        (X.astype(">f8"), Y.astype(">f8"), W.astype(">f8")),
        (X.astype(np.float32), Y, W),
        (X, Y, np.hstack([W, W])),
        (X, np.zeros((L, MOST_OUTPUTS + 1)), np.zeros((20, MOST_OUTPUTS + 1))),
    ):
        assert not kernel_suits(*args)


def test_the_result_is_the_same_bit_for_bit_in_any_number_of_threads() -> None:
    X, Y, W, batches = problem(2001, 10, [64, 70, 50], np.float32)
    how = {"scale": 3.0, "step_size": 1e-7, "make_up": 0.1}
    expected = gradient(X, Y, W, batches, **how)
    same: list[bool] = []

    def work(d: int) -> None:
        for _ in range(20):  # another shape in between, so that workspaces are reused
            gradient(X[:, :d].copy(), Y, W[:d].copy(), batches, **how)
            same.append(np.array_equal(gradient(X, Y, W, batches, **how), expected))

    threads = [threading.Thread(target=work, args=(d,)) for d in (3, 100, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(same) == 80
    assert all(same)
