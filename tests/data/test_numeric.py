from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl import files
from codedfl.data import Columns, Table, read_frame, read_npz_tables
from codedfl.data._cells import as_float32
from codedfl.errors import InputError

TARGET = Columns(target=("y",))


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "my.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_without_another_part_are_features(tmp_path: Path) -> None:
    path = write(tmp_path, "id,a,where,b,y\n1,0.5,home,True,3\n2,1.5,work,False,4\n")
    table = read_frame(path, Columns(("y",), "where", ("id",)))
    np.testing.assert_array_equal(table.features, np.array([[0.5, 1], [1.5, 0]], dtype=np.float32))
    assert table.features.dtype == np.float32
    assert table.feature_names == ("a", "b")
    assert table.devices == ("home", "work")
    assert table.targets["y"].tolist() == [3, 4]


def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    assert read_frame(write(tmp_path, b"\xef\xbb\xbfa,y\n1,2\n"), TARGET).feature_names == ("a",)


def test_a_test_file_may_lack_the_device_and_dropped_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,2\n")
    columns = Columns(("y",), "where", ("id",))
    assert read_frame(path, columns, for_test=True).devices is None
    with pytest.raises(InputError, match=r"data\.device_column = 'where' is not a column"):
        read_frame(path, columns)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", TARGET, r"my\.csv' is empty: give a file"),
        ("a,y\n", TARGET, "has no rows"),
        (b"\xff\xfe\x00", TARGET, r"my\.csv' is not text in UTF-8"),
        ("a,y\n1,2\n1,2,3\n", TARGET, r"line 3 of '.*my\.csv' has 3 values, the header 2"),
        ("a,y\n1,2,3\n", TARGET, r"line 2 of '.*my\.csv' has 3 values, the header 2"),
        ("a,a,y\n1,2,3\n", TARGET, "has more than one column 'a'"),
        (",a,y\n0,2,3\n", TARGET, "column 1 of .*my.csv' has no name: name it, or write the file without row numbers"),
        ("a,y\n1,2\n", Columns(()), r"data\.target is empty: name the column\(s\) to predict, .*: a, y\."),
        ("a,price\n1,2\n", Columns(("prize",)), r"data\.target = 'prize' is not a column .* Did you mean 'price'\?"),
        ("a,y\n1,2\n", Columns(("y",), "dev"), r"data\.device_column = 'dev' is not a column .*: a, y\."),
        ("a,y\n1,2\n", Columns(("y",), "", ("z",)), r"data\.drop = 'z' is not a column"),
        ("a,y\n1,2\n", Columns(("y", "y")), r"'y' is named in data\.target and again in data\.target"),
        ("a,y\n1,2\n", Columns(("y",), "", ("y",)), r"'y' is named in data\.target and again in data\.drop"),
        ("a,y\n1,2\n", Columns(("y",), "", ("a",)), "has no column left as a feature"),
        ("a,b,y\n1,x,2\n", TARGET, r"feature column 'b' .* has dtype (str|object).*data\.drop"),
        ("a,b,y\n1,,2\n3,4,5\n", TARGET, r"column 'b' of .* has 1 missing value\(s\)"),
        ("a,y\n1,\n3,\n", TARGET, r"column 'y' of .* has 2 missing value\(s\)"),
        ("a,w,y\n1,,2\n", Columns(("y",), "w"), r"column 'w' of .* has 1 missing value\(s\)"),
        ("a,y\n1e300,2\n", TARGET, r"column 'a' of .* has 1 value\(s\) that are infinite or beyond"),
        ("a,y\n99999999999999999999999999,2\n1,1\n", TARGET, None),
    ],
)
def test_a_csv_file_that_does_not_fit_is_refused(
    tmp_path: Path, text: str | bytes, columns: Columns, message: str | None
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message):
        read_frame(path, columns)


def write_parquet(folder: Path, columns: dict[str, Any]) -> Path:
    pytest.importorskip("pyarrow")
    path = folder / "my.parquet"
    pd.DataFrame(columns).to_parquet(path)
    return path


