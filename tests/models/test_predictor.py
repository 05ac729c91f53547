from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl._version import __version__
from codedfl.data import Dataset, FeatureMap, fit_feature_map, fit_preprocessing, load_dataset
from codedfl.errors import InputError
from codedfl.experiment import Comparison, RunFolder, load_config, run, summarise
from codedfl.identity import identity
from codedfl.models import Predictor, probabilities
from codedfl.models._file import read_model_file, write_model_file
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.support import refusal_of, small_config


@pytest.fixture(scope="module")
def digits(comparison: Comparison) -> Dataset:
    """The data that the comparison was made with, raw."""
    config = comparison.config
    return load_dataset("digits", test_fraction=config.data.test_fraction, rng=Streams(config.seed).at("split"))


def test_a_saved_model_scores_on_raw_inputs_what_the_summary_says(
    tmp_path: Path, comparison: Comparison, digits: Dataset
) -> None:
    truth = np.array(digits.target_names)[digits.test_targets.argmax(axis=1)]
    for scheme in summarise(comparison)["schemes"]:
        path = tmp_path / "model.safetensors"
        comparison.predictor(scheme["scheme"]).save(path)
        assert float((Predictor.load(path).predict(digits.test_features) == truth).mean()) == scheme["accuracy"]


def test_saving_and_loading_changes_nothing(tmp_path: Path, comparison: Comparison, digits: Dataset) -> None:
    predictor = comparison.predictor("scfl")
    predictor.save(tmp_path / "model.safetensors")
    loaded = Predictor.load(str(tmp_path / "model.safetensors"))
    assert (loaded.task, loaded.target_names) == ("classification", tuple("0123456789"))
    assert np.array_equal(loaded.outputs(digits.test_features), predictor.outputs(digits.test_features))
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_a_regression_predicts_its_outputs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["sum"], frame["difference"] = 10 * frame.a + frame.b, frame.a - frame.c
    frame.to_csv(tmp_path / "own.csv", index=False)
    config = small_config(
        data__dataset=str(tmp_path / "own.csv"), data__target=["sum", "difference"], training__rounds=100
    )
    trained = run(config)
    trained.predictor("scfl").save(tmp_path / "model.safetensors")
    predictor = Predictor.load(tmp_path / "model.safetensors")
    assert predictor.target_names == ("sum", "difference")
    predicted = predictor.predict(frame[["a", "b", "c"]].to_numpy())
    assert predicted.shape == (120, 2)
    assert np.corrcoef(predicted[:, 0], frame["sum"])[0, 1] > 0.95


def test_inputs_of_another_width_are_refused(comparison: Comparison) -> None:
    with pytest.raises(InputError, match="takes 64 columns"):
        comparison.predictor("scfl").predict(np.zeros((2, 63)))


