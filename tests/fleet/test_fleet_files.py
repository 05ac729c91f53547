from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codedfl.errors import InputError
from codedfl.fleet import ArrivalChances, Fleet, MeasuredFleet, RecordedAnswers, ResponseTimes, is_recording, read_fleet


def write(folder: Path, text: str) -> Path:
    file = folder / "fleet.csv"
    file.write_text(text, encoding="utf-8")
    return file


def radio_fleet(path: str | Path, names: Sequence[str]) -> Fleet:
    fleet = read_fleet(path, names)
    assert isinstance(fleet, Fleet)
    return fleet


def measured_fleet(path: Path, names: Sequence[str], **options: str) -> MeasuredFleet:
    fleet = read_fleet(path, names, **options)
    assert isinstance(fleet, MeasuredFleet)
    return fleet


def test_rows_without_names_are_in_device_order(tmp_path: Path) -> None:
    file = write(tmp_path, "transmit_power_dbm,mac_rate,comment\n20,1e6,x\n-3.5, 2e6 ,\n")
    fleet = radio_fleet(file, ["a", "b"])
    assert fleet.names == ("a", "b")
    assert fleet.mac_rate.tolist() == [1e6, 2e6]
    assert fleet.transmit_power_dbm.tolist() == [20.0, -3.5]


