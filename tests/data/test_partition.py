from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data import (
    Dataset,
    Partition,
    one_hot,
    partition,
    partition_by_column,
    partition_dirichlet,
    partition_iid,
    partition_shards,
)
from codedfl.data._partition import Parts, remarks_on_devices, split_rows
from codedfl.errors import InputError

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
DEVICES = st.integers(1, 12)
SEEDS = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_covers(parts: Parts, rows: int, devices: int) -> None:
    assert len(parts) == devices
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))


@given(labels=LABELS, devices=DEVICES, seed=SEEDS)
def test_shards_and_iid_cover_the_rows_evenly(labels: list[int], devices: int, seed: int) -> None:
    rows = len(labels)
    if devices > rows:
        fix = f"{rows} training rows: use fewer devices" if rows > 1 else "one training row: give more rows"
        with pytest.raises(InputError, match=f"devices = {devices} is more than the {fix}"):
            partition_iid(rows, devices, rng(seed))
        with pytest.raises(InputError, match=fix):
            partition_shards(np.array(labels), devices, rng(seed))
        return
    for parts in (partition_iid(rows, devices, rng(seed)), partition_shards(np.array(labels), devices, rng(seed))):
        assert_covers(parts, rows, devices)
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


@given(labels=LABELS, devices=DEVICES, alpha=st.floats(1e-300, 1e6), seed=SEEDS)
def test_dirichlet_covers_the_rows_or_is_refused(labels: list[int], devices: int, alpha: float, seed: int) -> None:
    try:
        parts = partition_dirichlet(np.array(labels), devices, alpha, rng(seed))
    except InputError:
        return
    assert_covers(parts, len(labels), devices)


@given(ids=st.lists(st.text(max_size=3), min_size=1, max_size=30))
def test_a_column_gives_each_device_its_own_rows(ids: list[str]) -> None:
    parts, names = partition_by_column(ids)
    assert_covers(parts, len(ids), len(set(ids)))
    assert all({ids[row] for row in part} == {name} for part, name in zip(parts, names, strict=True))


def test_a_shard_holds_neighbours_in_the_sorted_order() -> None:
    key = rng().permutation(100)
    for part in partition_shards(key, 10, rng()):
        assert np.ptp(key[part]) == 9


def test_shards_are_dealt_out_at_random() -> None:
    key = np.arange(10)
    assert any(partition_shards(key, 10, rng(seed))[0][0] != 0 for seed in range(3))


def test_alpha_sets_how_uneven_classes_are_spread() -> None:
    labels = np.repeat(np.arange(10), 500)

    def spread(alpha: float) -> float:
        parts = partition_dirichlet(labels, 10, alpha, rng())
        return float(np.std([np.bincount(labels[part], minlength=10) / 500 for part in parts]))

    # The share of a device in a class has the variance (1/N)(1 - 1/N) / (N alpha + 1).
    assert spread(1e6) < 0.01
    assert spread(1.0) == pytest.approx(np.sqrt(0.09 / 11), rel=0.25)
    assert spread(0.5) == pytest.approx(np.sqrt(0.09 / 6), rel=0.25)


def test_an_impossible_dirichlet_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"alpha = 0\.001 leaves some of 200 devices .* use a larger alpha or fewer devices"
    ):
        partition_dirichlet(np.repeat([0, 1], 30_000), 200, 0.001, rng())


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e7])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha = "):
        partition_dirichlet(np.zeros(10, dtype=np.int64), 2, alpha, rng())


def toy(**change: Any) -> Dataset:
    X, Y = np.ones((120, 1), dtype=np.float32), one_hot(np.arange(120) % 3, 3)
    data = Dataset("toy", "classification", X, Y, X[:1], Y[:1], ("a", "b", "c"), ("x",))
    return replace(data, **change)


@pytest.mark.parametrize("kind", ["shards", "dirichlet", "iid"])
def test_devices_are_named_by_padded_numbers(kind: Any) -> None:
    assert partition(toy(), kind, 3, 10.0, rng()).names == ("device-01", "device-02", "device-03")
    assert partition(toy(), "iid", 100, 10.0, rng()).names[6] == "device-007"


