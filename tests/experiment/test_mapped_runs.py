from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.audits import run_audit
from codedfl.data import open_federation, save_federation
from codedfl.data._memmap import MATRICES
from codedfl.errors import InputError
from codedfl.experiment import Experiment, build_experiment, run
from codedfl.models import Predictor
from codedfl.schemes import DEFAULT_SCHEMES, SCHEMES, make_scheme
from tests.problems import make_federation
from tests.support import Cli, refusal_of, small_config

SAMPLES = (40, 25, 60, 33, 50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_federation(make_federation(SAMPLES, 12, 3, dtype=np.float32), tmp_path / "big")
    return tmp_path / "big"


def in_memory(experiment: Experiment) -> Experiment:
    federation = experiment.setting.federation
    copies: dict[str, Any] = {name: np.array(getattr(federation, name)) for name in MATRICES}
    return replace(experiment, setting=replace(experiment.setting, federation=replace(federation, **copies)))


def test_a_folder_is_mapped_into_the_setting_as_it_is(folder: Path) -> None:
    experiment = build_experiment(small_config(data__dataset=str(folder)))
    federation = experiment.setting.federation
    assert isinstance(federation.features, np.memmap)
    assert isinstance(experiment.setting.rows(1).features, np.memmap)
    assert federation.samples.tolist() == list(SAMPLES)
    assert experiment.setting.fleet.names == federation.device_names
    np.testing.assert_array_equal(experiment.feature_map.transform(federation.features), federation.features)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mapped_data_gives_the_results_of_data_in_memory_bit_for_bit(tmp_path: Path, scheme: str, dtype: Any) -> None:
    save_federation(make_federation(SAMPLES, 12, 3, dtype=dtype), tmp_path / "big")
    private = {"privacy__epsilon": 5.0, "coding__clip_norm": 1.0} if make_scheme(scheme).private else {}
    config = small_config(data__dataset=str(tmp_path / "big"), schemes=[scheme], **private)
    experiment = build_experiment(config)
    mapped, copied = (run(config, experiment=given)[scheme] for given in (experiment, in_memory(experiment)))
    own_rounds = mapped.scheme.rounds(experiment.setting)
    assert mapped.final.round == (0 if mapped.scheme.one_shot else own_rounds or 12)
    one, other = ([astuple(point) for point in each.curve] for each in (mapped, copied))
    np.testing.assert_equal(one, other)  # NaN equals NaN
    np.testing.assert_array_equal(mapped.model, copied.model)


@pytest.mark.slow
def test_the_command_line_runs_every_scheme_on_a_folder_and_its_models_predict(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--coded-samples", "60", "--rounds", "5", "--set", "learning_rate.scale=0.5")
    result = Cli(monkeypatch, capsys)("run", "--dataset", str(folder), *small, "--out", str(tmp_path / "out"))
    assert result.code == 0, result.err
    federation = open_federation(folder)
    for scheme in DEFAULT_SCHEMES:
        model = Predictor.load(tmp_path / "out" / "models" / f"{scheme}.safetensors")
        assert set(model.predict(federation.test_features)) <= {"t0", "t1", "t2"}
        np.testing.assert_allclose(
            model.outputs(federation.test_features), federation.test_features @ model.weights, rtol=1e-4, atol=1e-6
        )


def test_a_grid_of_step_sizes_is_refused(folder: Path) -> None:
    config = small_config(data__dataset=str(folder), learning_rate__scale="grid")
    with pytest.raises(InputError, match=r"give learning_rate\.scale a number"):
        run(config)


def test_an_audit_takes_a_folder(folder: Path) -> None:
    audit = run_audit(small_config(data__dataset=str(folder)), known_ratio=None)
    assert len(audit.devices) == len(SAMPLES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__target": ["kind"]}, "data.target = ['kind'] does not apply to the folder data.dataset = "),
        ({"data__device_column": "phone"}, "data.device_column = 'phone' does not apply"),
        ({"data__drop": ["a"]}, "data.drop = ['a'] does not apply"),
        ({"data__test_file": "a.csv"}, "data.test_file = 'a.csv' does not apply"),
        ({"data__partition": "iid"}, "data.partition = 'iid' does not apply"),
        ({"data__task": "regression"}, "data.task = 'regression' contradicts the classification in"),
        ({"features__map": "rff"}, "features.map = 'rff' does not apply"),
        ({"features__scaling": "column"}, "features.scaling = 'column' does not apply"),
        ({"features__standardize": True}, "features.standardize = True does not apply"),
        ({"features__intercept": True}, "features.intercept = True does not apply"),
    ],
)
def test_options_that_a_folder_leaves_no_room_for_are_refused(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    refusal = refusal_of(lambda: build_experiment(small_config(data__dataset=str(folder), **changes)))
    assert words in refusal
    assert "\n" not in refusal


def test_options_that_say_what_happens_anyway_are_taken(folder: Path) -> None:
    config = small_config(
        data__dataset=str(folder),
        data__task="classification",
        features__map="none",
        features__scaling="none",
        features__standardize=False,
        features__intercept=False,
    )
    assert build_experiment(config).setting.federation.mapped


def test_a_folder_that_is_no_federation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no file 'features\.npy'"):
        build_experiment(small_config(data__dataset=str(tmp_path)))
    with pytest.raises(InputError, match="nor a folder with a federation"):
        build_experiment(small_config(data__dataset=str(tmp_path / "absent")))
