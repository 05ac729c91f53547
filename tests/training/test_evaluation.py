from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score

from codedfl.errors import InputError
from codedfl.training import Evaluator
from codedfl.training import _setting as setting_module
from tests.problems import make_federation, make_setting

W = np.random.default_rng(3).standard_normal((3, 2))


def test_accuracy_and_r2_are_those_of_scikit_learn() -> None:
    classes = make_setting()
    data = classes.federation
    predicted = (data.test_features @ W).argmax(axis=1)
    expected = accuracy_score(data.test_labels.argmax(axis=1), predicted)
    assert Evaluator(classes).scores(W, -W)[0] == pytest.approx(expected)
    numbers = make_setting(make_federation(task="regression"))
    data = numbers.federation
    assert Evaluator(numbers).metric == "r2"
    assert Evaluator(numbers).scores(W)[0] == pytest.approx(r2_score(data.test_labels, data.test_features @ W))


def test_loss_gap_and_distance_follow_their_definitions() -> None:
    setting = make_setting()
    evaluator = Evaluator(setting)
    X, Y = setting.federation.features, setting.federation.labels
    best = np.linalg.lstsq(X, Y, rcond=None)[0]

    def f(model: np.ndarray) -> float:
        return float(0.5 * np.sum((X @ model - Y) ** 2))

    assert evaluator.loss(W) == pytest.approx(f(W) / 25)
    assert evaluator.gap(W) == pytest.approx((f(W) - f(best)) / 25)
    assert evaluator.distance(W) == pytest.approx(np.linalg.norm(W - best) / np.linalg.norm(best))
    assert evaluator.reference is not None
    assert evaluator.reference.loss == pytest.approx(f(best) / 25)


def test_without_a_gram_matrix_the_loss_is_computed_from_the_data_and_there_is_no_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = make_setting()
    expected = Evaluator(setting).loss(W)
    monkeypatch.setattr(setting_module, "LARGEST_GRAM", 2)
    evaluator = Evaluator(setting)
    assert evaluator.reference is None
    assert evaluator.loss(W) == pytest.approx(expected)
    assert np.isnan(evaluator.gap(W))
    assert np.isnan(evaluator.distance(W))


def test_a_model_that_is_not_finite_has_no_score() -> None:
    assert np.isnan(Evaluator(make_setting()).scores(W * np.nan)[0])


def test_r2_of_a_single_test_row_is_not_defined() -> None:
    data = make_federation(task="regression")
    one = replace(data, test_features=data.test_features[:1], test_labels=data.test_labels[:1])
    assert np.isnan(Evaluator(make_setting(one)).scores(W)[0])


def test_a_sample_of_the_test_rows_stands_for_all_of_them() -> None:
    setting = make_setting()
    everything, some = Evaluator(setting), Evaluator(setting, test_samples=10)
    features, labels = some.test_data
    assert len(features) == len(labels) == 10
    rows = {row.tobytes() for row in setting.federation.test_features}
    assert {row.tobytes() for row in features} <= rows
    again = Evaluator(setting, test_samples=10)
    assert np.array_equal(again.test_data[0], features), "every model meets the same sample"
    model = np.ones((3, 2))
    hits = (features @ model).argmax(axis=1) == labels.argmax(axis=1)
    assert some.scores(model) == (hits.mean(),)
    assert Evaluator(setting, test_samples=10**6).scores(model) == everything.scores(model)
    with pytest.raises(InputError, match=r"training.evaluation_samples = 0"):
        Evaluator(setting, test_samples=0)
