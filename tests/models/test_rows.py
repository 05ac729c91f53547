from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.data import FeatureMap, fit_preprocessing
from codedfl.errors import InputError
from codedfl.models import Predictor, read_inputs, read_labelled

FRAME = pd.DataFrame(
    {
        "age": [30.0, 40.0, np.nan, 60.0],
        "ward": ["a", "b", "a", "b"],
        "site": ["x", "x", "y", "y"],
        "ill": ["no", "yes", "yes", "no"],
        "dose": [1.0, 2.0, 3.0, 4.0],
    }
)


def unchanged(inputs: int) -> FeatureMap:
    return FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=inputs)


@pytest.fixture(scope="module")
def classifier() -> Predictor:
    preprocessing = fit_preprocessing(FRAME[["age", "ward"]])
    weights = np.arange(6.0).reshape(3, 2)
    names = preprocessing.input_names
    return Predictor(
        unchanged(3),
        weights,
        "classification",
        ("no", "yes"),
        preprocessing=preprocessing,
        input_names=names,
        target_columns=("ill",),
        device_column="site",
    )


@pytest.fixture(scope="module")
def of_arrays() -> Predictor:
    return Predictor(unchanged(2), np.ones((2, 2)), "regression", ("y_0", "y_1"))


def write(path: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False, sep=";")
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_found_by_name(tmp_path: Path, classifier: Predictor, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}", FRAME.iloc[:, ::-1])
    expected = [[30, 1, 0], [40, 0, 1], [40, 1, 0], [60, 0, 1]]
    assert read_inputs(classifier, path).tolist() == expected
    rows = read_labelled(classifier, path)
    assert rows.inputs.tolist() == expected
    assert rows.targets.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    assert rows.devices == ("x", "x", "y", "y")


def test_other_columns_can_hold_truth_and_devices(tmp_path: Path, classifier: Predictor) -> None:
    path = write(tmp_path / "rows.csv", FRAME.rename(columns={"ill": "truth", "site": "clinic"}))
    assert read_labelled(classifier, path, target=["truth"]).devices is None
    assert read_labelled(classifier, path, target=["truth"], device_column="clinic").devices == ("x", "x", "y", "y")


def test_arrays_have_the_columns_of_the_model(tmp_path: Path, of_arrays: Predictor) -> None:
    X = np.array([[1, 2], [3, 4]])
    np.savez(tmp_path / "rows.npz", X=X, y=X, device=["a", "b"])
    assert read_inputs(of_arrays, tmp_path / "rows.npz").tolist() == X.tolist()
    rows = read_labelled(of_arrays, tmp_path / "rows.npz")
    assert rows.targets.tolist() == X.tolist()
    assert rows.devices == ("a", "b")
    numeric = fit_preprocessing(pd.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0]}), bounds={"b": (0, 8)})
    model = replace(of_arrays, preprocessing=numeric, input_names=("a", "b"))
    assert read_inputs(model, tmp_path / "rows.npz").tolist() == [[1, -0.5], [3, 0]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drop": ["age", "ward"]}, "has no column 'age', 'ward'"),
        ({"drop": ["ill"]}, "has no column 'ill', only: age, ward, site, dose."),
        ({"ill": ["no", "maybe", "no", "perhaps"]}, "has the class(es) maybe, perhaps"),
        ({"ill": ["no", None, "no", None]}, "column 'ill' of 'rows.csv' has 2 missing value(s): fill them in"),
        ({"site": ["x", None, "y", "y"]}, "column 'site' of 'rows.csv' has 1 missing value(s)"),
        ({"age": ["old", "1", "2", "3"]}, "column 'age' has 1 value(s) that are not numbers ('old')"),
        ({"target": ["ill", "dose"]}, "the target has 2 column(s) in 'rows.csv', but the model predicts 1: name ill."),
        ({"device_column": "clinic"}, "has no column 'clinic'"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classifier: Predictor, changes: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {name: changes.pop(name) for name in ("target", "device_column") if name in changes}
    frame = FRAME.drop(columns=changes.pop("drop", [])).assign(**changes)
    path = write(Path("rows.csv"), frame)
    with pytest.raises(InputError) as refused:
        read_labelled(classifier, path, **options)
    assert words in str(refused.value)


def test_files_of_other_kinds_are_refused(tmp_path: Path, classifier: Predictor, of_arrays: Predictor) -> None:
    np.savez(tmp_path / "wide.npz", X=np.zeros((2, 3)))
    np.savez(tmp_path / "text.npz", X=np.array([["a", "b"]]))
    (tmp_path / "rows.txt").write_text("age,ward\n")
    write(tmp_path / "rows.csv", FRAME)
    cases = [
        (classifier, "wide.npz", "takes numbers of shape (n, 2), with the columns age, ward."),
        (of_arrays, "wide.npz", "has shape (2, 3) and dtype float64, but the model takes numbers of shape (n, 2)."),
        (of_arrays, "text.npz", "but the model takes numbers of shape (n, 2)."),
        (of_arrays, "rows.csv", "the model was trained on arrays without names"),
        (of_arrays, "rows.txt", "is not a table: give a file that ends in .csv, .parquet or .npz."),
        (of_arrays, "nowhere.csv", "is not a file"),
    ]
    for model, name, words in cases:
        with pytest.raises(InputError) as refused:
            read_inputs(model, tmp_path / name)
        assert words in str(refused.value)


def test_a_target_without_a_name_is_asked_for(tmp_path: Path, classifier: Predictor) -> None:
    path = write(tmp_path / "rows.csv", FRAME)
    with pytest.raises(InputError, match=r"^target is not given.*: name the target column of .* dose, ill, site\.$"):
        read_labelled(replace(classifier, target_columns=()), path)


def test_an_array_of_another_name_is_still_the_target(tmp_path: Path, of_arrays: Predictor) -> None:
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    named = replace(of_arrays, target_columns=("left", "right"))
    np.savez(tmp_path / "rows.npz", X=X, y=X)
    assert read_labelled(named, tmp_path / "rows.npz").targets.tolist() == X.tolist()
    with pytest.raises(InputError, match="has no array 'truth'"):
        read_labelled(named, tmp_path / "rows.npz", target=["truth"])


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_digits_that_single_precision_cannot_hold_are_read(tmp_path: Path, ending: str) -> None:
    model = Predictor(unchanged(1), np.ones((1, 1)), "regression", ("y",), input_names=("x",), target_columns=("y",))
    x, y = 1.7e9 + np.arange(3.0), 1e8 + np.arange(3.0)
    path = tmp_path / f"rows.{ending}"
    np.savez(path, X=x[:, None], y=y) if ending == "npz" else write(path, pd.DataFrame({"x": x, "y": y}))
    rows = read_labelled(model, path)
    assert rows.inputs.ravel().tolist() == x.tolist()
    assert rows.targets.ravel().tolist() == y.tolist()
    single = replace(model, weights=np.ones((1, 1), np.float32))
    assert read_labelled(single, path).targets.dtype == np.float32
