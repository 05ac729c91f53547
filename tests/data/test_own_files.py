from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codedfl.data import Columns, Dataset, Preprocessing, load_dataset, read_numeric_table
from codedfl.errors import InputError
from codedfl.experiment import run


def hospitals(rows: int = 200) -> pd.DataFrame:
    """An ordinary table: missing values, categories, dates, an id, and a site with a single row."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient": [f"P{row:04}" for row in range(rows)],
            "hospital": rng.choice(["north", "south", "west"], rows),
            "age": rng.integers(18, 95, rows).astype(float),
            "sex": rng.choice(["f", "m"], rows),
            "ward": rng.choice(["surgery", "cardiology", "maternity"], rows),
            "admitted": pd.date_range("2023-01-01", periods=rows).strftime("%d.%m.%Y"),
            "country": "NL",
        }
    )
    frame["readmitted"] = np.where(frame["age"] + rng.normal(0, 9, rows) > 60, "yes", "no")
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "ward"] = None
    frame.loc[rows - 1, "hospital"] = "lonely"
    return frame


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "hospitals.csv"
    hospitals().to_csv(path, sep=";", decimal=",", index=False)
    return path


def load(path: Path, seed: int = 0, test_file: str = "", **options: object) -> Dataset:
    given = {"target": "readmitted", "device_column": "hospital", "test_fraction": 0.3, **options}
    return load_dataset(str(path), rng=np.random.default_rng(seed), test_file=test_file, **given)  # type: ignore[arg-type]


OUTPUTS = ("age", "sex=f", "sex=m", "ward=cardiology", "ward=maternity", "ward=surgery", "admitted")


def test_an_ordinary_table_becomes_numbers(path: Path) -> None:
    data = load(path)
    assert data.feature_names == OUTPUTS
    assert data.preprocessing is not None
    assert data.preprocessing.output_names == OUTPUTS
    assert (len(data.features), len(data.test_features)) in ((140, 60), (141, 59))
    everything = np.concatenate([data.features, data.test_features])
    raw = data.preprocessing.transform(hospitals(), source="it")
    np.testing.assert_array_equal(np.unique(everything, axis=0), np.unique(raw, axis=0))
    assert data.remarks == (
        "categories have a column each: sex (2), ward (3); dates are days since 2000-01-01: admitted.",
        "columns left out: country (the same value in all training rows); patient (another text in almost every row, as in an "
        "identifier).",
        "missing values were filled in: age (23: median 59), ward (19: most frequent 'surgery').",
        "the only row of lonely is for training: nothing of it is tested.",
    )


def test_medians_come_from_the_training_rows_alone(path: Path) -> None:
    data = load(path)
    assert data.preprocessing is not None
    age = data.preprocessing.columns[0]
    days = data.features[:, -1]
    frame = hospitals()
    frame["days"] = (pd.to_datetime(frame["admitted"], format="%d.%m.%Y") - pd.Timestamp("2000-01-01")).dt.days
    training = frame[frame["days"].isin(days)]  # every row has another day
    assert len(training) == len(days)
    assert age.fill == training["age"].median() != frame["age"].median()


@pytest.mark.parametrize("seed", range(8))
def test_no_site_is_dropped(path: Path, seed: int) -> None:
    data = load(path, seed)
    assert data.devices is not None
    assert set(data.devices) == {"north", "south", "west", "lonely"}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_test_file_is_read_as_the_training_rows_were(path: Path, tmp_path: Path, ending: str) -> None:
    test = hospitals().iloc[:5].drop(columns=["hospital", "country", "patient"]).assign(ward="never seen")
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
        test.to_parquet(tmp_path / "test.parquet")
    else:
        test[list(reversed(test.columns))].to_csv(tmp_path / "test.csv", index=False)
    data = load(path, test_file=str(tmp_path / f"test{ending}"))
    assert len(data.features) == 200
    assert data.preprocessing is not None
    np.testing.assert_array_equal(data.test_features, data.preprocessing.transform(test, source="it"))
    assert not data.test_features[:, 3:6].any()


def test_all_problems_of_a_table_are_listed_with_those_of_its_target(tmp_path: Path) -> None:
    frame = hospitals()
    frame["dose"] = np.where(np.arange(200) == 7, "?", "1.5")
    frame["note"] = None
    frame["readmitted"] = "no"
    frame.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(InputError) as caught:
        load(tmp_path / "bad.csv", drop=["patiend"])
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("bad.csv' has 4 problems:")
    for line, part in zip(
        lines, ("data.drop = 'patiend'", "1 class(es)", "'dose' has numbers", "'note' has no"), strict=True
    ):
        assert part in line


def test_a_target_of_zeros_and_ones_is_pointed_out(tmp_path: Path) -> None:
    frame = hospitals()
    frame["readmitted"] = (frame["readmitted"] == "yes").astype(int)
    frame.to_csv(tmp_path / "zeros.csv", index=False)
    remark = "the target 'readmitted' has only the values 0, 1, which look like classes"
    assert load(tmp_path / "zeros.csv").remarks[0].startswith(remark)
    for task in ("classification", "regression"):
        data = load(tmp_path / "zeros.csv", task=task)
        assert data.task == task
        assert not any(each.startswith(remark) for each in data.remarks)


def test_the_devices_of_arrays_keep_a_row_too(tmp_path: Path) -> None:
    device = np.array(["a"] * 18 + ["b", "c"])
    np.savez(tmp_path / "my.npz", X=np.arange(40.0).reshape(20, 2), y=np.arange(20.0), device=device)
    for seed in range(8):
        data = load_dataset(str(tmp_path / "my.npz"), rng=np.random.default_rng(seed), test_fraction=0.5)
        assert set(data.devices or ()) == {"a", "b", "c"}
        assert data.preprocessing is None


@pytest.mark.parametrize("option", ["bounds", "categories"])
def test_arrays_have_no_columns_to_describe(tmp_path: Path, option: str) -> None:
    np.savez(tmp_path / "my.npz", X=np.arange(40.0).reshape(20, 2), y=np.arange(20.0))
    with pytest.raises(InputError, match=rf"data\.{option} = .* applies to \.csv and \.parquet files"):
        load_dataset(str(tmp_path / "my.npz"), rng=np.random.default_rng(0), **{option: {"x0": (0, 1)}})  # type: ignore[arg-type]


def test_devices_of_a_federation_still_read_numbers_only(path: Path) -> None:
    with pytest.raises(InputError, match=r"the feature column 'patient' of .* is not numeric or boolean"):
        read_numeric_table(path, Columns(("readmitted",), "hospital"))


def stamps(rows: int = 300) -> pd.DataFrame:
    """Seconds since 1970 within five minutes, and what they decide."""
    seconds = np.random.default_rng(0).permutation(rows)
    frame = pd.DataFrame({"at": 1_700_000_000 + seconds, "level": np.arange(rows) % 7})
    frame["seen"] = pd.to_datetime(frame["at"], unit="s").astype(str)
    frame["late"] = np.where(seconds >= rows // 2, "yes", "no")
    return frame


@pytest.mark.parametrize("column", ["at", "seen"])
def test_times_keep_the_digits_in_which_rows_differ(tmp_path: Path, column: str) -> None:
    frame = stamps()
    other = "seen" if column == "at" else "at"
    frame.to_csv(tmp_path / "stamps.csv", index=False)
    data = load_dataset(
        str(tmp_path / "stamps.csv"), target=("late",), drop=(other,), rng=np.random.default_rng(0), test_fraction=0.2
    )
    place = data.feature_names.index(column)
    rows = np.concatenate([data.features, data.test_features])[:, place]
    assert len(np.unique(rows)) == len(frame)
    assert data.preprocessing is not None
    again = Preprocessing.from_dict(json.loads(json.dumps(data.preprocessing.to_dict())))
    np.testing.assert_array_equal(np.sort(again.transform(frame, source="it")[:, place]), np.sort(rows))


def test_arrays_keep_the_digits_in_which_rows_differ(tmp_path: Path) -> None:
    at = stamps()["at"].to_numpy(np.float64)
    np.savez(tmp_path / "stamps.npz", X=at[:, None], y=stamps()["late"].to_numpy(str))
    data = load_dataset(str(tmp_path / "stamps.npz"), rng=np.random.default_rng(0))
    assert np.unique(np.concatenate([data.features, data.test_features])).tolist() == sorted(at)


def test_a_model_of_times_predicts_from_them(tmp_path: Path) -> None:
    """The seconds alone decide, so that a model which sees them rounded to 128 is no better than guessing."""
    stamps().drop(columns="seen").to_csv(tmp_path / "stamps.csv", index=False)
    settings = {"data.dataset": str(tmp_path / "stamps.csv"), "data.target": ["late"], "data.devices": 4}
    comparison = run(settings | {"schemes": ["fed3r"], "features.map": "none", "coding.noise_variance": 0.0})
    model = comparison.predictor("fed3r")
    assert np.mean(model.predict_frame(stamps()) == stamps()["late"].to_numpy()) > 0.95


def test_columns_that_single_precision_holds_stay_in_it(path: Path) -> None:
    assert load(path).features.dtype == np.float32