@pytest.mark.parametrize(
    ("weights", "task", "names", "words"),
    [
        (np.zeros((3, 2)), "regression", ("a", "b"), "shape (3, 2) and dtype float64"),
        (np.zeros((30, 2), np.int64), "regression", ("a", "b"), "dtype int64"),
        (np.zeros((30, 2)), "regression", ("a",), "floats of shape (30, 1)"),
        (np.zeros((30, 2)), "ranking", ("a", "b"), "task = 'ranking'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    comparison: Comparison, weights: FloatArray, task: Any, names: tuple[str, ...], words: str
) -> None:
    feature_map = comparison.predictor("scfl").feature_map
    assert words in refusal_of(lambda: Predictor(feature_map, weights, task, names))
    assert "63 input name(s) but takes 64" in refusal_of(
        lambda: Predictor(feature_map, np.zeros((30, 1)), "regression", ("y",), input_names=tuple("x" * 63))
    )


def test_a_model_that_is_not_finite_is_not_saved(comparison: Comparison, tmp_path: Path) -> None:
    predictor = comparison.predictor("scfl")
    broken = replace(predictor, weights=np.full_like(predictor.weights, np.nan))
    with pytest.raises(InputError, match="the weights of the model has 300 value"):
        broken.save(tmp_path / "model.safetensors")


def test_a_run_that_diverged_leaves_no_model(tmp_path: Path) -> None:
    config = small_config(schemes=["fedavg", "scfl"], learning_rate__scale=1e6, training__rounds=40)
    diverged = run(config, folder=RunFolder.create(tmp_path / "run", config))
    assert {result.status for result in diverged.results} == {"diverged"}
    assert not list((tmp_path / "run" / "models").iterdir())


def test_the_provenance_says_how_to_get_the_model_again(
    tmp_path: Path, comparison: Comparison, digits: Dataset
) -> None:
    comparison.predictor("dp-cfl").save(tmp_path / "model.safetensors")
    provenance = dict(Predictor.load(tmp_path / "model.safetensors").provenance)
    assert identity(load_config(overrides=list(flat(provenance["configuration"])))) == provenance["configuration_id"]
    summary = next(s for s in summarise(comparison)["schemes"] if s["scheme"] == "dp-cfl")
    assert provenance["score"] == summary["accuracy"]
    expected = {"codedfl": __version__, "scheme": "dp-cfl", "dataset": "digits", "seed": 0, "rounds": 12}
    expected |= {"status": "completed", "metric": "accuracy", "test_samples": len(digits.test_targets)}
    assert {key: provenance[key] for key in expected} == expected


def flat(sections: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in sections.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def test_folders_of_the_users_own_machine_stay_out_of_the_model(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5, 6, 7, 8], "y": [2.0, 3, 5, 7, 8, 9, 9, 9]})
    frame.to_csv(tmp_path / "own.csv", index=False)
    path = str(tmp_path / "own.csv")
    config = small_config(data__dataset=path, data__target=["y"], data__devices=2, schemes=["fedavg"])
    predictor = run(config).predictor("fedavg")
    assert predictor.provenance["dataset"] == "own.csv"
    assert tmp_path.name not in json.dumps(predictor.provenance)


def test_private_classifiers_have_logits() -> None:
    config = small_config(schemes=["dp-gd", "ssp"], privacy__epsilon=2.0)
    private = run(config)
    assert private.predictor("dp-gd").logits
    assert not private.predictor("ssp").logits


def test_a_table_with_columns_in_another_order(comparison: Comparison, digits: Dataset) -> None:
    names = tuple(f"pixel {i}" for i in range(64))
    predictor = replace(comparison.predictor("scfl"), input_names=names)
    frame = pd.DataFrame(digits.test_features, columns=list(names))[list(reversed(names))].assign(doctor="Ann")
    np.testing.assert_array_equal(predictor.predict_frame(frame), predictor.predict(digits.test_features))
    with pytest.raises(
        InputError, match=r"^'new.csv' lacks 2 column\(s\) that the model reads: pixel 3, pixel 5; it has"
    ):
        predictor.predict_frame(frame.drop(columns=["pixel 5", "pixel 3"]), source="'new.csv'")
    with pytest.raises(InputError, match=r"^the table has column\(s\) that are not numbers: pixel 7;"):
        predictor.predict_frame(frame.assign(**{"pixel 7": "dark"}))
    with pytest.raises(InputError, match="trained on arrays without names"):
        comparison.predictor("scfl").predict_frame(frame)


def test_outputs_that_overflow_are_refused() -> None:
    unchanged = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=1)
    for dtype, large in ((np.float32, 1e30), (np.float64, 1e300)):
        model = Predictor(unchanged, np.array([[large]], dtype), "regression", ("y",))
        with pytest.raises(InputError, match="outputs overflow"):
            model.predict(np.array([[large]]))


def test_the_repr_is_one_short_line(comparison: Comparison) -> None:
    expected = "Predictor(classification, inputs=64, classes=10, scheme='scfl')"
    assert repr(comparison.predictor("scfl")) == expected


def linear(weights: list[float], **options: Any) -> Predictor:
    fitted = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=len(weights))
    return Predictor(fitted, np.array(weights)[:, None], "regression", ("y",), **options)


