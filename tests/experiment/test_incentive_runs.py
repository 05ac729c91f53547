from __future__ import annotations

import tomllib

import numpy as np
import pytest

from codedfl.audits import run_audit
from codedfl.errors import InputError
from codedfl.experiment import build_experiment, load_config, parse_config, run, summarise, to_toml
from codedfl.incentive import DeviceTraits, contract_for_reward, stackelberg_for_reward, table_sensitivities
from tests.support import small_config

CONTRACT = {"incentive__mechanism": "contract", "incentive__total_reward": 60.0}
GAME = {
    "incentive__mechanism": "stackelberg",
    "incentive__total_reward": 60.0,
    "incentive__sensitivity": [1, 1, 1, 1, 1, 3],
}


def test_noise_comes_from_the_contract() -> None:
    code = build_experiment(small_config(**CONTRACT)).setting.code
    expected = contract_for_reward(DeviceTraits(table_sensitivities(6)), 60.0, 60)
    np.testing.assert_allclose(code.noise_variance, expected.noise_variance)
    assert code.uploading.all()


def test_noise_and_participants_come_from_the_game() -> None:
    code = build_experiment(small_config(**GAME)).setting.code
    expected = stackelberg_for_reward(DeviceTraits([1, 1, 1, 1, 1, 3]), 60.0, 60)
    assert code.uploading.tolist() == expected.participants.tolist() == [True] * 5 + [False]
    np.testing.assert_allclose(code.noise_variance[:5], expected.noise_variance[:5])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([("coding.noise", {"contract": {"budget": 3}})], "coding.noise: there is no such key"),
        ([("incentive.mechanism", "contrat")], 'incentive.mechanism = "contrat"'),
        ([("incentive.total_reward", -3)], "incentive.total_reward = -3"),
        ([("incentive.sensitivity", [1.0, 0.0])], "incentive.sensitivity[1] = 0"),
    ],
)
def test_a_wrong_incentive_is_refused_in_one_sentence(overrides: list[tuple[str, object]], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_config(overrides=overrides)
    assert words in str(caught.value)


def test_the_wrong_number_of_sensitivities_is_refused() -> None:
    with pytest.raises(InputError, match=r"incentive.sensitivity has 2 value\(s\) for 6 device\(s\)"):
        build_experiment(small_config(**{**CONTRACT, "incentive__sensitivity": [1, 2]}))


def test_a_run_reports_what_was_paid_and_who_took_part() -> None:
    summary = summarise(run(small_config(**GAME)))
    assert summary["incentive"]["mechanism"] == "stackelberg"
    assert summary["incentive"]["participants"] == 5
    assert [device["uploads"] for device in summary["devices"]] == [True] * 5 + [False]
    assert summary["devices"][5]["noise_variance"] is None
    scfl = summary["schemes"][1]
    assert scfl["per_device"]["bytes_up_coded"][5] == 0
    assert summarise(run(small_config()))["incentive"] is None


def test_an_audit_is_about_those_who_upload() -> None:
    audit = run_audit(small_config(**GAME), known_ratio=None)
    assert len(audit.devices) == 5


def test_a_configuration_with_an_incentive_survives_its_file() -> None:
    config = small_config(**GAME)
    assert parse_config(tomllib.loads(to_toml(config))) == config
