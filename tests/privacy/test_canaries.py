"""Canaries reach their bounds, and their designs keep them apart."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.privacy._canaries import make_canaries


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(("count", "dimension"), [(1, 1), (5, 9), (9, 9), (20, 9)])
def test_norms_are_the_bounds(count: int, dimension: int, outputs: int) -> None:
    features, labels = make_canaries(count, dimension, outputs, 2.0, 0.5, np.random.default_rng(0))
    assert features.shape == (count, dimension)
    assert labels.shape == (count, outputs)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 2.0, rtol=1e-12)
    assert set(np.linalg.norm(labels, axis=1)) == {0.5}
    assert np.all(np.count_nonzero(labels, axis=1) == 1)


def test_gradients_at_zero_are_orthogonal_up_to_dimension_times_outputs() -> None:
    features, labels = make_canaries(24, 8, 3, 1.0, 1.0, np.random.default_rng(1))
    gradients = np.einsum("md,mo->mdo", features, labels).reshape(24, -1)
    np.testing.assert_allclose(gradients @ gradients.T, np.eye(24), atol=1e-12)


def test_labels_and_signs_vary() -> None:
    rng = np.random.default_rng(2)
    assert len(np.unique(make_canaries(100, 100, 4, 1.0, 1.0, rng)[1], axis=0)) == 4
    assert set(make_canaries(100, 100, 1, 1.0, 3.0, rng)[1][:, 0]) == {-3.0, 3.0}


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"^count = 0"):
        make_canaries(0, 3, 1, 1.0, 1.0, rng)
    with pytest.raises(InputError, match=r"^norm_bound = 0"):
        make_canaries(3, 3, 1, 0.0, 1.0, rng)
    with pytest.raises(InputError, match=r"^label_bound = -1"):
        make_canaries(3, 3, 1, 1.0, -1.0, rng)
