from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import read_fleet


def write(folder: Path, text: str) -> Path:
    file = folder / "fleet.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_rows_without_names_are_in_device_order(tmp_path: Path) -> None:
    file = write(tmp_path, "transmit_power_dbm,mac_rate,comment\n20,1e6,x\n-3.5, 2e6 ,\n")
    fleet = read_fleet(file, ["a", "b"])
    assert fleet.names == ("a", "b")
    assert fleet.mac_rate.tolist() == [1e6, 2e6]
    assert fleet.transmit_power_dbm.tolist() == [20.0, -3.5]


def test_rows_with_names_are_matched(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeffname,mac_rate,transmit_power_dbm\n02,2,2\nNA,3,3\n1,1,1\n")
    assert read_fleet(str(file), ["1", "02", "NA"]).mac_rate.tolist() == [1.0, 2.0, 3.0]


def test_a_large_file_is_matched(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(20_000)
    rows = "".join(f"d{i},{i + 1},20\n" for i in order)
    fleet = read_fleet(write(tmp_path, "name,mac_rate,transmit_power_dbm\n" + rows), [f"d{i}" for i in range(20_000)])
    assert (fleet.mac_rate == np.arange(20_000) + 1).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("name,mac_rate,transmit_power_dbm\n", "no row for device 'a'"),
        ("mac_rate,transmit_power_dbm\n", r"has 0 row\(s\) for 2 device"),
        ("mac_rate,transmit_power_dbm\n1,2\n", r"has 1 row\(s\) for 2 device"),
        ("mac_rate;transmit_power_dbm\n1;2\n", "no column 'mac_rate' .found: 'mac_rate;transmit_power_dbm'"),
        ("mac_rate,power\n1,2\n2,2\n", "no column 'transmit_power_dbm'"),
        ("mac_rate,mac_rate,transmit_power_dbm\n1,2,3\n", "more than one column 'mac_rate'"),
        ("mac_rate,transmit_power_dbm\n1,2,3\n1,2,3\n", r"row 1 has 3 value\(s\) for the 2 column"),
        ("mac_rate,transmit_power_dbm\n1,2\n2\n", r"row 2 has 1 value\(s\) for the 2 column"),
        ("mac_rate,transmit_power_dbm\n1,2\n2,\n", "column 'transmit_power_dbm', row 2: '' must be a finite"),
        ("mac_rate,transmit_power_dbm\n1,2\n0,2\n", "column 'mac_rate', row 2: '0' must be a positive"),
        ("mac_rate,transmit_power_dbm\nfast,2\n1,2\n", "column 'mac_rate', row 1: 'fast' must be"),
        ("mac_rate,transmit_power_dbm\n1,inf\n1,2\n", "column 'transmit_power_dbm', row 1: 'inf'"),
        ("mac_rate,transmit_power_dbm\n1,999\n1,2\n", "fleet.transmit_power_dbm = 999"),
        ("name,mac_rate,transmit_power_dbm\na,1,2\nc,1,2\n", "row 2: 'c' is not a device"),
        ("name,mac_rate,transmit_power_dbm\na,1,2\na,1,2\n", "row 2: 'a' has a row already"),
        ("name,mac_rate,transmit_power_dbm\nb,1,2\n", "no row for device 'a'"),
        ('mac_rate,transmit_power_dbm\n"1,2\n', "is not a CSV file"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_fleet(write(tmp_path, text), ["a", "b"])
    assert "\n" not in str(error.value)
    assert "fleet." in str(error.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fleet.file = .*nowhere.csv.* is not a file"):
        read_fleet(tmp_path / "nowhere.csv", ["a"])
    with pytest.raises(InputError, match="is not a file"):
        read_fleet(tmp_path, ["a"])
    with pytest.raises(InputError, match=r"fleet.file"):
        read_fleet("a\0b", ["a"])
    binary = tmp_path / "fleet.csv"
    binary.write_bytes(b"\x1f\x8b\x00\xff,\xfe\n")
    with pytest.raises(InputError, match="UTF-8"):
        read_fleet(binary, ["a"])
