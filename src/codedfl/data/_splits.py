"""Random splits of rows into a part to train on and a part to test on."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

from codedfl.errors import InputError
from codedfl.typing import IntArray


def require_fraction(name: str, value: float) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} = {value} must be more than 0 and less than 1.")


def split_rows(
    rows: int, test_fraction: float, labels: IntArray | None, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Split the row numbers into (train, test), both sorted and neither of them empty.

    Args:
        rows: number of rows, 2 or more.
        test_fraction: fraction of the rows that go to the test part, rounded, and at least one row.
        labels: class of each row, to give both parts the same mix of classes. Without them, or when a class or a part
            is too small for that, rows are drawn regardless of class.
        rng: randomness.

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
    train, test = train_test_split(
        np.arange(rows), test_size=tests, stratify=labels, random_state=int(rng.integers(2**32))
    )
    return np.sort(train), np.sort(test)
