from __future__ import annotations

import json
from pathlib import Path

import pytest

from codedfl.experiment import run, summarise
from codedfl.experiment._audit import run_audit, write_audit
from codedfl.privacy import PrivacyAccountant
from tests.support import Diary, small_config


def test_every_device_is_audited_with_its_own_noise() -> None:
    noise = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    diary = Diary()
    audit = run_audit(small_config(coding__noise_variance=noise), progress=diary)
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
    assert audit.as_dict()["devices"][0]["epsilon"] is None, "no guarantee is null in JSON"


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
