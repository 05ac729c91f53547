from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import Dataset, Federation, Partition, build_federation, fit_feature_map, one_hot, partition
from codedfl.errors import InputError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def toy_dataset(rows: int = 30, columns: int = 4) -> Dataset:
    X = rng().normal(size=(rows, columns)).astype(np.float32)
    Y = one_hot(np.arange(rows) % 3, 3)
    names = tuple(f"x{column}" for column in range(columns))
    return Dataset("toy", "classification", X, Y, X[:5], Y[:5], ("a", "b", "c"), names)


def make_federation(samples: list[int]) -> Federation:
    """Features that say which row and which device they are."""
    rows = sum(samples)
    X = np.column_stack([np.arange(rows), np.repeat(np.arange(len(samples)), samples)]).astype(np.float32)
    Y = one_hot(np.arange(rows) % 2, 2)
    names = tuple(f"d{device}" for device in range(len(samples)))
    offsets = np.concatenate([[0], np.cumsum(samples)])
    return Federation(X, Y, offsets, X[:1], Y[:1], "classification", ("even", "odd"), names)


def test_rows_are_mapped_into_the_order_of_devices() -> None:
    data = toy_dataset()
    fitted = fit_feature_map(data.features, dimension=8, intercept=True, rng=rng())
    parts = partition(data, "dirichlet", 4, 1.0, rng())
    federation = build_federation(data, fitted, parts)
    assert (federation.devices, federation.dimension, federation.outputs, federation.total_samples) == (4, 9, 3, 30)
    assert federation.samples.tolist() == [len(part) for part in parts.parts]
    for i, part in enumerate(parts.parts):
        features, labels = federation.device(i)
        np.testing.assert_allclose(features, fitted.transform(data.features)[part], rtol=1e-5)
        np.testing.assert_array_equal(labels, data.targets[part])
        assert np.shares_memory(features, federation.features)
        assert features.flags.c_contiguous
    np.testing.assert_array_equal(federation.test_labels, data.test_targets)
    assert federation.features.dtype == federation.labels.dtype == np.float32
    assert build_federation(data, fitted, parts, np.float64).labels.dtype == np.float64


def test_building_makes_no_second_copy_of_the_features() -> None:
    data = toy_dataset(rows=40_000, columns=20)
    fitted = fit_feature_map(data.features, dimension=500, rng=rng())
    parts = partition(data, "iid", 7, 1.0, rng())
    tracemalloc.start()
    federation = build_federation(data, fitted, parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.4 * federation.features.nbytes


def test_a_partition_of_other_data_is_refused() -> None:
    data = toy_dataset()
    fitted = fit_feature_map(data.features, dimension=8, rng=rng())
    with pytest.raises(InputError, match="the partition has 2 rows but the dataset 'toy' has 30"):
        build_federation(data, fitted, Partition((np.array([0]), np.array([1])), ("a", "b")))


def test_devices_are_described_by_their_classes() -> None:
    first, second = make_federation([3, 1]).describe()
    assert (first.name, first.samples, first.classes) == ("d0", 3, {"even": 2, "odd": 1})
    assert (second.name, second.samples, second.classes) == ("d1", 1, {"odd": 1})
    assert replace(make_federation([3, 1]), task="regression").describe()[0].classes == {}


@given(
    samples=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_validation_rows_are_held_out_of_every_device(samples: list[int], fraction: float, seed: int) -> None:
    whole = make_federation(samples)
    if max(samples) == 1:
        with pytest.raises(InputError, match="use fewer devices" if len(samples) > 1 else "give more rows"):
            whole.split_validation(fraction, rng(seed))
        return
    split = whole.split_validation(fraction, rng(seed))
    rows = np.concatenate([split.features[:, 0], split.test_features[:, 0]])
    assert sorted(rows) == list(range(sum(samples)))
    assert (split.samples >= 1).all()
    assert len(split.test_features) >= 1
    for i, count in enumerate(samples):
        features, labels = split.device(i)
        assert (features[:, 1] == i).all()
        np.testing.assert_array_equal(labels.argmax(axis=1), features[:, 0] % 2)
        held = count - len(features)
        assert held in (min(round(fraction * count), count - 1), 1)
    np.testing.assert_array_equal(split.test_labels.argmax(axis=1), split.test_features[:, 0] % 2)


def test_validation_rows_are_chosen_at_random_by_the_stream_given() -> None:
    whole = make_federation([20, 30])
    one, two, three = (whole.split_validation(0.2, rng(seed)).test_features for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert one.shape == (10, 2)
    assert (one != three).any()
    with pytest.raises(InputError, match=r"fraction = 1\.0 must be more than 0 and less than 1"):
        whole.split_validation(1.0, rng())


FEATURES = make_federation([2, 2]).features


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 4])}, r"offsets has shape \(2,\) for 2 devices"),
        ({"offsets": np.array([1, 2, 4])}, "offsets runs from 1 to 4: it must run from 0 to 4"),
        ({"offsets": np.array([0, 2, 5])}, "offsets runs from 0 to 5"),
        ({"offsets": np.array([0, 4, 4])}, "the device 'd1' has no rows"),
        ({"features": FEATURES * np.float32(np.nan)}, "features has 8 value"),
        ({"features": np.asfortranarray(FEATURES)}, "features must be C-contiguous"),
        ({"labels": FEATURES[:3]}, "features has 4 rows but labels has 3"),
        ({"test_features": np.ones((1, 3), np.float32)}, r"features and labels have \(2, 2\) columns"),
        ({"test_labels": np.ones((2, 2), np.float32)}, "test_features has 1 rows but test_labels has 2"),
        ({"target_names": ("even",)}, "target_names 2 names"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(make_federation([2, 2]), **change)


@pytest.mark.parametrize("i", [-1, 2])
def test_a_device_that_does_not_exist_is_refused(i: int) -> None:
    with pytest.raises(InputError, match=f"device {i} does not exist: use an index from 0 to 1"):
        make_federation([2, 2]).device(i)
