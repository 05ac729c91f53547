from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.audits import _uploads, run_audit, write_audit
from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment import Experiment, build_experiment, run, summarise
from codedfl.privacy import PrivacyAccountant
from tests.support import Diary, small_config


def test_every_device_is_audited_with_its_own_noise() -> None:
    noise = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    diary = Diary()
    audit = run_audit(small_config(coding__noise_variance=noise, coding__clip_norm=1.0), progress=diary)
    assert diary.entries == [("update", "auditing", i + 1, 6) for i in range(6)]
    bits = [device.mi_dp.universal for device in audit.devices]
    assert bits == sorted(bits, reverse=True)
    assert len({device.epsilon_features for device in audit.devices}) == 6


def test_the_same_seed_gives_the_same_audit() -> None:
    assert run_audit(small_config()).as_dict() == run_audit(small_config()).as_dict()
    assert run_audit(small_config()).as_dict() != run_audit(small_config(seed=1)).as_dict()


def test_the_files(tmp_path: Path) -> None:
    audit = run_audit(small_config(), known_ratio=None)
    write_audit(audit, tmp_path / "a")
    assert json.loads((tmp_path / "a/audit.json").read_text()) == audit.as_dict()
    assert (tmp_path / "a/audit.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a/config.toml").exists()


def test_unbounded_budgets_are_null_and_named() -> None:
    bare = run_audit(small_config(), known_ratio=None).as_dict()["devices"][0]
    assert bare["epsilon_features"] is bare["epsilon"] is bare["epsilon_in_sum"] is None
    assert bare["unbounded"] == ["epsilon_features", "epsilon", "epsilon_in_sum"]
    assert bare["missing"] == ["coding.label_noise_variance", "coding.clip_norm"]
    clipped = run_audit(small_config(coding__clip_norm=1.0), known_ratio=None).as_dict()["devices"][0]
    assert clipped["unbounded"] == ["epsilon", "epsilon_in_sum"]
    noisy = run_audit(small_config(**NOISY), known_ratio=None).as_dict()["devices"][0]
    assert noisy["unbounded"] == noisy["missing"] == []
    quiet = run_audit(small_config(coding__noise_variance=0.0, coding__clip_norm=1.0), known_ratio=None).as_dict()
    assert "mi_dp.universal" in quiet["devices"][0]["unbounded"]
    assert quiet["mi_dp_bits"]["universal"] is None


NOISY = {"coding__clip_norm": 1.0, "coding__noise_variance": [20.0] * 5 + [10.0], "coding__label_noise_variance": 20.0}


@pytest.mark.slow
def test_a_limit_on_epsilon_names_the_devices_above_it() -> None:
    common: dict[str, Any] = {"coded_samples": 60, "delta": 1e-5, "label_noise_variance": 20.0}
    epsilons = [PrivacyAccountant(noise_variance=noise, **common).epsilon for noise in (20.0, 10.0)]
    assert epsilons[0] < epsilons[1]
    for limit, names in (
        (1.01 * epsilons[1], []),
        (epsilons[1], []),
        (0.5 * sum(epsilons), ["device-06"]),
        (0.99 * epsilons[0], [f"device-0{i}" for i in range(1, 7)]),
    ):
        audit = run_audit(small_config(**NOISY), known_ratio=None, max_epsilon=limit)
        assert [device.name for device in audit.exceeded] == audit.as_dict()["exceeded"] == names
        assert audit.as_dict()["max_epsilon"] == limit
    sums = run_audit(small_config(**NOISY), known_ratio=None, max_epsilon=epsilons[0] / 2, threat_model="sums-only")
    assert sums.exceeded == ()
    in_sum = PrivacyAccountant(noise_variance=110.0, **{**common, "label_noise_variance": 120.0}).epsilon
    assert [sums.epsilon_of(device) for device in sums.devices] == pytest.approx([in_sum] * 6)


def test_without_a_limit_nothing_exceeds_it_and_an_unbounded_epsilon_exceeds_any() -> None:
    free = run_audit(small_config(), known_ratio=None)
    assert free.exceeded == ()
    assert not {"max_epsilon", "exceeded"} & set(free.as_dict())
    for threat_model in ("each-message", "sums-only"):
        limited = run_audit(small_config(), known_ratio=None, max_epsilon=1e300, threat_model=threat_model)
        assert limited.exceeded == limited.devices


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_limit_is_refused(limit: float) -> None:
    with pytest.raises(InputError, match=r"max_epsilon = .* must be a positive finite number"):
        run_audit(small_config(), max_epsilon=limit)


def test_an_unknown_threat_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"threat_model = 'odd' is unknown: give 'each-message' or 'sums-only'"):
        run_audit(small_config(), threat_model="odd")  # type: ignore[arg-type]


def test_a_regression_is_bounded_by_the_setting_and_never_by_its_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack((rng.uniform(-1, 1, (60, 3)), 5 * rng.standard_normal(60)))
    np.savetxt(tmp_path / "own.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    data = {"data__dataset": str(tmp_path / "own.csv"), "data__target": ["y"], "data__task": "regression"}
    config = small_config(**data, **{**NOISY, "coding__noise_variance": 20.0})
    free = run_audit(config, known_ratio=None)
    assert {device.epsilon for device in free.devices} == {math.inf}
    assert all(device.missing == ("privacy.label_bound",) for device in free.devices)

    def bounded(config: Config) -> Experiment:
        experiment = build_experiment(config)
        code = replace(experiment.setting.code, label_bound=2.0)
        return replace(experiment, setting=replace(experiment.setting, code=code))

    monkeypatch.setattr(_uploads, "build_experiment", bounded)
    expected = PrivacyAccountant(
        coded_samples=60, noise_variance=20.0, label_noise_variance=20.0, delta=1e-5, label_norm_bound=2.0
    )
    assert {device.epsilon for device in run_audit(config, known_ratio=None).devices} == {expected.epsilon}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_picture_survives_unbounded_budgets(tmp_path: Path, noise: float) -> None:
    write_audit(run_audit(small_config(coding__noise_variance=noise, data__devices=20)), tmp_path)
    assert (tmp_path / "audit.png").stat().st_size > 10_000


def test_a_run_states_its_worst_case_budgets_once_samples_are_clipped() -> None:
    plain = summarise(run(small_config()))
    assert plain["schemes"][1]["epsilon_features"] is None
    assert plain["clipped_share"] == 0
    coding = {"coding__clip_norm": 0.8, "coding__noise_variance": 5.0, "coding__label_noise_variance": 2.0}
    clipped = summarise(run(small_config(**coding)))
    fedavg, scfl = clipped["schemes"]
    assert fedavg["epsilon"] is None
    expected = PrivacyAccountant(coded_samples=60, noise_variance=5.0, delta=1e-5, norm_bound=0.8)
    assert scfl["epsilon_features"] == pytest.approx(expected.epsilon)
    in_sum = PrivacyAccountant(
        coded_samples=60, noise_variance=5.0, delta=1e-5, norm_bound=0.8, label_noise_variance=2.0, devices_in_sum=6
    )
    assert scfl["epsilon_in_sum"] == pytest.approx(in_sum.epsilon)
    assert scfl["epsilon_in_sum"] < scfl["epsilon_features"] < scfl["epsilon"]
    assert clipped["clipped_share"] > 0.9
    assert scfl["accuracy"] != plain["schemes"][1]["accuracy"], "clipping and noise show in the accuracy"