def test_rows_with_names_are_matched(tmp_path: Path) -> None:
    file = write(tmp_path, "\ufeffname,mac_rate,transmit_power_dbm\n02,2,2\nNA,3,3\n1,1,1\n")
    assert radio_fleet(str(file), ["1", "02", "NA"]).mac_rate.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_a_large_file_is_matched(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(20_000)
    rows = "".join(f"d{i},{i + 1},20\n" for i in order)
    fleet = radio_fleet(write(tmp_path, "name,mac_rate,transmit_power_dbm\n" + rows), [f"d{i}" for i in range(20_000)])
    assert (fleet.mac_rate == np.arange(20_000) + 1).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("name,mac_rate,transmit_power_dbm\n", "no row for device 'a'"),
        ("mac_rate,transmit_power_dbm\n", r"has 0 row\(s\) for 2 device"),
        ("mac_rate,transmit_power_dbm\n1,2\n", r"has 1 row\(s\) for 2 device"),
        ("mac_rate transmit_power_dbm\n1 2\n", "no columns that describe devices: name the columns .* by commas"),
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


def test_chances_to_make_the_deadline(tmp_path: Path) -> None:
    fleet = measured_fleet(write(tmp_path, "name,arrival_probability,note\nb,0.25,x\na,1,y\n"), ["a", "b"])
    assert isinstance(fleet.answers, ArrivalChances)
    assert fleet.answers.chance.tolist() == [1.0, 0.25]
    assert (fleet.batch_size, fleet.mac_rate, fleet.uplink_bps) == (None, None, None)


def test_response_times_with_all_that_is_optional(tmp_path: Path) -> None:
    text = "device,mean_s,p95_s,batch_size,mac_rate,uplink_bps\nb,20,45,32,1e9,1e6\na,30,30,64,2e9,2e6\n"
    fleet = measured_fleet(write(tmp_path, text), ["a", "b"])
    assert isinstance(fleet.answers, ResponseTimes)
    assert {name: values.tolist() for name, values in fleet.columns().items()} == {
        "batch_size": [64.0, 32.0],
        "mac_rate": [2e9, 1e9],
        "uplink_bps": [2e6, 1e6],
        "mean_s": [30.0, 20.0],
        "p95_s": [30.0, 45.0],
    }


def test_devices_may_be_named_in_the_column_that_names_them_in_the_data(tmp_path: Path) -> None:
    file = write(tmp_path, "hospital,arrival_probability\nb,0.25\na,1\n")
    fleet = measured_fleet(file, ["a", "b"], name_column="hospital")
    assert isinstance(fleet.answers, ArrivalChances)
    assert fleet.answers.chance.tolist() == [1.0, 0.25]


def test_a_recording_from_any_first_round_on(tmp_path: Path) -> None:
    file = write(tmp_path, "seconds,round,device\n3.5,9,b\n1,7,a\n,8,a\n0,9,a\n")
    fleet = measured_fleet(file, ["a", "b"])
    assert isinstance(fleet.answers, RecordedAnswers)
    nan = np.nan
    np.testing.assert_array_equal(fleet.answers.seconds, [[1.0, nan], [nan, nan], [0.0, 3.5]])
    assert fleet.recorded_rounds == 3
    assert is_recording(file)
    assert not is_recording("")
    assert not is_recording(write(tmp_path, "name,mean_s,p95_s\na,1,2\n"))


def test_parquet_files_are_read_as_well(tmp_path: Path) -> None:
    answers = pd.DataFrame({"round": [0, 0, 1], "device": ["a", "b", "b"], "seconds": [1.0, np.nan, 2.0]})
    answers.to_parquet(tmp_path / "answers.parquet")
    recorded = measured_fleet(tmp_path / "answers.parquet", ["a", "b"]).answers
    assert recorded.probability(1.5, np.ones(2)).tolist() == [0.5, 0.0]
    pd.DataFrame({"name": ["b", "a"], "mean_s": [1, 2], "p95_s": [2, 3]}).to_parquet(tmp_path / "times.parquet")
    assert measured_fleet(tmp_path / "times.parquet", ["a", "b"]).columns()["mean_s"].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_probability\n0.5\n85%\n", "column 'arrival_probability', row 2: '85%' must be a number from 0 to 1"),
        ("arrival_probability\n0.5\n85\n", "row 2: '85' must be a number from 0 to 1"),
        ("arrival_probability\n0.5\n", r"has 1 row\(s\) for 2 device"),
        ("mean_s,p95_s\n10,30\n30,10\n", "column 'p95_s', row 2: '10' is below the mean of 30 s.* not swapped"),
        ("mean_s,p95_s\n10,50\n30,60\n", "row 1: '50' is more than 3.87 times the mean of 10 s"),
        ("mean_s,p95_s\n0,50\n30,60\n", "column 'mean_s', row 1: '0' must be a positive"),
        ("mean_s\n10\n10\n", "has no column 'p95_s', which belongs to 'mean_s': add it"),
        ("p95_s\n10\n10\n", "has no column 'mean_s', which belongs to 'p95_s': add it"),
        (
            "mean_s,p95_s,arrival_probability\n1,2,0.5\n1,2,0.5\n",
            "describes devices by arrival_probability and by mean_s, p95_s: keep one description",
        ),
        (
            "mac_rate,transmit_power_dbm,mean_s,p95_s\n1,2,1,2\n1,2,1,2\n",
            "by mac_rate, transmit_power_dbm and by mean_s",
        ),
        ("round,device,seconds,mean_s\n1,a,1,2\n", "by mean_s and by round, device, seconds: keep one"),
        ("arrival_probability,mac_rate\n1,2\n1,2\n", "has a column 'mac_rate' but none 'uplink_bps': give both"),
        ("mean_s,p95_s,uplink_bps\n1,2,1\n1,2,1\n", "has a column 'uplink_bps' but none 'mac_rate': give both"),
        ("mean_s,p95_s,batch_size\n1,2,1\n1,2,0\n", "column 'batch_size', row 2: '0' must be 1 or more"),
        ("mean_s,p95_s,batch_size\n1,2,1.5\n1,2,1\n", "column 'batch_size', row 1: '1.5' must be a whole number"),
        ("name,arrival_probability\nA,1\nb,1\n", r"row 1: 'A' is not a device of this experiment \(a, b\)"),
        ("device,seconds\na,1\n", "has no column 'round', which belongs to 'device', 'seconds'"),
        ("round,device,seconds\n", "has a header but no row"),
        ("round,device,seconds\n1,c,1\n", r"column 'device', row 1: 'c' is not a device of this experiment \(a, b\)"),
        ("round,device,seconds\n1,,1\n", "is not a name"),
        ("round,device,seconds\n1,a,1\n1,a,2\n", "row 2: 'a' has more than one row in round 1"),
        ("round,device,seconds\n1,a,-1\n", "column 'seconds', row 1: '-1' must be zero or more"),
        ("round,device,seconds\n1,a,soon\n", "column 'seconds', row 1: 'soon' must be a finite number"),
        ("round,device,seconds\n1,a,inf\n", "column 'seconds', row 1: 'inf' must be a finite number"),
        ("round,device,seconds\n1.5,a,1\n", "column 'round', row 1: '1.5' must be a whole number"),
        ("round,device,seconds\n1,a,\n", "has no answer in the column 'seconds'"),
        ("round,device,seconds\n1,a,1\n1700000000,a,1\n", "has rounds from 1 to 1700000000, too many for 2 device"),
    ],
)
def test_an_impossible_description_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_fleet(write(tmp_path, text), ["a", "b"])
    assert "\n" not in str(error.value)
    assert "fleet.file" in str(error.value)


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
