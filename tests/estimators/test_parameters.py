"""Parameters become a configuration, or are refused by their own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_regression

from codedfl.errors import InputError
from codedfl.estimators import CodedClassifier, CodedRegressor
from codedfl.estimators._parameters import KEYS, make_config
from codedfl.fleet import Workload

X, y = make_regression(60, 3, random_state=0)


def config_of(columns: int = 3, outputs: int = 1, rows: int = 100, **parameters: Any) -> Any:
    return make_config(CodedRegressor(**parameters).get_params(), rows=rows, columns=columns, outputs=outputs)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scheme": "cfl"}, "scheme: there is no 'cfl'"),
        ({"scheme": None}, "scheme = None is not possible: it must be a string."),
        ({"rounds": 0}, "rounds = 0 must be an integer of 1 or more, or None for the default."),
        ({"rounds": -3}, "rounds = -3 must be an integer of 1 or more, or None for the default."),
        ({"rounds": 2.5}, "rounds = 2.5 must be an integer of 1 or more, or None for the default."),
        ({"rounds": True}, "rounds = True must be an integer of 1 or more, or None for the default."),
        ({"rounds": np.inf}, "rounds = inf must be an integer of 1 or more, or None for the default."),
        ({"rounds": "3"}, "rounds = '3' must be an integer of 1 or more, or None for the default."),
        ({"standardize": "no"}, "standardize = 'no' must be True or False."),
        ({"standardize": 0}, "standardize = 0 must be True or False."),
        ({"rounds": 3, "total_time_s": 9.0}, "rounds = 3 and total_time_s = 9.0 both say how long to train"),
        ({"total_time_s": 0.01}, "total_time_s = 0.01 is shorter than one round of ccfl"),
        ({"deadline_s": 1e-9}, "give a longer deadline_s"),
        ({"features": "poly"}, "features = 'poly' is unknown"),
        ({"features": "rff", "dimension": 0}, "dimension = 0 is not possible"),
        ({"features": "rff", "gamma": -1.0}, "gamma = -1.0 is not possible"),
        ({"epsilon": 0.0}, "epsilon = 0.0 must be a positive number, or None"),
        ({"epsilon": np.inf}, "epsilon = inf must be a positive number, or None"),
        ({"epsilon": True}, "epsilon = True must be a positive number, or None"),
        ({"epsilon": "2"}, "epsilon = '2' must be a positive number, or None"),
        ({"epsilon": 2.0}, "label_bound = 0 leaves the targets"),
        ({"delta": 2.0}, "delta = 2.0 is not possible"),
        ({"threat_model": "none"}, "threat_model = 'none' is not possible"),
        ({"clip_norm": None}, "clip_norm = None is not possible: it must be a finite number"),
        ({"gamma": np.inf}, "gamma = inf is not possible: it must be a finite number"),
        ({"delta": np.nan}, "delta = nan is not possible: it must be a finite number"),
        ({"dimension": [1, None]}, "dimension = [1, None] is not possible: it must be an integer"),
        ({"random_state": True}, "random_state = True is not possible: it must be an integer"),
        ({"config": {"learning_rate.only_stable": None}}, "only_stable = None is not possible: it must be True or Fal"),
        ({"clip_norm": -1.0}, "clip_norm = -1.0 is not possible"),
        ({"label_bound": -1.0}, "label_bound = -1.0 is not possible"),
        ({"devices": 0}, "devices = 0 is not possible"),
        ({"random_state": -1}, "random_state = -1 is not possible"),
        ({"fleet": 3}, "fleet = 3 must be the path of a file, a dictionary"),
        ({"fleet": "nowhere.csv"}, "fleet.file = 'nowhere.csv'"),
        ({"fleet": {"stragler_ratio": 0.5}}, "did you mean fleet.straggler_ratio"),
        ({"config": 3}, "config = 3 must be a dictionary"),
        ({"config": {"training.rounds": 3}}, "config sets training.rounds, for which there is a parameter: set rounds"),
        ({"config": {"data": {"target": ["x"]}}}, "config sets data.target, but the data is what fit is given"),
        ({"config": {"training.cohorts": 3}}, "did you mean training.cohort"),
        ({"scheme": "dp-gd"}, "epsilon = 0 leaves the noise of private descent open"),
    ],
)
def test_refusals_name_the_parameter(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        CodedRegressor(**parameters).fit(X, y)
    assert message in str(error.value)
    assert not [key for key in KEYS.values() if "." in key and key in str(error.value) and "config sets" not in message]


def test_every_parameter_reaches_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").touch()
    config = config_of(
        scheme="scfl",
        fleet=tmp_path / "fleet.csv",
        devices=7,
        rounds=np.int64(9),
        deadline_s=2.5,
        features="rff",
        dimension=30,
        gamma=0.5,
        epsilon=3.0,
        delta=1e-6,
        threat_model="sums-only",
        clip_norm=2.0,
        label_bound=4.0,
        config={"training": {"local_steps": 3}, "options.scfl.batch": 16},
        random_state=11,
    )
    assert (config.schemes, config.seed, config.data.devices) == (("scfl",), 11, 7)
    assert config.fleet.file == str(tmp_path / "fleet.csv")
    training, features, privacy = config.training, config.features, config.privacy
    assert (training.rounds, training.deadline_s, training.local_steps) == (9, 2.5, 3)
    assert (features.map, features.dimension, features.gamma, features.intercept) == ("rff", 30, 0.5, False)
    assert (privacy.epsilon, privacy.delta, privacy.threat_model, privacy.label_bound) == (3.0, 1e-6, "sums-only", 4.0)
    assert (config.coding.clip_norm, config.options["scfl"]["batch"]) == (2.0, 16)


@pytest.mark.parametrize(
    ("columns", "parameters", "scheme"),
    [
        (300, {}, "fed3r"),
        (301, {}, "ccfl"),
        (9, {"features": "rff", "dimension": 300}, "fed3r"),
        (9, {"features": "rff", "dimension": np.int64(301)}, "ccfl"),
        (1000, {"features": "rff", "dimension": 50}, "fed3r"),
        (9, {"dimension": 1000}, "fed3r"),
        (9, {"rounds": 20}, "ccfl"),
        (9, {"total_time_s": 20.0}, "ccfl"),
        (9, {"epsilon": 1.0}, "dp-gd"),
        (1000, {"epsilon": 1.0, "rounds": 20}, "dp-gd"),
        (9, {"scheme": "scfl"}, "scfl"),
    ],
)
def test_auto_chooses_by_the_number_of_features(columns: int, parameters: dict[str, Any], scheme: str) -> None:
    assert config_of(columns, rows=10_000, **parameters).schemes == (scheme,)


@pytest.mark.parametrize(
    ("rows", "columns", "parameters", "scheme"),
    [
        (45, 9, {}, "fed3r"),
        (44, 9, {}, "ccfl"),
        (499, 9, {"features": "rff", "dimension": 100}, "ccfl"),
        (500, 9, {"features": "rff", "dimension": 100}, "fed3r"),
        (20, 9, {"scheme": "fed3r"}, "fed3r"),
    ],
)
def test_auto_does_not_fit_few_rows_exactly(rows: int, columns: int, parameters: dict[str, Any], scheme: str) -> None:
    assert config_of(columns, rows=rows, **parameters).schemes == (scheme,)


def test_how_long_to_train() -> None:
    assert config_of().training.rounds == 100
    timed = config_of(total_time_s=70.0).training
    assert (timed.rounds, timed.total_time_s) == (0, 70.0)
    assert config_of(epsilon=1.0, label_bound=1.0, rounds=7).options["dp-gd"]["rounds"] == 7


def test_nothing_is_clipped_without_epsilon() -> None:
    assert config_of().coding.clip_norm == 0
    assert config_of(epsilon=1.0).coding.clip_norm == "auto"


@pytest.mark.parametrize(("columns", "outputs"), [(3, 1), (5_000, 10), (200_000, 2)])
def test_devices_have_time_for_large_models(columns: int, outputs: int) -> None:
    config = config_of(columns, outputs)
    work = Workload.for_linear_model(columns + 1, outputs, config.training.local_steps)
    download_s = work.payload_bits / config.fleet.download_rate_bps
    row_s = work.local_steps * work.macs_per_sample / (0.8 * config.fleet.mac_rate)
    assert config.training.deadline_s >= max(1.0, 10 * (download_s + row_s))
    assert config_of(columns, outputs, deadline_s=0.5).training.deadline_s == 0.5


def test_a_large_model_trains_with_defaults() -> None:
    wide = np.random.default_rng(0).normal(size=(30, 300))
    many = CodedClassifier(rounds=2, random_state=0).fit(wide, np.arange(30) % 15)
    assert many.n_iter_ == 2


def test_the_fleet_decides_who_arrives() -> None:
    few, all_ = (
        CodedRegressor(fleet={"straggler_ratio": ratio, "bandwidth_hz": 1e9}, rounds=10, random_state=0)
        .fit(X, y)
        .history_["mean_arrivals"]
        .iloc[-1]
        for ratio in (0.8, 0.0)
    )
    assert few < all_ == 20
