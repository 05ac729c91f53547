from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import r2_score, recall_score, root_mean_squared_error

from codedfl.data import FeatureMap
from codedfl.models import LabelledRows, Predictor, evaluate_model

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(200, 3)).astype(np.float32)
DEVICES = tuple(RNG.choice(["b", "a", "c"], 200).tolist())
MAP = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=3)
WEIGHTS = RNG.normal(size=(3, 3))


def test_a_classifier_is_scored_as_scikit_learn_does() -> None:
    names = ("x", "y", "never")
    truth = RNG.integers(2, size=200)
    model = Predictor(MAP, WEIGHTS, "classification", names)
    found = evaluate_model(model, LabelledRows(INPUTS, np.eye(3)[truth], DEVICES))
    predicted = np.array([names.index(label) for label in model.predict(INPUTS)])
    assert found.scores == {"accuracy": pytest.approx((predicted == truth).mean())}
    recalls = recall_score(truth, predicted, labels=[0, 1], average=None)
    assert [part.scores["recall"] for part in found.classes[:2]] == pytest.approx(recalls)
    assert (found.classes[2].rows, found.classes[2].scores) == (0, {"recall": None})
    counts = np.bincount(truth)
    assert found.baseline_class == names[counts.argmax()]
    assert found.baseline == {"accuracy": counts.max() / 200}
    assert [part.name for part in found.devices] == list(dict.fromkeys(DEVICES))
    for part in found.devices:
        own = np.array(DEVICES) == part.name
        assert part.rows == own.sum()
        assert part.scores == {"accuracy": pytest.approx((predicted == truth)[own].mean())}


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_is_scored_as_scikit_learn_does(outputs: int) -> None:
    names = ("sum", "difference")[:outputs]
    model = Predictor(MAP, WEIGHTS[:, :outputs], "regression", names)
    targets = INPUTS @ WEIGHTS[:, :outputs] + RNG.normal(size=(200, outputs)) + 5
    found = evaluate_model(model, LabelledRows(INPUTS, targets, DEVICES))
    predicted = model.predict(INPUTS)
    assert found.scores["r2"] == pytest.approx(r2_score(targets, predicted))
    errors = root_mean_squared_error(targets, predicted, multioutput="raw_values")
    assert [part.scores["rmse"] for part in found.outputs] == pytest.approx(errors)
    assert [part.scores["baseline_rmse"] for part in found.outputs] == pytest.approx(targets.std(axis=0))
    if outputs == 1:
        assert found.scores["rmse"] == pytest.approx(errors[0])
        assert found.baseline == {"r2": 0.0, "rmse": pytest.approx(targets.std())}
    own = np.array(DEVICES) == found.devices[0].name
    per_device = root_mean_squared_error(targets[own], predicted[own], multioutput="raw_values")
    assert list(found.devices[0].scores.values()) == pytest.approx(per_device)


def test_one_row_has_no_r2_and_json_knows_it() -> None:
    model = Predictor(MAP, WEIGHTS[:, :1], "regression", ("y",))
    found = evaluate_model(model, LabelledRows(INPUTS[:1], np.ones((1, 1)), None))
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["scores"]["r2"] is None
    assert values["devices"] == []
    assert values["outputs"][0] == {
        "name": "y",
        "rows": 1,
        "rmse": values["scores"]["rmse"],
        "baseline_rmse": 0,
        "r2": None,
    }
