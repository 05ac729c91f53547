from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codedfl.data import Dataset, load_dataset
from codedfl.errors import InputError
from codedfl.experiment import Comparison, Predictor, run, summarise
from codedfl.streams import Streams
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
        path = tmp_path / "model.npz"
        comparison.predictor(scheme["scheme"]).save(path)
        assert float((Predictor.load(path).predict(digits.test_features) == truth).mean()) == scheme["accuracy"]


def test_saving_and_loading_changes_nothing(tmp_path: Path, comparison: Comparison, digits: Dataset) -> None:
    predictor = comparison.predictor("scfl")
    predictor.save(tmp_path / "model.npz")
    loaded = Predictor.load(str(tmp_path / "model.npz"))
    assert (loaded.task, loaded.target_names) == ("classification", tuple("0123456789"))
    assert np.array_equal(loaded.outputs(digits.test_features), predictor.outputs(digits.test_features))
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def test_a_regression_predicts_its_outputs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["sum"], frame["difference"] = 10 * frame.a + frame.b, frame.a - frame.c
    frame.to_csv(tmp_path / "own.csv", index=False)
    config = small_config(
        data__dataset=str(tmp_path / "own.csv"), data__target=["sum", "difference"], training__rounds=100
    )
    trained = run(config)
    trained.predictor("scfl").save(tmp_path / "model.npz")
    predictor = Predictor.load(tmp_path / "model.npz")
    assert predictor.target_names == ("sum", "difference")
    predicted = predictor.predict(frame[["a", "b", "c"]].to_numpy())
    assert predicted.shape == (120, 2)
    assert np.corrcoef(predicted[:, 0], frame["sum"])[0, 1] > 0.95


def test_inputs_of_another_width_are_refused(comparison: Comparison) -> None:
    with pytest.raises(InputError, match="takes 64 columns"):
        comparison.predictor("scfl").predict(np.zeros((2, 63)))


def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, comparison: Comparison) -> None:
    path = tmp_path / "model.npz"
    comparison.predictor("scfl").save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damages = [b"", b"garbage", b"PK\x03\x04", *(whole[:length] for length in range(0, len(whole), len(whole) // 12))]
    for _ in range(150):
        damaged = bytearray(whole)
        for position in rng.integers(len(whole), size=8):
            damaged[position] = rng.integers(256)
        damages.append(bytes(damaged))
    for content in damages[:-150]:
        path.write_bytes(content)
        assert refusal_of(lambda: Predictor.load(path)).startswith(f"{path} is not a model saved by codedfl (")
    for content in damages[-150:]:  # some of these touch nothing that is read
        path.write_bytes(content)
        assert len(refusal_of(lambda: Predictor.load(path)).splitlines()) <= 1


def test_another_kind_of_file_is_refused(tmp_path: Path, comparison: Comparison) -> None:
    predictor = comparison.predictor("scfl")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    Predictor(predictor.feature_map, np.zeros((3, 2)), "regression", ("a", "b")).save(tmp_path / "misfit.npz")
    for name in ("other.npz", "array.npy", "pickle.npy", "misfit.npz", "nowhere.npz", "."):
        with pytest.raises(InputError, match=r"is not a model saved by codedfl \(.*\): give a file from models/\.$"):
            Predictor.load(tmp_path / name)
