"""The data of a federation: the rows of each device after the feature map, and the test set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from mmap import mmap

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl._validation import require_fraction
from codedfl.data._dataset import Dataset, Task, require_matrix, require_same_rows
from codedfl.data._features import FeatureMap
from codedfl.data._partition import Partition
from codedfl.errors import InputError
from codedfl.identity import ByObject
from codedfl.typing import FloatArray, IntArray


@dataclass(frozen=True)
class DeviceSummary:
    """The data of one device.

    Args:
        name: name of the device.
        samples: number of rows.
        classes: number of rows in each class present; empty for a regression.
    """

    name: str
    samples: int
    classes: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Federation(ByObject):
    """The data of N devices, contiguous per device, and the test set, after the feature map.

    Arrays are in memory or mapped from files (see `open_federation`). Only ``split_validation`` copies rows.

    Args:
        features: X, (m, d), rows ordered by device, C-contiguous.
        labels: Y, (m, o).
        offsets: first row of each device, followed by m, (N + 1,).
        test_features: features of the test rows.
        test_labels: targets of the test rows.
        task: what the labels mean.
        target_names: names of the o classes or outputs.
        device_names: names of the N devices.

    Example:
        >>> X, Y = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((3, 1), np.float32)
        >>> data = Federation(X, Y, np.array([0, 1, 3]), X, Y, "regression", ("y",), ("a", "b"))
        >>> data.samples, data.device(1)[0]
        (array([1, 2]), array([[2., 3.],
               [4., 5.]], dtype=float32))
    """

    features: FloatArray
    labels: FloatArray
    offsets: IntArray
    test_features: FloatArray
    test_labels: FloatArray
    task: Task
    target_names: tuple[str, ...]
    device_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("features", "labels", "test_features", "test_labels"):
            values = getattr(self, name)
            file = mapped_file(values)
            require_matrix(repr(file) if file else name, values)
        require_same_rows("features", self.features, "labels", self.labels)
        require_same_rows("test_features", self.test_features, "test_labels", self.test_labels)
        widths = (self.dimension, self.outputs)
        if (self.test_features.shape[1], self.test_labels.shape[1]) != widths or len(self.target_names) != self.outputs:
            raise InputError(
                f"features and labels have {widths} columns, so test_features and test_labels must have as many, and "
                f"target_names {self.outputs} names."
            )
        for name in ("features", "labels"):
            if not getattr(self, name).flags.c_contiguous:
                raise InputError(f"{name} must be C-contiguous: pass it through numpy.ascontiguousarray.")
        self._check_offsets()

    def __repr__(self) -> str:
        rows = f"{self.total_samples} samples on {self.devices} device(s), {len(self.test_labels)} to test on"
        return f"Federation({self.task}, {rows}, {self.dimension} features, {self.outputs} output(s))"

    def _check_offsets(self) -> None:
        if self.offsets.shape != (len(self.device_names) + 1,) or not self.device_names:
            raise InputError(
                f"offsets has shape {self.offsets.shape} for {len(self.device_names)} devices: give one more than devices."
            )
        if self.offsets[0] != 0 or self.offsets[-1] != self.total_samples:
            raise InputError(
                f"offsets runs from {self.offsets[0]} to {self.offsets[-1]}: it must run from 0 to {self.total_samples} rows."
            )
        if self.samples.min() < 1:
            raise InputError(
                f"the device {self.device_names[int(np.argmin(self.samples))]!r} has no rows: leave it out."
            )

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.device_names)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    @property
    def outputs(self) -> int:
        """Number of classes or outputs o."""
        return int(self.labels.shape[1])

    @property
    def samples(self) -> IntArray:
        """Number of rows of each device, l_i, (N,)."""
        return np.diff(self.offsets)

    @property
    def total_samples(self) -> int:
        """Number of rows m of all devices."""
        return len(self.features)

    @property
    def mapped(self) -> bool:
        """Whether the features are mapped from a file, so that they may be larger than memory."""
        return mapped_file(self.features) is not None

    def device(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Return views of the features and labels of device i."""
        if not 0 <= i < self.devices:
            raise InputError(f"device {i} does not exist: use an index from 0 to {self.devices - 1}.")
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return self.features[rows], self.labels[rows]

    def describe(self) -> tuple[DeviceSummary, ...]:
        """Return a summary of each device's data."""
        return tuple(
            DeviceSummary(name, int(count), self._classes(i))
            for i, (name, count) in enumerate(zip(self.device_names, self.samples, strict=True))
        )

    def _classes(self, i: int) -> dict[str, int]:
        if self.task != "classification":
            return {}
        counts = np.bincount(np.argmax(self.device(i)[1], axis=1), minlength=self.outputs)
        return {name: int(count) for name, count in zip(self.target_names, counts, strict=True) if count}

    def require_in_memory(self) -> None:
        """Refuse mapped data, which is too large to copy.

        Raises:
            InputError: the features are mapped from a file.
        """
        if self.mapped:
            raise InputError(
                "learning_rate.scale = 'grid' holds rows out by copying them, which memory-mapped data is too large for: give "
                "learning_rate.scale a number."
            )

    def split_validation(self, fraction: float, rng: np.random.Generator) -> Federation:
        """Hold out rows of every device as the new test set, to choose step sizes without the test data.

        Args:
            fraction: fraction of the rows of each device to hold out, rounded. Every device keeps at least one row. If
                rounding would hold out none at all, one row of the largest device is held out.
            rng: source of randomness.

        Raises:
            InputError: the fraction is not within (0, 1), no device has a row to spare, or the features are mapped.
        """
        require_fraction("fraction", fraction)
        self.require_in_memory()
        samples = self.samples
        held_out = np.minimum(np.rint(fraction * samples).astype(np.int64), samples - 1)
        if not held_out.any():
            held_out[np.argmax(samples)] = 1
        if (held_out >= samples).any():
            fix = "use fewer devices" if self.devices > 1 else "give more rows, or learning_rate.scale a number"
            raise InputError(f"no rows can be held out for validation, as every device has only one: {fix}.")
        validation = np.zeros(self.total_samples, dtype=np.bool_)
        for start, count, hold in zip(self.offsets[:-1], samples, held_out, strict=True):
            validation[start + rng.choice(count, size=hold, replace=False)] = True
        return replace(
            self,
            features=self.features[~validation],
            labels=self.labels[~validation],
            offsets=np.concatenate([[0], np.cumsum(samples - held_out)]),
            test_features=self.features[validation],
            test_labels=self.labels[validation],
        )


