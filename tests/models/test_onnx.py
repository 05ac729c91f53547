from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

from codedfl.data import FeatureMap, Preprocessing, Task, fit_feature_map, fit_preprocessing
from codedfl.errors import InputError
from codedfl.models import Predictor, _onnx, export_onnx
from codedfl.typing import FloatArray

COSINE_ERROR = 4
"""Largest error of a cosine, whoever computes it, in relative errors of one operation."""


def rounding_bound(model: Predictor, raw: FloatArray) -> FloatArray:
    """Bound the error of an evaluation, in any order of summation, by forward analysis in float64."""
    unit = float(np.finfo(model.precision).eps) / 2  # relative error of one operation

    def gamma(operations: int) -> float:
        return operations * unit / (1 - operations * unit)

    fitted, z = model.feature_map, raw.astype(np.float64)
    error = np.zeros_like(z)
    if fitted.input_mean is not None and fitted.input_scale is not None:
        z = (z - fitted.input_mean) / fitted.input_scale
        error = gamma(2) * np.abs(z)
    if fitted.frequencies is not None and fitted.offsets is not None:
        size = np.abs(z) @ np.abs(fitted.frequencies) + np.abs(fitted.offsets)
        error = error @ np.abs(fitted.frequencies) * (1 + gamma(raw.shape[1] + 1)) + gamma(raw.shape[1] + 1) * size
        amplitude = math.sqrt(2 / len(fitted.offsets))
        z = amplitude * np.cos(z @ fitted.frequencies + fitted.offsets)
        error = amplitude * (error + COSINE_ERROR * unit) * (1 + gamma(2)) + gamma(2) * np.abs(z)
    z, error = z / fitted.output_scale, error / fitted.output_scale * (1 + unit)
    error += unit * np.abs(z)
    if fitted.intercept:
        z, error = np.pad(z, ((0, 0), (0, 1)), constant_values=1), np.pad(error, ((0, 0), (0, 1)))
    weights = np.abs(model.weights)
    total: FloatArray = error @ weights + gamma(fitted.dimension + 2) * ((np.abs(z) + error) @ weights)
    return total


def session(path: Path) -> onnxruntime.InferenceSession:
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def assert_agrees(model: Predictor, raw: FloatArray, found: list[Any]) -> None:
    expected, bound = model.outputs(raw), 2 * rounding_bound(model, raw)
    assert bound.max() < 1e-3 * np.abs(expected).max(), "a bound this wide would show nothing"
    assert (np.abs(found[0] - expected) <= bound).all()
    if model.task == "classification":
        assert found[1].tolist() == model.labels(found[0]).tolist()


def made_up(kind: Any, task: Task, raw: FloatArray, **options: Any) -> Predictor:
    rng = np.random.default_rng(1)
    feature_map = fit_feature_map(raw, kind=kind, dimension=40, rng=rng, **options)
    names = ("no", "yes", 'über, "quoted"') if task == "classification" else ("a", "b", "c")
    return Predictor(feature_map, rng.normal(size=(feature_map.dimension, 3)).astype(raw.dtype), task, names)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", ["rff", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_goes_in_and_the_outputs_come_out(
    tmp_path: Path, dtype: str, kind: str, intercept: bool, standardize: bool, task: Task
) -> None:
    raw = np.random.default_rng(0).normal(3, 2, size=(50, 7)).astype(dtype)
    model = made_up(kind, task, raw, standardize=standardize, intercept=intercept, scaling="column")
    assert export_onnx(model, tmp_path / "m.onnx") == [{"input": "inputs", "columns": [], "meaning": dtype}]
    assert_agrees(model, raw, session(tmp_path / "m.onnx").run(None, {"inputs": raw}))
    one = session(tmp_path / "m.onnx").run(None, {"inputs": raw[:1]})
    assert_agrees(model, raw[:1], one)


def test_digits_that_single_precision_cannot_hold(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).uniform(0, 100, size=(50, 2)) * [1.0, 1e9] + np.array([1.7e9, 1.7e18])
    assert np.unique(raw[:, 0].astype(np.float32)).size <= 2
    model = made_up("none", "regression", raw, standardize=True, intercept=True)
    export_onnx(model, tmp_path / "m.onnx")
    assert_agrees(model, raw, session(tmp_path / "m.onnx").run(None, {"inputs": raw}))


@pytest.mark.parametrize(
    ("names", "class_type"), [(("-1", "7", "30"), "int64"), (("0", "1", "2"), "float32"), (("False", "True"), "bool")]
)
def test_classes_that_are_numbers_come_out_as_numbers(tmp_path: Path, names: tuple[str, ...], class_type: str) -> None:
    raw = np.random.default_rng(0).normal(size=(50, 3))
    weights = np.eye(3)[:, : len(names)]
    unchanged = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=3)
    model = Predictor(unchanged, weights, "classification", names, class_type=class_type)
    export_onnx(model, tmp_path / "m.onnx")
    found = session(tmp_path / "m.onnx").run(None, {"inputs": raw})
    assert found[1].dtype == class_type
    assert_agrees(model, raw, found)