def test_parquet_types_are_understood(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path,
        {
            "count": pd.array([1, 2], dtype="Int64"),
            "flag": pd.array([True, False], dtype="boolean"),
            "half": np.array([0.5, 1.5], dtype=np.float16),
            "where": pd.Categorical(["a", "b"]),
            "y": [1.0, 2.0],
        },
    )
    table = read_frame(path, Columns(("y",), "where"))
    np.testing.assert_array_equal(table.features, np.array([[1, 1, 0.5], [2, 0, 1.5]], dtype=np.float32))
    assert table.devices == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": pd.array([1, None], dtype="Int64"), "y": [1, 2]}, r"column 'a' of .* has 1 missing"),
        ({"a": pd.Categorical(["u", "v"]), "y": [1, 2]}, "column 'a' of .* has dtype category"),
        ({"a": pd.to_datetime(["2020-01-01", "2021-01-01"]), "y": [1, 2]}, "column 'a' of .* has dtype datetime64"),
        ({"a": [[1], [2]], "y": [1, 2]}, "column 'a' of .* has dtype object"),
        ({"a": [], "y": []}, "has no rows"),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = write_parquet(tmp_path, columns)
    with pytest.raises(InputError, match=message):
        read_frame(path, TARGET)


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, {"a": [1, 2], "y": [1, 2]})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"my\.parquet' cannot be read as a \.parquet file"):
        read_frame(path, TARGET)


def test_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "my.parquet"
    pd.DataFrame({"a": [1, 2], "y": ["good", "oooo"]}).to_parquet(path, compression=None, use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"oooo", b"\xff\xff\xff\xff"))
    with pytest.raises(InputError, match=r"my\.parquet' cannot be read as a \.parquet file \(.*UTF8"):
        read_frame(path, TARGET)


def test_two_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "my.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array([1.0])] * 3, names=["a", "a", "y"]), path)
    with pytest.raises(InputError, match="has more than one column 'a'"):
        read_frame(path, TARGET)


def test_without_pyarrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r'needs pyarrow: run pip install "codedfl\[parquet\]"'):
        read_frame(tmp_path / "my.parquet", TARGET)


TABLE = Table(Path("t.csv"), np.array([[1, 2], [3, 4]], dtype=np.float32), ("a", "b"), pd.DataFrame({"y": [0, 1]}))


def test_features_come_in_the_order_asked_for() -> None:
    assert TABLE.with_features(("a", "b")) is TABLE.features
    np.testing.assert_array_equal(TABLE.with_features(("b", "a")), [[2, 1], [4, 3]])


def test_other_features_are_named() -> None:
    with pytest.raises(InputError, match=r"'t\.csv' lack the feature\(s\) c and have the extra feature\(s\) b"):
        TABLE.with_features(("a", "c"))


@given(values=st.lists(st.floats() | st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_numbers_become_finite_float32_or_are_refused(values: list[float]) -> None:
    try:
        converted = as_float32("column 'a'", np.array(values))
    except InputError:
        assert max(map(abs, values)) > 3e38 or np.isnan(values).any()
    else:
        assert converted.dtype == np.float32
        assert np.isfinite(converted).all()


def test_missing_and_huge_values_are_counted() -> None:
    with pytest.raises(InputError, match=r"x has 2 missing value\(s\)"):
        as_float32("x", np.array([np.nan, 1, np.nan]))
    with pytest.raises(InputError, match=r"x has 2 value\(s\) that are infinite or beyond 3\.4e\+38"):
        as_float32("x", np.array([1e300, np.inf, 0]))


DEFAULT = Columns(())
X = np.arange(6, dtype=np.float64).reshape(3, 2)
Y = np.array([1, 2, 3])


def write_arrays(folder: Path, **arrays: npt.NDArray[Any]) -> Path:
    path = folder / "my.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_default_names_are_found(tmp_path: Path) -> None:
    train, test = read_npz_tables(write_arrays(tmp_path, X=X, y=Y, device=np.array([7, 7, 8])), DEFAULT)
    np.testing.assert_array_equal(train.features, X)
    assert train.features.dtype == np.float32
    assert train.feature_names == ("x0", "x1")
    assert train.targets["y"].tolist() == [1, 2, 3]
    assert train.devices == ("7", "7", "8")
    assert test is None


def test_given_names_are_found_and_columns_of_targets_are_numbered(tmp_path: Path) -> None:
    path = write_arrays(
        tmp_path, X=X, z=np.ones((3, 2)), who=np.array(["a", "b", "a"]), X_test=X[:1], z_test=np.ones((1, 2))
    )
    train, test = read_npz_tables(path, Columns(("z",), "who"))
    assert train.devices == ("a", "b", "a")
    assert list(train.targets.columns) == ["z_0", "z_1"]
    assert test is not None
    assert list(test.targets.columns) == ["z_0", "z_1"]
    assert test.features.shape == (1, 2)


def test_a_file_of_test_rows_needs_no_devices(tmp_path: Path) -> None:
    test, none = read_npz_tables(write_arrays(tmp_path, X=X, y=Y), Columns((), "who"), for_test=True)
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
    path = write_arrays(tmp_path, **arrays)
    with pytest.raises(InputError, match=message):
        read_npz_tables(path, columns)
