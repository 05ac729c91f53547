from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from codedfl.schemes import fedavg
from codedfl.training import (
    Callback,
    LearningRate,
    PreparedScheme,
    RunProgress,
    Search,
    StepSizeChoice,
    StopTraining,
    Trial,
    choose_step_sizes,
    train,
    validation_setting,
)
from tests.problems import ALWAYS_DBM, make_federation, make_setting

SETTING = make_setting(make_federation((40, 30, 50), task="regression"), power_dbm=ALWAYS_DBM, deadline_s=1e6)


def choose(
    prepared: PreparedScheme, grid: Sequence[float], rounds: int, callbacks: Sequence[Callback] = ()
) -> StepSizeChoice:
    (choice,) = choose_step_sizes([Search(prepared, grid, rounds)], callbacks=callbacks)
    return choice


def test_the_best_of_the_grid_is_the_one_that_a_search_by_hand_finds() -> None:
    held_out = validation_setting(SETTING, 0.2)
    grid = (0.001, 0.1, 0.5, 50.0)
    choice = choose(fedavg().prepare(held_out), grid, 30)
    scores = []
    for scale in grid[:-1]:
        rate = LearningRate.relative(scale, held_out.gram.smoothness)
        scores.append(train(fedavg().prepare(held_out), rate, 30).final.score)
    assert choice.scale == grid[int(np.argmax(scores))]
    assert [trial.score for trial in choice.trials[:-1]] == scores
    assert choice.trials[-1].score == -np.inf, "a step size that diverges is out"
    assert [trial.scale for trial in choice.trials] == list(grid)


def test_validation_rows_come_from_the_training_data_of_the_devices_alone() -> None:
    held_out = validation_setting(SETTING, 0.2).federation
    assert held_out.total_samples + len(held_out.test_labels) == SETTING.federation.total_samples
    training = {row.tobytes() for row in SETTING.federation.features}
    assert all(row.tobytes() in training for row in held_out.test_features)
    assert not any(row.tobytes() in {r.tobytes() for r in held_out.features} for row in held_out.test_features)


def test_a_best_at_the_edge_is_told() -> None:
    trials = (Trial(0.1, 0.5, 1.0), Trial(0.2, 0.7, 1.0), Trial(0.4, 0.6, 1.0))
    assert not StepSizeChoice(0.2, trials).at_edge
    assert StepSizeChoice(0.4, trials).at_edge


def test_when_every_step_size_diverges_the_smallest_is_left() -> None:
    choice = choose(fedavg().prepare(SETTING), (100.0, 50.0), 60)
    assert choice.scale == 50.0
    assert all(trial.score == -np.inf for trial in choice.trials)


class StopNow(Callback):
    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        raise StopTraining("enough")


def test_a_callback_that_stops_a_run_stops_the_search() -> None:
    with pytest.raises(StopTraining):
        choose(fedavg().prepare(SETTING), (0.1, 0.5), 10, callbacks=[StopNow()])
