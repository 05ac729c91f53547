"""A scheme that minimises another loss than least squares goes through a comparison like the others."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping

import numpy as np
import pytest

from codedfl.experiment import Comparison, curves_csv, run, summarise
from codedfl.models import probabilities
from codedfl.schemes import make_scheme
from codedfl.training import Scheme
from tests.logistic import logistic
from tests.support import small_config


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    def make(name: str, options: Mapping[str, object] | None = None) -> Scheme:
        return logistic(name) if name == "fedavg" else make_scheme(name, options)

    grid = {"learning_rate__scale": "grid", "learning_rate__grid": [0.5, 1.0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codedfl.experiment._family.make_scheme", make)
        return run(small_config(training__rounds=60, training__deadline_s=30.0, **grid))


def test_its_step_sizes_are_in_units_of_its_own_smoothness(comparison: Comparison) -> None:
    result = comparison["fedavg"]
    assert result.status == "completed"
    assert result.scale is not None
    smoothness = comparison.setting.gram.smoothness / 2
    assert result.learning_rate.initial == pytest.approx(result.scale / smoothness, rel=1e-12)
    assert result.choice is not None
    for trial in result.choice.trials:
        assert math.isfinite(trial.score), "no step of the grid is called diverged"
        assert trial.loss < math.log(10)


def test_what_has_no_closed_form_is_left_out(comparison: Comparison) -> None:
    logistic_one, other = summarise(comparison)["schemes"]
    assert logistic_one["optimality_gap"] is logistic_one["distance_to_optimum"] is None
    assert 0 < logistic_one["loss"] < math.log(10)
    assert other["optimality_gap"] > 0
    json.dumps(summarise(comparison), allow_nan=False)
    rows = {row["scheme"]: row for row in csv.DictReader(io.StringIO(curves_csv(comparison)))}
    assert (rows["fedavg"]["gap"], rows["fedavg"]["distance"]) == ("nan", "nan"), "as for data without a Gram matrix"
    assert math.isfinite(float(rows["scfl"]["gap"]))
    assert comparison.evaluator.reference is not None
    assert "Logistic" in repr(comparison) + comparison._repr_html_()


def test_its_model_says_that_its_outputs_are_logits(comparison: Comparison) -> None:
    predictor = comparison.predictor("fedavg")
    assert predictor.logits
    assert not comparison.predictor("scfl").logits
    outputs = np.array([[2.0, 0.0, -1.0]])
    expected = np.exp(outputs) / np.exp(outputs).sum()
    np.testing.assert_allclose(probabilities(outputs, logits=predictor.logits), expected)