def test_a_regression_is_cut_along_its_first_target() -> None:
    targets = rng().normal(size=(120, 3)).astype(np.float32)
    parts = partition(toy(task="regression", targets=targets), "shards", 4, 1.0, rng()).parts
    bounds = sorted((targets[part, 0].min(), targets[part, 0].max()) for part in parts)
    assert all(lower[1] <= upper[0] for lower, upper in pairwise(bounds))


def test_a_column_names_its_devices() -> None:
    assert partition(toy(devices=("b", "a") * 60), "column", 7, 1.0, rng()).names == ("a", "b")


@pytest.mark.parametrize(
    ("change", "kind", "devices", "message"),
    [
        ({}, "column", 2, r"name their column in data\.device_column"),
        ({"task": "regression"}, "dirichlet", 2, "needs classes, and 'toy' is a regression"),
        ({}, "random", 2, "the partition 'random' is unknown"),
        ({}, "iid", 0, "devices = 0 must be 1 or more"),
        ({}, "shards", 121, "devices = 121 is more than the 120 training rows"),
    ],
)
def test_a_partition_that_cannot_be_made_is_refused(change: Any, kind: Any, devices: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        partition(toy(**change), kind, devices, 1.0, rng())


@pytest.mark.parametrize(
    ("parts", "names", "message"),
    [
        (([0], [1]), ("a",), "has 2 parts and 1 names"),
        ((), (), "has 0 parts and 0 names"),
        (([0, 1], []), ("a", "b"), "the device 'b' has no rows"),
        (([0, 1], [1]), ("a", "b"), "every row exactly once"),
        (([0], [2]), ("a", "b"), "every row exactly once"),
    ],
)
def test_a_partition_must_cover_the_rows_once(
    parts: tuple[list[int], ...], names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Partition(tuple(np.array(part, dtype=np.int64) for part in parts), names)


@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=60),
    fraction=st.floats(0.001, 0.999),
    stratify=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_split_covers_all_rows_once(labels: list[int], fraction: float, stratify: bool, seed: int) -> None:
    classes = np.array(labels) if stratify else None
    train, test = split_rows(len(labels), fraction, classes, np.random.default_rng(seed))
    assert len(train) >= 1
    assert len(test) == min(max(round(fraction * len(labels)), 1), len(labels) - 1)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert (np.diff(train) > 0).all()


def test_a_stratified_split_keeps_the_mix_of_classes() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    _, test = split_rows(len(labels), 0.2, labels, np.random.default_rng(0))
    assert np.bincount(labels[test]).tolist() == [20, 10, 2]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match=r"data\.test_fraction = .* must be more than 0 and less than 1"):
        split_rows(10, fraction, None, np.random.default_rng(0))


def test_a_single_row_cannot_be_split() -> None:
    with pytest.raises(InputError, match=r"data\.dataset has 1 row.*data\.test_file"):
        split_rows(1, 0.5, None, np.random.default_rng(0))


@given(
    devices=st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=40),
    fraction=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_device_keeps_a_training_row(devices: list[str], fraction: float, seed: int) -> None:
    if len(set(devices)) == len(devices):
        with pytest.raises(InputError, match=r"every device in data\.device_column has a single row"):
            split_rows(len(devices), fraction, None, np.random.default_rng(seed), devices)
        return
    train, test = split_rows(len(devices), fraction, None, np.random.default_rng(seed), devices)
    assert {devices[row] for row in train} == set(devices)
    assert len(test) >= 1
    assert sorted([*train, *test]) == list(range(len(devices)))
    free_train, free_test = split_rows(len(devices), fraction, None, np.random.default_rng(seed))
    if {devices[row] for row in free_train} == set(devices):
        np.testing.assert_array_equal(test, free_test)  # nothing changes where nothing has to
    elif len(test) > 1:
        assert set(test) < set(free_test)


def test_devices_with_few_rows_are_named() -> None:
    many = [f"d{number}" for number in range(20)]
    (remark,) = remarks_on_devices(many * 8, many * 3)
    assert remark.startswith("few training rows: d0 (3), d1 (3), d10 (3), ")
    assert remark.endswith(", ... (20 in all).")
    assert remarks_on_devices(["a"] * 10, ["a"] * 7) == []
    assert remarks_on_devices(["a", "b", "c", "c"], ["a", "b", "c"])[0] == (
        "the only row of a, b is for training: nothing of them is tested."
    )
