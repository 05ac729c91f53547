"""From a table to a model, and from the model to predictions, scores and other programs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from codedfl.cli import main
from codedfl.estimators import CodedClassifier
from codedfl.models import Predictor, _onnx
from tests.support import Cli


def patients(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "hospital": rng.choice(["north", "east", "[south]"], rows),
            "age": rng.integers(18, 95, rows).astype(float),
            "ward": rng.choice(["surgery", "maternity", "intensive care"], rows),
            "admitted": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), "D"),
        }
    )
    score = 0.06 * (frame["age"] - 55) + 1.5 * (frame["ward"] == "intensive care") + rng.normal(0, 0.7, rows)
    frame["readmitted"] = np.where(score > 0.5, "yes", "no")
    frame["days"] = score + 10
    frame.loc[::11, "age"] = np.nan
    return frame


def train(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a comparison by the real command, and return its summary."""
    quick = ("--rounds", "15", "--set", "learning_rate.scale=0.5", "--set", "data.test_file=test.csv", "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["codedfl", "run", "--dataset", "train.csv", *quick, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    summary = json.loads((folder / arguments[-1] / "summary.json").read_text())
    assert isinstance(summary, dict)
    return summary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hospitals")
    frame = patients(300)
    frame[:200].to_csv(path / "train.csv", index=False, sep=";")
    frame[200:].to_csv(path / "test.csv", index=False)
    return path


@pytest.fixture(scope="module")
def classified(folder: Path) -> dict[str, Any]:
    roles = ("--target", "readmitted", "--device-column", "hospital", "--drop", "days")
    return train(folder, *roles, "--scheme", "fedavg", "--scheme", "ccfl", "--out", "classes")


@pytest.fixture(scope="module")
def regressed(folder: Path) -> dict[str, Any]:
    return train(folder, "--target", "days", "--drop", "readmitted", "--scheme", "ccfl", "--out", "numbers")


@pytest.fixture(autouse=True)
def in_folder(folder: Path, in_tmp_path: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.chdir(folder)


def test_a_run_ends_in_models_that_score_what_the_run_said(cli: Cli, classified: dict[str, Any]) -> None:
    truth = patients(300)[200:]
    for scheme in classified["schemes"]:
        model = f"classes/models/{scheme['scheme']}.safetensors"
        found = json.loads(cli("evaluate", model, "test.csv", "--json").out)
        assert found["scores"]["accuracy"] == scheme["accuracy"]
        assert found["rows"] == 100
        assert {device["name"] for device in found["devices"]} == {"north", "east", "[south]"}
        predicted = pd.read_csv(io.StringIO(cli("predict", model, "test.csv").out))
        assert list(predicted.columns) == ["prediction"]
        hits = predicted["prediction"].to_numpy() == truth["readmitted"].to_numpy()
        assert hits.mean() == scheme["accuracy"]
        assert found["scores"]["accuracy"] > found["baseline"]["accuracy"]


def test_the_model_of_a_regression_scores_what_the_run_said(cli: Cli, regressed: dict[str, Any]) -> None:
    model = "numbers/models/ccfl.safetensors"
    found = json.loads(cli("evaluate", model, "test.csv", "--json").out)
    # The run multiplies with the models of all schemes at once, which may round differently.
    assert found["scores"]["r2"] == pytest.approx(regressed["schemes"][0]["r2"], rel=1e-5)
    predicted = pd.read_csv(io.StringIO(cli("predict", model, "test.csv").out))["prediction"]
    error = predicted.to_numpy() - patients(300)["days"][200:].to_numpy()
    assert found["scores"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    shown = cli("evaluate", model, "test.csv")
    assert f"R2 {found['scores']['r2']:.4f}; the mean of these rows has 0\n" in shown.out
    assert "output  rows" in shown.out


def test_columns_may_come_in_any_order_and_more_of_them(cli: Cli, classified: dict[str, Any]) -> None:  # noqa: ARG001
    model = "classes/models/ccfl.safetensors"
    expected = cli("predict", model, "test.csv").out
    reordered = patients(300)[200:].iloc[:, ::-1].assign(comment="[b]new[/b]").drop(columns=["readmitted", "hospital"])
    reordered.to_csv("reordered.csv", index=False, sep="\t")
    assert cli("predict", model, "reordered.csv").out == expected
    assert cli("predict", model, "reordered.csv", "--out", "predicted.csv").out == ""
    assert Path("predicted.csv").read_text() == expected


def test_outputs_and_probabilities_come_on_demand(cli: Cli, classified: dict[str, Any]) -> None:  # noqa: ARG001
    model = "classes/models/ccfl.safetensors"
    frame = pd.read_csv(io.StringIO(cli("predict", model, "test.csv", "--outputs").out), dtype={"prediction": str})
    assert list(frame.columns) == ["prediction", "output:no", "output:yes", "probability:no", "probability:yes"]
    loaded = Predictor.load(model)
    outputs = loaded.outputs(loaded.inputs_of(patients(300)[200:]))
    # Numbers are written so that they read back exactly.
    np.testing.assert_array_equal(frame[["output:no", "output:yes"]].to_numpy(np.float32), outputs)
    larger = np.where(frame["probability:yes"] > frame["probability:no"], "yes", "no")
    np.testing.assert_array_equal(larger, frame["prediction"])
    values = json.loads(cli("predict", model, "test.csv", "--outputs", "--json").out)
    assert values["rows"] == len(values["predictions"]) == len(values["probabilities"]) == 100
    assert values["predictions"] == frame["prediction"].tolist()


def test_a_person_reads_scores_by_class_and_device(cli: Cli, classified: dict[str, Any]) -> None:
    shown = cli("evaluate", "classes/models/ccfl.safetensors", "test.csv")
    assert shown.code == 0, shown.err
    accuracy = classified["schemes"][1]["accuracy"]
    assert "model of ccfl on train.csv: 100 rows of test.csv\n" in shown.out
    assert f"accuracy {accuracy:.4f}; always answering " in shown.out
    assert f"in training it had accuracy {accuracy:.4f} on its own 100 test rows\n" in shown.out
    assert "[south]" in shown.out
    by_ward = cli("evaluate", "classes/models/ccfl.safetensors", "test.csv", "--device-column", "ward")
    assert "intensive care" in by_ward.out


def test_a_model_that_is_worse_than_a_constant_is_told_so(cli: Cli, classified: dict[str, Any]) -> None:  # noqa: ARG001
    frame = patients(300)[200:]
    frame["readmitted"] = np.where(frame["readmitted"] == "yes", "no", "yes")
    frame.to_csv("reversed.csv", index=False)
    shown = cli("evaluate", "classes/models/ccfl.safetensors", "reversed.csv")
    assert "note: the model is no better than that constant answer on these rows\n" in shown.out


def test_other_programs_compute_the_same(cli: Cli, classified: dict[str, Any]) -> None:  # noqa: ARG001
    model = "classes/models/ccfl.safetensors"
    shown = cli("export", model, "--onnx", "model.onnx")
    assert shown.code == 0, shown.err
    assert "days since 2000-01-01" in shown.out
    frame = patients(300)[200:]
    days = (frame["admitted"] - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1)
    feeds = {"age": frame["age"], "ward": frame["ward"].astype(object), "admitted": days}
    (label,) = onnxruntime.InferenceSession("model.onnx").run(
        ["label"], {name: column.to_numpy()[:, None] for name, column in feeds.items()}
    )
    assert label.tolist() == json.loads(cli("predict", model, "test.csv", "--json").out)["predictions"]
    described = json.loads(cli("export", model, "--onnx", "model.onnx", "--json").out)
    assert [item["input"] for item in described["inputs"]] == ["age", "ward", "admitted"]


def test_a_model_of_an_estimator_keeps_the_type_of_its_classes(cli: Cli) -> None:
    frame = patients(60)[["age"]].fillna(50.0)
    ill = (frame["age"] > 60).astype(int).to_numpy()
    CodedClassifier("fed3r", random_state=0).fit(frame, ill).predictor().save("estimator.safetensors")
    frame.assign(note="", ill=ill).to_csv("ill.csv", index=False)
    cli("evaluate", "estimator.safetensors", "ill.csv").assert_refused(
        "--target is not given", "name the target column of 'ill.csv', out of (from the last) ill, note."
    )
    assert (
        json.loads(cli("evaluate", "estimator.safetensors", "ill.csv", "--target", "ill", "--json").out)["rows"] == 60
    )
    predictions = json.loads(cli("predict", "estimator.safetensors", "ill.csv", "--json").out)["predictions"]
    assert set(predictions) == {0, 1}
    assert cli("predict", "estimator.safetensors", "ill.csv").out.split() == ["prediction", *map(str, predictions)]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_what_does_not_fit_is_refused_in_one_sentence(
    cli: Cli,
    classified: dict[str, Any],  # noqa: ARG001
    command: str,
) -> None:
    model = "classes/models/ccfl.safetensors"
    patients(5)[["hospital", "readmitted"]].to_csv("few.csv", index=False)
    Path("odd.safetensors").write_bytes(Path(model).read_bytes()[:-1])
    cli(command, model, "few.csv").assert_refused("'age', 'ward', 'admitted'")
    cli(command, model, "nowhere.csv").assert_refused("'nowhere.csv' is not a file")
    cli(command, "odd.safetensors", "test.csv").assert_refused("'odd.safetensors' cannot be read as a model of codedfl")
    cli(command, "test.csv", "test.csv").assert_refused("'test.csv' is not a model of codedfl")


def test_another_target_is_scored_with_a_note(cli: Cli, classified: dict[str, Any]) -> None:  # noqa: ARG001
    frame = pd.read_csv("test.csv")
    frame.assign(came_back=frame["readmitted"]).to_csv("renamed.csv", index=False)
    model = "classes/models/ccfl.safetensors"
    other = cli("evaluate", model, "renamed.csv", "--target", "came_back", "--json")
    assert other.err == "note: the model was trained to predict 'readmitted', and is scored on 'came_back'.\n"
    same = cli("evaluate", model, "renamed.csv", "--target", "readmitted", "--json")
    assert (same.err, json.loads(same.out)) == ("", json.loads(other.out))


def test_bad_options_are_refused_before_work_starts(
    cli: Cli,
    classified: dict[str, Any],  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = "classes/models/ccfl.safetensors"
    cli("predict", model, "test.csv", "--out", "nowhere/x.csv").assert_refused(
        "--out = nowhere/x.csv cannot be written"
    )
    cli("export", model, "--onnx", ".").assert_refused("--onnx = . cannot be written (it is a folder)")
    cli("evaluate", model, "test.csv", "--target", "days").assert_refused("'days'", "not whole")
    cli("evaluate", model, "test.csv", "--target", "readmited").assert_refused("Did you mean 'readmitted'?")
    cli("export", model).assert_refused("Missing option '--onnx'", "See codedfl export --help")
    cli("predict", model).assert_refused("Missing argument 'DATA'")
    monkeypatch.setattr(_onnx, "find_spec", lambda _: None)
    cli("export", model, "--onnx", "no.onnx").assert_refused('run pip install "codedfl[onnx]"')
    assert not Path("no.onnx").exists()
