from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl._device_table import read_device_table
from codedfl.errors import InputError


def write(folder: Path, text: str) -> Path:
    file = folder / "devices.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_names_and_numbers_are_read_by_column(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeffrate, name ,colour\n1e3,Gerät 1,red\n\n 2 ,NA,blue\n")
    table = read_device_table(str(file), ["rate"], ["name"], others=True)
    assert table.unique_names() == ("Gerät 1", "NA")
    assert table.numbers("rate").tolist() == [1000.0, 2.0]
    assert table.rows == 2


def test_parquet_gives_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "devices.parquet"
    pd.DataFrame({"name": ["a", "b"], "rate": [1, 2]}).to_parquet(file)
    table = read_device_table(file, ["rate"], ["name"])
    assert (table.unique_names(), table.numbers("rate").tolist()) == (("a", "b"), [1.0, 2.0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rate": [True, False]}, "column 'rate', row 1: True must be a finite number"),
        ({"rate": [1.0, None]}, "column 'rate', row 2: nan must be a finite number"),
        ({"rate": [1, 2], "name": ["a", None]}, "column 'name', row 2: (None|nan) is not a name"),
        ({"rate": [1, 2], "name": [float("nan"), 1.0]}, "column 'name', row 1: nan is not a name"),
    ],
)
def test_bad_cells_of_a_parquet_file_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "devices.parquet"
    pd.DataFrame(columns).to_parquet(file)
    with pytest.raises(InputError, match=message):
        _read(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate,name\n1,a\n2\n", r"row 2 has 1 value\(s\) for the 2 column"),
        ("rate,name\n1,a,b\n", r"row 1 has 3 value\(s\) for the 2 column"),
        ("rate,name\n1,a\n2,a\n", "column 'name', row 2: 'a' has a row already, row 1"),
        ("rate,name\n1,a\n2,NaN\n", "column 'name', row 2: 'NaN' is not a name"),
        ("rate,name\n1,\n", "column 'name', row 1: '' is not a name"),
        ("rate\ntrue\n", "column 'rate', row 1: 'true' must be a finite number"),
        ("rate\nnan\n", "column 'rate', row 1: 'nan' must be a finite number"),
        ("rate\n1\n-inf\n", "column 'rate', row 2: '-inf' must be a finite number"),
        ("rate\n1_000\n", "column 'rate', row 1: '1_000' must be a finite number"),
        ("rat\n1\n", r"has a column 'rat', but only rate, name are known.* Did you mean 'rate'\?"),
        ("name\na\n", r"has no column 'rate' \(found: 'name'\)"),
        ("rate,rate\n1,2\n", "more than one column 'rate'"),
        ("", "is empty"),
        ("rate\n" + "9" * 5000 + "x\n", r"\(5003 characters\) must be a finite number"),
    ],
)
def test_a_bad_file_is_refused_with_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        _read(write(tmp_path, text))
    assert "devices.csv" in str(caught.value)
    assert len(str(caught.value)) < 500


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"rate,name\n{text}".encode()))
def test_any_content_is_a_table_or_one_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "devices.csv"
    file.write_bytes(content)
    message = ""
    try:
        _read(file)
    except InputError as error:
        message = str(error)
    assert "\n" not in message


def _read(file: Path) -> None:
    table = read_device_table(file, ["rate"], ["name"])
    table.numbers("rate")
    if "name" in table.columns:
        table.unique_names()


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_are_found_out(tmp_path: Path, separator: str) -> None:
    file = write(tmp_path, "rate,name\n1.5,a\n".replace(",", separator))
    table = read_device_table(file, ["rate", "name"])
    assert (table.numbers("rate").tolist(), table.names()) == ([1.5], ("a",))


def test_a_decimal_comma_needs_another_separator(tmp_path: Path) -> None:
    assert read_device_table(write(tmp_path, "rate;name\n1,5;a\n"), ["rate", "name"]).numbers("rate").tolist() == [1.5]
    with pytest.raises(InputError, match=r"'1,500' must be a finite number"):
        _read(write(tmp_path, 'rate,name\n"1,500",a\n'))


@pytest.mark.parametrize(
    ("cell", "hint"), [("99", ": write 99 percent as 0.99"), ("99.5 %", ": write 99.5 percent as 0.995"), ("-1", "")]
)
def test_percentages_are_recognised(tmp_path: Path, cell: str, hint: str) -> None:
    table = read_device_table(write(tmp_path, f"rate\n{cell}\n"), ["rate"])
    with pytest.raises(InputError) as caught:
        table.numbers("rate", "a number from 0 to 1")
    assert str(caught.value).endswith(f"row 1: '{cell}' must be a number from 0 to 1{hint}.")


def test_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "devices.csv"
    file.write_bytes("rate,name\n1,Köln\n".encode("cp1252"))
    with pytest.raises(InputError, match="is not text in UTF-8: save it as UTF-8"):
        _read(file)
