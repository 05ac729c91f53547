from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score, r2_score

from codedfl.errors import InputError
from codedfl.losses import SOFTMAX, SQUARE
from codedfl.setting import _setting as setting_module
from codedfl.training import Evaluator
from codedfl.training.run import _evaluation as module
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

    assert evaluator.training_loss(W) == pytest.approx(f(W) / 25)
    assert evaluator.gap(W) == pytest.approx((f(W) - f(best)) / 25)
    assert evaluator.distance(W) == pytest.approx(np.linalg.norm(W - best) / np.linalg.norm(best))
    assert evaluator.reference is not None
    assert evaluator.reference.loss == pytest.approx(f(best) / 25)


def test_without_a_gram_matrix_the_loss_is_computed_from_the_data_and_there_is_no_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = make_setting()
    expected = Evaluator(setting).training_loss(W)
    monkeypatch.setattr(setting_module, "LARGEST_GRAM", 2)
    evaluator = Evaluator(setting)
    assert evaluator.reference is None
    assert evaluator.training_loss(W) == pytest.approx(expected)
    assert np.isnan(evaluator.gap(W))
    assert np.isnan(evaluator.distance(W))


@pytest.mark.parametrize("block", [4, 4096])
def test_a_loss_without_a_closed_form_is_read_off_the_data(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", block)
    setting = make_setting()
    X, Y = setting.federation.features, setting.federation.labels
    evaluator = Evaluator(setting, loss=SOFTMAX)
    losses = [-np.sum(Y * log_softmax(X @ model, axis=1)) / 25 for model in (W, 30 * W)]
    assert evaluator.losses(W, 30 * W) == pytest.approx(losses, rel=1e-12)
    assert evaluator.training_loss(0 * W) == pytest.approx(np.log(2))
    assert evaluator.reference is None
    assert np.isnan([evaluator.gap(W), evaluator.distance(W)]).all()
    assert evaluator.scores(W) == Evaluator(setting).scores(W)


def test_evaluators_of_other_losses_are_made_once_and_score_the_same_rows() -> None:
    evaluator = Evaluator(make_setting(), test_samples=10)
    other = evaluator.minimising(SOFTMAX)
    assert evaluator.minimising(SQUARE) is evaluator
    assert evaluator.minimising(SOFTMAX) is other
    assert other.loss == SOFTMAX
    for mine, theirs in zip(evaluator.test_data, other.test_data, strict=True):
        assert np.array_equal(mine, theirs)


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