def test_a_numeric_table_is_a_matrix_whose_gaps_are_filled(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"]).astype(np.float32)
    frame["c"] = frame["c"] > 0
    frame.loc[::7, "a"] = np.nan
    preprocessing = fit_preprocessing(frame)
    inputs = preprocessing.transform(frame, source="")
    model = replace(made_up("none", "regression", inputs), preprocessing=preprocessing, input_names=("a", "b", "c"))
    described = export_onnx(model, tmp_path / "m.onnx")
    assert described == [{"input": "inputs", "columns": ["a", "b", "c"], "meaning": "float32; NaN if missing"}]
    assert_agrees(model, inputs, session(tmp_path / "m.onnx").run(None, {"inputs": frame.to_numpy(np.float32)}))


def test_a_numeric_table_of_times_goes_in_in_double_precision(tmp_path: Path) -> None:
    frame = pd.DataFrame({"at": 1.7e9 + np.arange(60.0), "level": np.arange(60.0) % 7})
    frame.loc[::9, "at"] = np.nan
    preprocessing = fit_preprocessing(frame)
    inputs = preprocessing.transform(frame, source="")
    model = made_up("none", "regression", inputs, standardize=True)
    model = replace(model, preprocessing=preprocessing, input_names=("at", "level"))
    described = export_onnx(model, tmp_path / "m.onnx")
    assert described == [{"input": "inputs", "columns": ["at", "level"], "meaning": "float64; NaN if missing"}]
    assert_agrees(model, inputs, session(tmp_path / "m.onnx").run(None, {"inputs": frame.to_numpy()}))


@pytest.fixture(scope="module")
def patients() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 95, 80).astype(np.float64),
            "label": rng.choice(["surgery", "intensive care", "maternity"], 80),
            "admitted on": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, 80), "D"),
            "smoker": rng.random(80) < 0.3,
            "outputs": rng.normal(1e6, 0.5, 80),
        }
    )
    frame = frame.astype({"smoker": object, "label": object})
    for column, start in (("age", 3), ("label", 4), ("admitted on", 5), ("smoker", 6)):
        frame.loc[start::9, column] = None
    return frame


@pytest.fixture(scope="module")
def preprocessing(patients: pd.DataFrame) -> Preprocessing:
    # Single precision cannot hold values that are this close together: scaling has to happen in double precision.
    return fit_preprocessing(patients, bounds={"age": (20, 80), "outputs": (1e6 - 1, 1e6 + 1)})


def test_a_table_with_categories_and_dates_goes_in_column_by_column(
    tmp_path: Path, patients: pd.DataFrame, preprocessing: Preprocessing
) -> None:
    inputs = preprocessing.transform(patients, source="")
    model = made_up("rff", "classification", inputs, standardize=True)
    model = replace(model, preprocessing=preprocessing, input_names=preprocessing.input_names)
    described = export_onnx(model, tmp_path / "m.onnx")
    assert [item["columns"] for item in described] == [[name] for name in preprocessing.input_names]
    strange = patients.copy()
    strange.loc[0, "label"] = "never seen"
    feeds = {
        "age": strange["age"].to_numpy(),
        "label (column)": strange["label"].fillna("").to_numpy(object),
        "admitted on": ((strange["admitted on"] - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1)).to_numpy(),
        "smoker": strange["smoker"].astype(float).to_numpy(),
        "outputs (column)": strange["outputs"].to_numpy(),
    }
    assert {item["input"] for item in described} == set(feeds)
    found = session(tmp_path / "m.onnx").run(None, {name: values[:, None] for name, values in feeds.items()})
    assert_agrees(model, preprocessing.transform(strange, source=""), found)


def test_the_metadata_say_what_the_model_is(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    model = replace(
        made_up("none", "classification", raw),
        input_names=("x", "y"),
        privacy={"covers": "everything", "epsilon": 2.0},
        provenance={"scheme": "ccfl"},
    )
    export_onnx(model, tmp_path / "m.onnx")
    metadata = session(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map
    values = {name.removeprefix("codedfl."): json.loads(text) for name, text in metadata.items()}
    assert values["privacy"] == {"covers": "everything", "epsilon": 2.0}
    assert values["provenance"] == {"scheme": "ccfl"}
    assert values["inputs"][0]["columns"] == ["x", "y"]
    assert values["target_names"] == list(model.target_names)
    first = (tmp_path / "m.onnx").read_bytes()
    export_onnx(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == first


def test_what_stands_in_the_way_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=1)
    model = Predictor(unchanged, np.ones((1, 1)), "regression", ("y",))
    with monkeypatch.context() as patch:
        patch.setattr(_onnx, "LARGEST_BYTES", 8)
        with pytest.raises(InputError, match=r"more than an ONNX file can hold: lower features\.dimension"):
            export_onnx(model, tmp_path / "m.onnx")
    monkeypatch.setattr(_onnx, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r'needs the package onnx: run pip install "codedfl\[onnx\]"\.$'):
        export_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
