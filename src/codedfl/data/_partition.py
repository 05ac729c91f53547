"""Partitions of the rows: over devices, and into training and test rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from codedfl._messages import listing, shown
from codedfl._validation import require_at_least, require_fraction, require_positive
from codedfl.data._dataset import Dataset
from codedfl.errors import InputError
from codedfl.typing import BoolArray, IntArray

PartitionKind = Literal["shards", "dirichlet", "iid", "column"]
Parts = tuple[IntArray, ...]

MAX_ALPHA = 1e6
MAX_DRAWS = 100

FEW_ROWS = 5
"""A device with fewer training rows than this is named."""

MOST_NAMES = 8
"""Devices that a remark names."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the rows 0..m-1 into one set per device.

    Args:
        parts: sorted row numbers of each device.
        names: names of the devices.
    """

    parts: Parts
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.names) or not self.parts:
            raise InputError(
                f"the partition has {len(self.parts)} parts and {len(self.names)} names: give one for each."
            )
        for part, name in zip(self.parts, self.names, strict=True):
            if len(part) == 0:
                raise InputError(f"the device {shown(name)} has no rows: use fewer devices.")
        rows = np.sort(np.concatenate(self.parts))
        if not np.array_equal(rows, np.arange(len(rows))):
            raise InputError("the parts of the partition must hold every row exactly once: some rows repeat or lack.")


def partition(dataset: Dataset, kind: PartitionKind, devices: int, alpha: float, rng: np.random.Generator) -> Partition:
    """Spread the training rows of a dataset over devices.

    Args:
        dataset: the data.
        kind: "shards" (rows sorted by class or first target, one contiguous shard per device), "dirichlet" (random
            proportions in each class), "iid" (at random) or "column" (as ``dataset.devices`` says).
        devices: number of devices; "column" takes it from the data.
        alpha: concentration for "dirichlet": the smaller, the fewer classes per device.
        rng: source of randomness.
    """
    if kind == "column":
        if dataset.devices is None:
            raise InputError(
                "a partition by 'column' needs to know the devices: name their column in data.device_column."
            )
        return Partition(*partition_by_column(dataset.devices))
    if kind == "shards":
        key = dataset.labels if dataset.task == "classification" else dataset.targets[:, 0]
        parts = partition_shards(key, devices, rng)
    elif kind == "dirichlet":
        if dataset.task != "classification":
            raise InputError(
                f"a partition by 'dirichlet' needs classes, and {shown(dataset.name)} is a regression: use 'shards' or 'iid'."
            )
        parts = partition_dirichlet(dataset.labels, devices, alpha, rng)
    elif kind == "iid":
        parts = partition_iid(len(dataset.features), devices, rng)
    else:
        raise InputError(f"the partition {shown(kind)} is unknown: use 'shards', 'dirichlet', 'iid' or 'column'.")
    return Partition(parts, _device_names(devices))


def partition_shards(sort_key: npt.NDArray[Any], devices: int, rng: np.random.Generator) -> Parts:
    """Sort rows by a key, cut them into equal shards, and give each device one shard at random.

    Example:
        >>> parts = partition_shards(np.array([1, 0, 1, 0]), devices=2, rng=np.random.default_rng(0))
        >>> sorted(part.tolist() for part in parts)
        [[0, 2], [1, 3]]
    """
    _require_devices(devices, len(sort_key))
    shards = np.array_split(np.argsort(sort_key, kind="stable"), devices)
    return tuple(np.sort(shards[shard]) for shard in rng.permutation(devices))


def partition_iid(rows: int, devices: int, rng: np.random.Generator) -> Parts:
    """Deal rows out at random, in equal numbers.

    Example:
        >>> [len(part) for part in partition_iid(7, devices=3, rng=np.random.default_rng(0))]
        [3, 2, 2]
    """
    _require_devices(devices, rows)
    return tuple(np.sort(part) for part in np.array_split(rng.permutation(rows), devices))


def partition_dirichlet(labels: IntArray, devices: int, alpha: float, rng: np.random.Generator) -> Parts:
    r"""Divide each class among the devices in proportions :math:`q \sim \mathrm{Dirichlet}(\alpha, \dots, \alpha)`.

    Proportions are redrawn until every device has a row.

    Raises:
        InputError: a device still has no row after ``MAX_DRAWS`` draws.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> parts = partition_dirichlet(labels, devices=4, alpha=1.0, rng=np.random.default_rng(0))
        >>> sum(len(part) for part in parts)
        100
    """
    _require_devices(devices, len(labels))
    require_positive("alpha", alpha)
    if alpha > MAX_ALPHA:
        raise InputError(f"alpha = {alpha} must be at most {MAX_ALPHA:g}: for an even spread use the partition 'iid'.")
    class_rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    sizes = np.array([len(rows) for rows in class_rows])
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(np.full(devices, alpha), size=len(sizes))
        cuts = np.rint(np.cumsum(shares, axis=1) * sizes[:, np.newaxis]).astype(np.int64)
        cuts[:, -1] = sizes
        if np.diff(cuts, axis=1, prepend=0).sum(axis=0).min() > 0:
            break
    else:
        raise InputError(
            f"alpha = {alpha} leaves some of {devices} devices without rows in each of {MAX_DRAWS} draws: use a larger alpha "
            "or fewer devices."
        )
    pieces = [np.split(rng.permutation(rows), cut[:-1]) for rows, cut in zip(class_rows, cuts, strict=True)]
    return tuple(np.sort(np.concatenate(piece)) for piece in zip(*pieces, strict=True))


def partition_by_column(ids: Sequence[str]) -> tuple[Parts, tuple[str, ...]]:
    """Give each device the rows that carry its name; devices are in the order of their sorted names.

    Example:
        >>> partition_by_column(["b", "a", "b"])
        ((array([1]), array([0, 2])), ('a', 'b'))
    """
    names, device_of_row, counts = np.unique(np.asarray(ids, dtype=np.object_), return_inverse=True, return_counts=True)
    rows = np.argsort(device_of_row, kind="stable")
    return tuple(np.split(rows, np.cumsum(counts)[:-1])), tuple(names.tolist())


def _device_names(devices: int) -> tuple[str, ...]:
    width = max(2, len(str(devices)))
    return tuple(f"device-{number:0{width}}" for number in range(1, devices + 1))


def _require_devices(devices: int, rows: int) -> None:
    require_at_least("devices", devices, 1)
    if devices > rows:
        there_are = (
            f"the {rows} training rows: use fewer devices" if rows > 1 else "the one training row: give more rows"
        )
        raise InputError(f"devices = {devices} is more than {there_are}.")


def split_rows(
    rows: int,
    test_fraction: float,
    labels: IntArray | None,
    rng: np.random.Generator,
    devices: Sequence[str] | None = None,
) -> tuple[IntArray, IntArray]:
    """Split the row numbers into (train, test), both sorted and neither empty.

    Every device keeps a training row: the first row of a device whose rows would all go to the test part stays in the training
    part. If that leaves no test row, the last row of the device with the most rows becomes the test part.

    Args:
        rows: number of rows, 2 or more.
        test_fraction: fraction of the rows that go to the test part, rounded, and at least one row.
        labels: class of each row, to give both parts the same mix of classes. Without them, or when a class or a part
            is too small for that, rows are drawn regardless of class.
        rng: source of randomness.
        devices: device of each row, if the data names it.

    Raises:
        InputError: there are not enough rows, or every device has a single one.

    Example:
        >>> train, test = split_rows(10, 0.2, np.repeat([0, 1], 5), np.random.default_rng(0))
        >>> len(train), len(test), sorted(test // 5)
        (8, 2, [np.int64(0), np.int64(1)])
    """
    require_fraction("data.test_fraction", test_fraction)
    if rows < 2:
        raise InputError(
            f"data.dataset has {rows} row(s), which cannot be split into training and test rows: "
            "add rows, or give data.test_file."
        )
    tests = min(max(round(test_fraction * rows), 1), rows - 1)
    if labels is not None:
        counts = np.unique(labels, return_counts=True)[1]
        if counts.min() < 2 or len(counts) > min(tests, rows - tests):
            labels = None
    from sklearn.model_selection import train_test_split

    _, test = train_test_split(np.arange(rows), test_size=tests, stratify=labels, random_state=int(rng.integers(2**32)))
    is_test = np.zeros(rows, dtype=np.bool_)
    is_test[test] = True
    if devices is not None:
        _keep_a_row_per_device(is_test, devices)
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def remarks_on_devices(devices: Sequence[str], training: Sequence[str]) -> list[str]:
    """Return remarks on devices with few rows.

    Args:
        devices: the device of each row, test rows included.
        training: the device of each training row.

    Example:
        >>> for remark in remarks_on_devices(["a", "b", "b"] + 9 * ["c"], ["a", "b"] + 6 * ["c"]):
        ...     print(remark)
        the only row of a is for training: nothing of it is tested.
        few training rows: b (1); up to 6 elsewhere.
    """
    rows, trained = Counter(devices), Counter(training)
    single = [name for name in sorted(rows) if rows[name] == 1]
    few = [f"{name} ({trained[name]})" for name in sorted(trained) if trained[name] < FEW_ROWS and rows[name] > 1]
    remarks = []
    if single:
        them = "it" if len(single) == 1 else "them"
        remarks.append(f"the only row of {listing(single, MOST_NAMES)} is for training: nothing of {them} is tested.")
    if few:
        most = max(trained.values())
        elsewhere = f"; up to {most} elsewhere" if most >= FEW_ROWS else ""
        remarks.append(f"few training rows: {listing(few, MOST_NAMES)}{elsewhere}.")
    return remarks


def _keep_a_row_per_device(is_test: BoolArray, devices: Sequence[str]) -> None:
    """Move rows between the parts until every device has a training row and the test part is not empty."""
    parts, _ = partition_by_column(devices)
    for part in parts:
        if is_test[part].all():
            is_test[part[0]] = False
    if not is_test.any():
        largest = max(parts, key=len)
        if len(largest) == 1:
            raise InputError(
                "every device in data.device_column has a single row, so that none is left to test on: give data.test_file."
            )
        is_test[largest[-1]] = True
