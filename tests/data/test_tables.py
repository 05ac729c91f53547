from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from codedfl.data import Columns, read_table, table_columns
from codedfl.data._tables import read_csv, read_raw
from codedfl.errors import InputError
from codedfl.files import csv_header


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "my.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_features_stay_as_they_are_in_the_file(tmp_path: Path) -> None:
    table = read_raw(write(tmp_path, "id;a;where;b;y\n1;0,5;home;x;3\n2;;work;;4\n"), Columns(("y",), "where", ("id",)))
    assert table.problems == ()
    assert table.devices == ("home", "work")
    assert table.targets["y"].tolist() == [3, 4]
    expected = pd.DataFrame({"a": [0.5, None], "b": ["x", None]})
    pd.testing.assert_frame_equal(table.features, expected, check_dtype=False, check_column_type=False)


def test_problems_of_all_roles_are_collected(tmp_path: Path) -> None:
    path = write(tmp_path, "a,w,y\n1,,2\n2,u,\n3,,\n")
    problems = read_raw(path, Columns(("y", "yy"), "w", ("b", "y"))).problems
    assert [problem.split(":")[0] for problem in problems] == [
        f"data.target = 'yy' is not a column of '{path}', which has",
        f"data.drop = 'b' is not a column of '{path}', which has",
        "the column 'y' is named in data.target and again in data.drop",
        f"column 'y' of '{path}' has 2 missing value(s) (empty, NaN, NA or None), in row(s) 2, 3",
        f"column 'w' of '{path}' has 2 missing value(s) (empty, NaN, NA or None), in row(s) 1, 3",
    ]


def test_names_are_read_without_the_rows(tmp_path: Path) -> None:
    assert table_columns(write(tmp_path, "a;b,c;d\n1;2;3\n")) == ("a", "b,c", "d")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [1], "b": [2]}).to_parquet(tmp_path / "my.parquet")
    assert table_columns(tmp_path / "my.parquet") == ("a", "b")


def test_parquet_files_are_read_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"day": pd.to_datetime(["2020-01-01"]), "kind": pd.Categorical(["x"])})
    frame.to_parquet(tmp_path / "my.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "my.parquet"), frame, check_column_type=False)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"my\.csv' has no rows: give a file with at least one"):
        read_table(write(tmp_path, "a;b\n"))


FRAME = pd.DataFrame({"name": ["Ann, Bob", "Cid;Dora", "Eve\tF"], "dose": [1.5, -2.25, 1000.0], "count": [1, 2, 3]})


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_separators_are_found_out(tmp_path: Path, separator: str, encoding: str) -> None:
    path = tmp_path / "my.csv"
    FRAME.to_csv(path, sep=separator, index=False, encoding=encoding)
    pd.testing.assert_frame_equal(read_csv(path), FRAME)
    assert csv_header(path) == (["name", "dose", "count"], separator)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_are_found_out(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "my.csv"
    FRAME.to_csv(path, sep=separator, decimal=",", index=False)
    pd.testing.assert_frame_equal(read_csv(path), FRAME)


def test_one_column_of_numbers_with_commas_decides_for_the_whole_file(tmp_path: Path) -> None:
    frame = read_csv(write(tmp_path, "a;b;c\n1,5;0,25;x,y\n2;7;z\n"))
    assert frame["a"].tolist() == [1.5, 2.0]
    assert frame["b"].tolist() == [0.25, 7.0]
    assert frame["c"].tolist() == ["x,y", "z"]


def test_lists_of_numbers_in_text_are_no_decimal_commas(tmp_path: Path) -> None:
    frame = read_csv(write(tmp_path, "a;b\n1,2,3;0.5\n2,5;1.5\n"))
    assert frame["a"].tolist() == ["1,2,3", "2,5"]
    assert frame["b"].tolist() == [0.5, 1.5]


def test_a_quoted_name_may_hold_a_separator(tmp_path: Path) -> None:
    assert csv_header(write(tmp_path, '"dose; mg","a, b"\n1,2\n')) == (["dose; mg", "a, b"], ",")
    assert csv_header(write(tmp_path, '\n"a, b";c;d\n1;2;3\n')) == (["a, b", "c", "d"], ";")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_header_may_be_longer_than_a_field_may_be(tmp_path: Path, separator: str) -> None:
    names = [f"a long name of column {number:05}" for number in range(5_000)]
    assert csv_header(write(tmp_path, separator.join(names) + "\n")) == (names, separator)


def test_a_single_column_has_no_separator(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "a\n1\n2\n"))["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a;a;y\n1;2;3\n", "has more than one column 'a'"),
        (";a;y\n0;2;3\n", "column 1 of .*my.csv' has no name"),
        ("a;y\n1;2;3\n", r"line 2 of .*my\.csv' has 3 values, the header 2: correct the line"),
        ("größe;y\n1;2\n".encode("latin-1"), r"my\.csv' is not text in UTF-8: save it as UTF-8"),
        ("", r"my\.csv' is empty"),
        ("a,y\n1,2\n\n3,4\n5,6,7\n", "line 5 of .* has 3 values, the header 2"),
        (
            "a,b,y\n1,2,3\n4,5\n",
            r"line 3 of .*my\.csv' has 2 values, the header 3: correct the line; keep all separators",
        ),
        ("a;b;y\n1;2;3\n\n4\n", "line 4 of .* has 1 values, the header 3"),
    ],
)
def test_what_pandas_would_change_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_csv(write(tmp_path, text))


def test_an_empty_last_value_is_missing_and_no_damage(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, "a,y\n1,\n\n2,3\n"))["y"].isna().tolist() == [True, False]
