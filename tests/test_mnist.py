"""The paper's MNIST setting, cut short: facts about the data, and that SCFL learns from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codedfl import load_config
from codedfl.data import list_datasets
from codedfl.experiment import build_experiment
from codedfl.schemes import scfl
from codedfl.training import Evaluator, LearningRate, train

EXAMPLE = Path(__file__).parents[1] / "examples" / "mnist.toml"


@pytest.mark.slow
@pytest.mark.data
def test_the_papers_setting_on_mnist() -> None:
    if not next(status for status in list_datasets() if status.name == "mnist").available:
        pytest.skip("MNIST is not there: set CODEDFL_DATA to the folder that holds mnist/")
    setting = build_experiment(load_config(EXAMPLE)).setting
    assert setting.federation.samples.tolist() == [3000] * 20
    evaluator = Evaluator(setting)
    assert evaluator.reference is not None
    assert 0.952 < evaluator.reference.score < 0.960
    # The paper's b_s would be 499; its own parameters give 768.
    assert setting.timing().server_batch(setting.server_mac_rate, 10_000) == 768
    assert int(32 * 10_000 * 2010 / 8 / 2**20) == 76

    prepared = scfl().prepare(setting)
    rate = LearningRate.relative(0.5, setting.gram.smoothness)
    result = train(prepared, rate, 100, evaluator=evaluator, evaluate_every=100)
    assert result.final.score > 0.92
    assert result.final.last_score > 0.93

    # What SCFL tends to has a closed form: a floor that the coded data sets, a little below the optimum.
    X, Y = (part.astype(np.float64) for part in (prepared.held[0].features, prepared.held[0].labels))
    H_coded = X.T @ X / len(X) - prepared.held[0].noise_variance * np.eye(2000)
    limit = np.linalg.solve(setting.gram.features + H_coded, setting.gram.cross + X.T @ Y / len(X))
    floor = evaluator.scores(limit)[0]
    assert evaluator.reference.score - 0.01 < floor < evaluator.reference.score