def build_federation(
    dataset: Dataset, feature_map: FeatureMap, partition: Partition, dtype: npt.DTypeLike = np.float32
) -> Federation:
    """Map the rows of a dataset to features, ordered by device.

    Example:
        >>> from codedfl.data import fit_feature_map, load_dataset, partition
        >>> rng = np.random.default_rng(0)
        >>> digits = load_dataset("digits", rng=rng)
        >>> feature_map = fit_feature_map(digits.features, dimension=100, rng=rng)
        >>> data = build_federation(digits, feature_map, partition(digits, "shards", 10, 0.5, rng))
        >>> data.devices, data.dimension, data.total_samples
        (10, 100, 1438)
    """
    order = np.concatenate(partition.parts)
    if len(order) != len(dataset.features):
        raise InputError(
            f"the partition has {len(order)} rows but the dataset {shown(dataset.name)} has {len(dataset.features)}: partition "
            "that dataset."
        )
    return Federation(
        features=feature_map.transform(dataset.features, dtype, rows=order),
        labels=np.ascontiguousarray(dataset.targets[order], dtype=dtype),
        offsets=np.concatenate([[0], np.cumsum([len(part) for part in partition.parts])]),
        test_features=feature_map.transform(dataset.test_features, dtype),
        test_labels=np.ascontiguousarray(dataset.test_targets, dtype=dtype),
        task=dataset.task,
        target_names=dataset.target_names,
        device_names=partition.names,
    )


def mapped_file(values: FloatArray) -> str | None:
    """Return the file that an array is a view of, or None if it is in memory.

    Example:
        >>> mapped_file(np.zeros((2, 2))) is None
        True
    """
    # An array computed from a mapped one may have type numpy.memmap too: only the innermost base tells.
    owner = values
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return str(getattr(owner, "filename", "")) if isinstance(owner.base, mmap) else None
