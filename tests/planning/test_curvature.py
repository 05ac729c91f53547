from __future__ import annotations

import numpy as np
import pytest

from codedfl.config import load_config
from codedfl.experiment import build_experiment
from codedfl.planning._curvature import DECAY, LEFT_AT_F, damping_of, flow, noise_norm, predicted_seconds, seconds_of
from codedfl.planning._folds import make_folds
from codedfl.schemes import CurvatureCoded, make_scheme


def ccfl(**options: object) -> CurvatureCoded:
    scheme = make_scheme("ccfl", options)
    assert isinstance(scheme, CurvatureCoded)
    return scheme


def test_the_rule_is_a_power_law_of_at_least_one_round() -> None:
    shares = np.array([1.0, 0.5, LEFT_AT_F, LEFT_AT_F / 2**DECAY])
    assert seconds_of(shares, 100.0, 10.0) == pytest.approx([0.0, 10.0, 100.0, 200.0])


def test_the_predicted_damping_is_near_that_of_a_sketch() -> None:
    setting = build_experiment(load_config()).setting
    scheme = ccfl(rank=30, sketch_rows=10_000)
    prepared = scheme.prepare(setting)
    state = scheme.init(prepared, np.zeros(prepared.model_shape))
    values = np.linalg.eigvalsh(setting.gram.features)
    assert damping_of(scheme, setting, values) == pytest.approx(state.damping, rel=0.5)


def test_the_noise_of_sketches_is_that_of_the_drawn_ones() -> None:
    setting = build_experiment(load_config(overrides={"coding.noise_variance": 3.0})).setting
    scheme = ccfl(noise=True)
    assert noise_norm(scheme, setting) == pytest.approx(scheme.prepare(setting).held.noise_norm)
    assert noise_norm(ccfl(), setting) == 0.0


def test_noise_in_the_sketch_slows_the_path_down() -> None:
    setting = build_experiment(load_config(overrides={"coding.noise_variance": 50.0})).setting
    fold = make_folds(setting)[0]
    _, quiet = flow(ccfl(), fold, setting)
    _, noisy = flow(ccfl(noise=True), fold, setting)
    assert noisy.below[10] > quiet.below[10]
    assert quiet.below[-1] == pytest.approx(0.0, abs=1e-6), "the sketch does not move the optimum"


def test_more_stragglers_take_longer() -> None:
    seconds = []
    for ratio in (0.1, 0.5):
        setting = build_experiment(load_config(overrides={"fleet.straggler_ratio": ratio})).setting
        seconds.append(predicted_seconds(setting, make_scheme("ccfl").device.plan(setting)))
    assert seconds[0] < seconds[1]
