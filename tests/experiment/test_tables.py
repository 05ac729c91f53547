"""Ordinary tables in whole runs: what is learnt from them, what is said about it, and how to be without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.errors import InputError
from codedfl.experiment import Comparison, build_experiment, notes_on, run
from tests.support import small_config

GIVEN: dict[str, Any] = {
    "data__bounds": {"age": [0, 120], "admitted": ["2023-01-01", "2024-12-31"]},
    "data__categories": {"ward": ["surgery", "cardiology"]},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "site": rng.choice(["north", "south", "west"], 150),
            "age": rng.integers(18, 95, 150).astype(float),
            "ward": rng.choice(["surgery", "cardiology"], 150),
            "admitted": pd.date_range("2023-01-01", periods=150).strftime("%Y-%m-%d"),
        }
    )
    frame["ill"] = np.where(frame["age"] + 10 * (frame["ward"] == "surgery") + rng.normal(0, 9, 150) > 60, "yes", "no")
    frame.loc[::9, "age"] = np.nan
    path = tmp_path_factory.mktemp("tables") / "wards.csv"
    frame.to_csv(path, sep=";", index=False)
    return path


def config_of(table: Path, **changes: Any) -> Any:
    given = {"data__dataset": str(table), "data__target": ["ill"], "data__device_column": "site", "schemes": ["dp-gd"]}
    return small_config(**{**given, "privacy__epsilon": 4.0, **changes})


@pytest.fixture(scope="module")
def learnt(table: Path) -> Comparison:
    return run(config_of(table))


@pytest.fixture(scope="module")
def given(table: Path) -> Comparison:
    return run(config_of(table, **GIVEN))


def test_what_was_learnt_is_outside_of_the_budget(learnt: Comparison) -> None:
    outside = learnt.privacy("dp-gd")["outside"]
    assert "means and scales of the features were fitted to the pooled samples" in outside
    assert (
        "the medians of age, admitted, and the most frequent value of ward, and the categories of ward were learnt from the"
        " pooled samples"
        " (data.bounds and data.categories avoid that)"
    ) in outside


def test_with_bounds_and_categories_nothing_is_outside_but_what_always_is(given: Comparison) -> None:
    always = given.privacy("dp-gd")["outside"]
    assert len(always) == 2
    assert not any("pooled" in clause for clause in always)
    features = given.setting.federation.features
    assert np.abs(features).max() <= 1
    assert given.experiment.feature_map.input_mean is None
    assert (given.experiment.feature_map.output_scale == 1).all()
    # Age, two wards, a date and the intercept.
    assert features.shape[1] == 5


def test_bounds_for_some_columns_leave_the_others_named(table: Path) -> None:
    experiment = build_experiment(config_of(table, data__bounds=GIVEN["data__bounds"]))
    assert experiment.preprocessing is not None
    assert experiment.preprocessing.learnt == ("ward",)
    assert experiment.feature_map.input_mean is not None


def test_numbers_without_missing_values_name_no_categories(table: Path, tmp_path: Path) -> None:
    pd.read_csv(table, sep=";")[["age", "ill", "site"]].to_csv(tmp_path / "age.csv", index=False)
    outside = run(config_of(tmp_path / "age.csv")).privacy("dp-gd")["outside"]
    assert any(clause.startswith("the median of age was learnt") for clause in outside)


def test_remarks_on_the_data_open_the_notes(learnt: Comparison) -> None:
    notes = notes_on(learnt)
    assert notes[: len(learnt.experiment.remarks)] == list(learnt.experiment.remarks)
    assert notes[0] == "categories have a column each: ward (2); dates are days since 2000-01-01: admitted."
    assert re.fullmatch(r"missing values were filled in: age \(17: median \d\d(\.5)?\)\.", notes[1])
    assert "the fleet was drawn at random from the paper's model; fleet.file describes yours." in notes


def test_an_experiment_like_another_keeps_its_preprocessing(table: Path, learnt: Comparison) -> None:
    like = build_experiment(config_of(table), like=learnt.experiment)
    assert like.preprocessing is learnt.experiment.preprocessing
    assert like.remarks == learnt.experiment.remarks
    assert like.with_code_of(config_of(table, coding__coded_samples=30)).preprocessing is like.preprocessing


def test_named_datasets_have_no_preprocessing() -> None:
    experiment = build_experiment(small_config())
    assert experiment.preprocessing is None
    assert experiment.remarks == ()
    with pytest.raises(InputError, match=r"data\.bounds = .* applies to a file, not to data\.dataset = 'digits'"):
        build_experiment(small_config(data__bounds={"age": [0, 1]}))


def test_training_and_test_rows_go_through_the_same_preprocessing(table: Path, learnt: Comparison) -> None:
    """The federation's rows, undone, are those of the table."""
    experiment = learnt.experiment
    assert experiment.preprocessing is not None
    raw = experiment.preprocessing.transform(pd.read_csv(table, sep=";"), source="it")
    mapped = experiment.feature_map.transform(raw)
    federation = experiment.setting.federation
    rows = np.concatenate([federation.features, federation.test_features])
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(mapped, axis=0))


def test_a_regression_with_a_single_test_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("x\ty\n1\t2.5\n2\t3.5\n", encoding="utf-8")
    changes = {"data__dataset": str(tmp_path / "two.tsv"), "data__target": ["y"], "data__devices": 1}
    with pytest.raises(
        InputError, match=r"two\.tsv' has a single test row, and the score of a regression needs 2 or more"
    ):
        build_experiment(small_config(**changes))
