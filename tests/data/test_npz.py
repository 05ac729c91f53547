from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from codedfl.data._npz import read_npz_tables
from codedfl.data._raw_tables import Columns
from codedfl.errors import InputError

DEFAULT = Columns(())
X = np.arange(6, dtype=np.float64).reshape(3, 2)
Y = np.array([1, 2, 3])


def write(folder: Path, **arrays: npt.NDArray[Any]) -> Path:
    path = folder / "my.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_default_names_are_found(tmp_path: Path) -> None:
    train, test = read_npz_tables(write(tmp_path, X=X, y=Y, device=np.array([7, 7, 8])), DEFAULT)
    np.testing.assert_array_equal(train.features, X)
    assert train.features.dtype == np.float32
    assert train.feature_names == ("x0", "x1")
    assert train.targets["y"].tolist() == [1, 2, 3]
    assert train.devices == ("7", "7", "8")
    assert test is None


def test_given_names_are_found_and_columns_of_targets_are_numbered(tmp_path: Path) -> None:
    path = write(tmp_path, X=X, z=np.ones((3, 2)), who=np.array(["a", "b", "a"]), X_test=X[:1], z_test=np.ones((1, 2)))
    train, test = read_npz_tables(path, Columns(("z",), "who"))
    assert train.devices == ("a", "b", "a")
    assert list(train.targets.columns) == ["z_0", "z_1"]
    assert test is not None
    assert list(test.targets.columns) == ["z_0", "z_1"]
    assert test.features.shape == (1, 2)


def test_a_file_of_test_rows_needs_no_devices(tmp_path: Path) -> None:
    test, none = read_npz_tables(write(tmp_path, X=X, y=Y), Columns((), "who"), for_test=True)
    assert (test.devices, none) == (None, None)


@pytest.mark.parametrize(
    ("arrays", "columns", "message"),
    [
        ({"x": X, "y": Y}, DEFAULT, r"has no array 'X', only: x, y\."),
        ({"X": X, "labels": Y}, Columns(("label",)), r"no array 'label', .*Did you mean 'labels'\?"),
        ({"X": X, "y": Y}, Columns((), "who"), "has no array 'who'"),
        ({"X": X, "y": Y}, Columns((), "", ("x0",)), r"data\.drop = \['x0'\] applies to \.csv and \.parquet files"),
        ({"X": X, "y": Y}, Columns(("y", "z")), r"data\.target = \['y', 'z'\] names more than one array"),
        ({"X": Y, "y": Y}, DEFAULT, r"'X' of .* has shape \(3,\) and dtype int64: give a non-empty 2-dimensional"),
        ({"X": X.astype(str), "y": Y}, DEFAULT, "array 'X' .* dtype <U32: .* array of numbers"),
        ({"X": X, "y": Y.astype("S")}, DEFAULT, "array 'y' .* dtype .S21: .* array of numbers or text"),
        ({"X": X * 1j, "y": Y}, DEFAULT, "array 'X' .* dtype complex128"),
        ({"X": X[:0], "y": Y[:0]}, DEFAULT, r"array 'X' .* shape \(0, 2\)"),
        ({"X": X, "y": Y[:2]}, DEFAULT, "X in .* has 3 rows but y has 2"),
        ({"X": X, "y": Y, "device": Y[:2]}, DEFAULT, "X in .* has 3 rows but device has 2"),
        ({"X": X, "y": Y, "X_test": X}, DEFAULT, "has an array 'X_test' but no 'y_test'"),
        ({"X": X, "y": Y, "X_test": X, "y_test": Y[:1]}, DEFAULT, "X_test in .* has 3 rows but y_test has 1"),
        ({"X": np.where(X == 3, np.nan, X), "y": Y}, DEFAULT, r"array 'X' .* has 1 missing value\(s\)"),
        ({"X": X, "y": np.array([1, np.inf, 2])}, DEFAULT, r"array 'y' .* has 1 value\(s\) that are infinite"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, npt.NDArray[Any]], columns: Columns, message: str
) -> None:
    path = write(tmp_path, **arrays)
    with pytest.raises(InputError, match=message):
        read_npz_tables(path, columns)
