from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from codedfl.data import read_table, table_columns
from codedfl.data._raw_tables import Columns, read_raw
from codedfl.errors import InputError


def write(folder: Path, text: str) -> Path:
    path = folder / "my.csv"
    path.write_text(text, encoding="utf-8")
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
