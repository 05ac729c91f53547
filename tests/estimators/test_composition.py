"""The estimators within scikit-learn: clones, pipelines, searches, routing, frames, randomness."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from codedfl import Predictor
from codedfl.errors import InputError
from codedfl.estimators import CodedClassifier, CodedRegressor
from tests.estimators.problems import QUICK

X, y = make_classification(120, 5, class_sep=2.0, random_state=0)
HOSPITALS = np.array(["north", "south", "west"])[np.arange(120) % 3]
COLUMNS = [f"column-{number}" for number in range(5)]


def test_pipeline_and_clone() -> None:
    holes = X.copy()
    holes[::7, 0] = np.nan
    pipeline = clone(make_pipeline(SimpleImputer(), CodedClassifier(**QUICK)))
    assert pipeline.fit(holes, y).score(holes, y) > 0.8


def test_a_fitted_copy_predicts_the_same() -> None:
    model = CodedClassifier(**QUICK).fit(X, y)
    assert (pickle.loads(pickle.dumps(model)).predict_proba(X) == model.predict_proba(X)).all()


def test_grid_search_over_epsilon_and_dimension() -> None:
    model = CodedClassifier(features="rff", **QUICK)
    search = GridSearchCV(model, {"epsilon": [None, 8.0], "dimension": np.array([8, 16])}, cv=2).fit(X, y)
    results = pd.DataFrame(search.cv_results_)
    assert results["mean_test_score"].notna().all()
    without = results[results["param_epsilon"].isna()]["mean_test_score"].max()
    assert search.best_score_ >= without > 0.7
    assert search.best_estimator_.coef_.shape == (1, search.best_params_["dimension"])


def test_groups_are_routed_to_splitter_and_estimator() -> None:
    with config_context(enable_metadata_routing=True):
        model = CodedClassifier(**QUICK).set_fit_request(groups=True)
        scores = cross_val_score(model, X, y, cv=GroupKFold(3), params={"groups": HOSPITALS})
        assert len(scores) == 3
        assert scores.min() > 0.7
        search = GridSearchCV(model, {"rounds": [5]}, cv=GroupKFold(3)).fit(X, y, groups=HOSPITALS)
    assert search.best_estimator_.device_names_ == ("north", "south", "west")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_a_column_of_devices(frame: Any) -> None:
    columns: dict[str, Any] = {name: X[:, place] for place, name in enumerate(COLUMNS)}
    table = frame({"hospital": HOSPITALS} | columns)
    model = CodedClassifier(**QUICK, device_column="hospital").fit(table, y)
    assert model.device_names_ == ("north", "south", "west")
    assert (model.n_features_in_, list(model.feature_names_in_)) == (5, COLUMNS)
    plain = CodedClassifier(**QUICK).fit(X, y, groups=HOSPITALS)
    assert (model.coef_ == plain.coef_).all()
    assert (model.predict(table) == model.predict(frame(columns))).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"hospital": HOSPITALS} | dict(reversed(columns.items()))))


def test_contradictions_about_devices_are_refused() -> None:
    table = pd.DataFrame(X, columns=COLUMNS)
    with pytest.raises(InputError, match="device_column = 'ward' is not in X, which has only the columns"):
        CodedClassifier(device_column="ward").fit(table, y)
    with pytest.raises(InputError, match="groups and device_column = 'column-0' both name devices"):
        CodedClassifier(device_column="column-0").fit(table, y, groups=HOSPITALS)


def test_devices_have_two_rows_at_least() -> None:
    assert len(CodedRegressor(rounds=2, random_state=0).fit(X[:9], X[:9, 0]).device_names_) == 4
    assert len(CodedRegressor(rounds=2, random_state=0).fit(X, X[:, 0]).device_names_) == 20
    with pytest.raises(ValueError, match=r"1 sample\(s\)"):
        CodedRegressor().fit(X[:1], X[:1, 0])


def test_random_state() -> None:
    first, again = (CodedClassifier(**QUICK).fit(X, y) for _ in range(2))
    assert (first.coef_ == again.coef_).all()
    assert first.history_.equals(again.history_)
    source = np.random.RandomState(5)
    drawn = CodedClassifier(**QUICK | {"random_state": source})
    assert (drawn.fit(X, y).coef_ != drawn.fit(X, y).coef_).any()
    fresh = CodedClassifier(**QUICK | {"random_state": None})
    assert (fresh.fit(X, y).coef_ != fresh.fit(X, y).coef_).any()


@pytest.mark.parametrize("features", ["none", "rff"])
def test_the_model_can_be_kept_without_pickle(features: Any, tmp_path: Path) -> None:
    names = np.array(["ill", "well"])[y]
    model = CodedClassifier(**QUICK, features=features).fit(pd.DataFrame(X, columns=COLUMNS), names)
    model.predictor().save(tmp_path / "model.safetensors")
    kept = Predictor.load(tmp_path / "model.safetensors")
    frame = pd.DataFrame(X, columns=COLUMNS)
    clear = np.abs(model.decision_function(frame)) > 1e-4
    assert (kept.predict_frame(frame) == model.predict(frame))[clear].all()
    assert "score" not in kept.provenance  # there were no test rows


def test_verbose_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    CodedClassifier(**QUICK).fit(X, y)
    assert capsys.readouterr() == ("", "")
    CodedClassifier(**QUICK, verbose=True).fit(X, y)
    assert "CCFL" in capsys.readouterr().err
