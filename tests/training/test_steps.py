from __future__ import annotations

import threading

import numpy as np
import pytest

from codedfl.training import Start, Steps, accumulate_gradients
from tests.gradients import gradient
from tests.reference.algorithm1 import local_train

RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((9, 4)), RNG.standard_normal((9, 2)), RNG.standard_normal((4, 2))


def masks(*batches: list[int]) -> list[np.ndarray]:
    return [np.isin(np.arange(9), rows).astype(float) for rows in batches]


@pytest.mark.parametrize("batches", [[[0, 3, 8]], [[1, 2], [5], [0, 1, 2, 3]], [[], [4]]])
def test_agrees_with_local_train_of_the_paper(batches: list[list[int]]) -> None:
    expected = local_train(X, Y, W, masks(*batches), 3, 0.1)
    rows = [np.array(batch, dtype=np.int64) for batch in batches]
    actual = gradient(X, Y, W, rows, scale=9 / 3, step_size=0.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_all_rows_without_a_copy_equal_all_rows_with_one() -> None:
    everything = np.arange(9)
    a = gradient(X, Y, W, [None, None], scale=1.0, step_size=0.1)
    b = gradient(X, Y, W, [everything, everything], scale=1.0, step_size=0.1)
    np.testing.assert_allclose(a, b, rtol=1e-13)


def test_the_make_up_term_is_minus_sigma_squared_times_the_model_of_the_step() -> None:
    plain = gradient(X, Y, W, [None], scale=1.0, step_size=0.1)
    made_up = gradient(X, Y, W, [None], scale=1.0, step_size=0.1, make_up=0.7)
    np.testing.assert_allclose(made_up, plain - 0.7 * W, rtol=1e-12)
    moved = W - 0.1 * made_up
    both = gradient(X, Y, W, [None, None], scale=1.0, step_size=0.1, make_up=0.7)
    np.testing.assert_allclose(both, made_up + X.T @ (X @ moved - Y) - 0.7 * moved, rtol=1e-12)


def test_the_model_given_is_left_as_it_is_and_precision_is_kept() -> None:
    before = W.copy()
    result = gradient(
        X.astype(np.float32), Y.astype(np.float32), W.astype(np.float32), [None] * 3, scale=1.0, step_size=0.1
    )
    assert np.array_equal(W, before)
    assert result.dtype == np.float32


def test_threads_do_not_share_the_gather_buffer() -> None:
    rows = np.array([1, 4, 7])
    expected = gradient(X, Y, W, [rows] * 5, scale=1.0, step_size=0.01)
    wrong: list[int] = []

    def work(worker: int) -> None:
        for _ in range(200):
            result = gradient(X, Y, W, [rows] * 5, scale=1.0, step_size=0.01)
            if not np.array_equal(result, expected):
                wrong.append(worker)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_models_side_by_side_train_as_they_would_alone() -> None:
    models = [W, 2 * W, W - 1]
    steps, noises, rows = (0.1, 0.05, 0.2), (0.0, 0.3, 0.7), [np.array([0, 3, 8]), np.array([1]), None]
    alone = [
        gradient(X, Y, model, rows, scale=1.5, step_size=step, make_up=noise)
        for model, step, noise in zip(models, steps, noises, strict=True)
    ]
    starts = [Start(*each) for each in zip(models, steps, noises, strict=True)]
    [together] = accumulate_gradients([Steps(X, Y, rows, 1.5, starts)])
    np.testing.assert_allclose(np.hstack(together), np.hstack(alone), rtol=1e-12)


def test_a_batch_of_nothing_moves_by_the_make_up_term_alone() -> None:
    nothing = np.array([], dtype=np.int64)
    total = gradient(X, Y, W, [nothing, nothing], scale=1.0, step_size=0.1, make_up=0.5)
    np.testing.assert_allclose(total, -0.5 * W - 0.5 * (W + 0.05 * W), rtol=1e-12)