def test_frames_of_either_kind_are_read_by_name() -> None:
    values = {"b": [1, 2, 3], "name": ["x", "y", None], "a": [10.5, 20.5, 30.5], "more": [{"p": 1}, {"p": 2}, {"p": 3}]}
    model = linear([1.0, 100.0], input_names=("a", "b"))
    polars_frame = polars.DataFrame(values)
    for frame in (pd.DataFrame(values), polars_frame, polars_frame.lazy()):
        for predict in (model.predict, model.predict_frame):
            assert predict(frame).tolist() == [110.5, 220.5, 330.5]
    assert model.predict([[10.5, 1]]).tolist() == [110.5]
    with pytest.raises(
        InputError, match=r"^the table lacks 1 column\(s\) that the model reads: b; it has name, a, more\.$"
    ):
        model.predict(polars_frame.drop("b"))
    with pytest.raises(InputError, match=r"^the table has 1 value\(s\) that are NaN or infinite"):
        model.predict(polars_frame.with_columns(b=polars.Series([1, None, 3])))
    with pytest.raises(InputError, match="several columns of the same name: a;"):
        model.predict(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]))
    with pytest.raises(InputError, match="trained on arrays without names"):
        linear([1.0]).predict(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(InputError, match="the raw inputs have the dtype object: give numbers"):
        model.predict(np.array([["x", 1]], dtype=object))
    with pytest.raises(InputError, match="the table is not a table: give a frame of pandas or polars"):
        model.predict_frame(np.zeros((2, 2)))  # type: ignore[arg-type]


def test_polars_frames_reach_the_preprocessing() -> None:
    frame = polars.DataFrame({"ward": ["a", None, "b"], "age": [40, 50, None], "ill": [True, None, False]})
    preprocessing = fit_preprocessing(pd.DataFrame({"age": [40.0, 60.0], "ward": ["a", "b"], "ill": [True, False]}))
    width = len(preprocessing.output_names)
    model = linear(list(10.0 ** np.arange(width)), preprocessing=preprocessing, input_names=preprocessing.input_names)
    same = pd.DataFrame({"ward": ["a", None, "b"], "age": [40, 50, None], "ill": [True, None, False]})
    assert model.predict(frame).tolist() == model.predict(same).tolist()


def test_a_model_computes_in_its_own_precision() -> None:
    raw = 1.7e9 + np.arange(50.0)[:, None]
    double = fit_feature_map(raw, kind="none", standardize=True, rng=np.random.default_rng(0))
    found = Predictor(double, np.ones((1, 1)), "regression", ("y",)).predict(raw)
    centred = np.arange(50.0) - 24.5
    np.testing.assert_allclose(found, centred / np.abs(centred).max(), rtol=1e-6)
    single = fit_feature_map(raw.astype(np.float32), kind="none", standardize=True, rng=np.random.default_rng(0))
    model = Predictor(single, np.ones((1, 1), np.float32), "regression", ("y",))
    # Training saw rounded inputs, so prediction does too.
    assert model.precision == np.float32
    np.testing.assert_array_equal(model.predict(raw), model.predict(raw.astype(np.float32)))


@pytest.mark.parametrize(
    ("names", "class_type", "classes"),
    [
        (("-1", "30"), "int64", [-1, 30]),
        (("0", "1"), "float32", [0.0, 1.0]),
        (("False", "True"), "bool", [False, True]),
        (("0", "no"), "str", ["0", "no"]),
    ],
)
def test_classes_keep_their_type(tmp_path: Path, names: tuple[str, ...], class_type: str, classes: list[Any]) -> None:
    fitted = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=2)
    Predictor(fitted, np.eye(2), "classification", names, class_type=class_type).save(tmp_path / "m.safetensors")
    predicted = Predictor.load(tmp_path / "m.safetensors").predict(np.eye(2))
    assert predicted.tolist() == classes
    assert predicted.dtype == np.array(classes, class_type).dtype


@pytest.mark.parametrize("class_type", ["int64", "bool", "object", "datetime64", None, 3])
def test_a_type_that_does_not_fit_the_classes_is_refused(class_type: Any) -> None:
    fitted = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=2)
    with pytest.raises(InputError, match="does not fit its classes"):
        Predictor(fitted, np.eye(2), "classification", ("no", "yes"), class_type=class_type)


def test_files_from_before_classes_had_a_type_have_text(tmp_path: Path) -> None:
    fitted = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=2)
    Predictor(fitted, np.eye(2), "classification", ("0", "1"), class_type="int64").save(tmp_path / "m.safetensors")
    tensors, description = read_model_file(tmp_path / "m.safetensors")
    del description["class_type"]
    write_model_file(tmp_path / "old.safetensors", tensors, description)
    assert Predictor.load(tmp_path / "old.safetensors").predict(np.eye(2)).tolist() == ["0", "1"]


@given(arrays(np.float32, (5, 4), elements=st.floats(-1e6, 1e6, width=32)))
def test_probabilities_are_a_distribution_that_keeps_the_order_of_the_classes(outputs: FloatArray) -> None:
    found = probabilities(outputs)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    for row, own in zip(outputs, found, strict=True):
        assert (np.diff(own[np.argsort(row)]) >= 0).all()


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_least_squares_outputs_near_equal_chances_are_probabilities_already(classes: int) -> None:
    # The second-order term of softmax(k z) around equal chances is at most k / 2 times the sum of squares, here below k^2 h^2.
    shift = np.linspace(-1, 1, classes) * 1e-4
    outputs = (1 / classes + shift)[None]
    np.testing.assert_allclose(probabilities(outputs), outputs, rtol=0, atol=classes**2 * 1e-8)


def test_probabilities_of_logits_are_their_softmax() -> None:
    logits = np.array([[0.0, np.log(3)], [1000.0, 0.0]], np.float32)
    np.testing.assert_allclose(probabilities(logits, logits=True), [[0.25, 0.75], [1.0, 0.0]], rtol=1e-7)
