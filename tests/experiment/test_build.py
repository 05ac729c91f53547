from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.errors import InputError
from codedfl.experiment import build_experiment, load_config
from tests.support import small_config


def own_file(tmp_path: Path, rows: int = 60) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(5, 3, rows), "b": rng.normal(size=rows), "phone": np.arange(rows) % 4})
    frame["kind"] = np.where(frame.a > 5, "high", "low")
    frame.to_csv(tmp_path / "own.csv", index=False)
    return tmp_path / "own.csv"


def test_the_default_is_what_the_readme_promises() -> None:
    setting = build_experiment(load_config()).setting
    assert (setting.federation.devices, setting.federation.dimension, setting.federation.outputs) == (20, 100, 10)
    assert setting.timing().straggler_ratio(1) == pytest.approx(0.3)
    assert np.abs(setting.federation.features).max() <= 1
    assert max(len(device.classes) for device in setting.federation.describe()) <= 3  # sorted shards


def test_images_get_random_features_and_own_files_keep_their_columns(tmp_path: Path) -> None:
    images = build_experiment(small_config())
    assert images.feature_map.frequencies is not None
    assert not images.feature_map.intercept
    own = build_experiment(
        small_config(data__dataset=str(own_file(tmp_path)), data__target=["kind"], data__drop=["phone"])
    )
    assert own.feature_map.frequencies is None
    assert own.feature_map.input_mean is not None
    assert own.feature_map.intercept
    assert own.setting.federation.dimension == 3
    assert np.abs(own.setting.federation.features).max() <= 1


def test_a_device_column_decides_the_partition(tmp_path: Path) -> None:
    config = small_config(data__dataset=str(own_file(tmp_path)), data__target=["kind"], data__device_column="phone")
    federation = build_experiment(config).setting.federation
    assert federation.device_names == ("0", "1", "2", "3")


def test_choices_can_be_forced(tmp_path: Path) -> None:
    config = small_config(
        data__dataset=str(own_file(tmp_path)),
        data__target=["kind"],
        data__drop=["phone"],
        features__map="rff",
        features__dimension=7,
        features__intercept=True,
        features__standardize=False,
        data__partition="iid",
        data__devices=3,
    )
    experiment = build_experiment(config)
    assert experiment.setting.federation.dimension == 8
    assert experiment.feature_map.input_mean is None
    assert experiment.setting.federation.devices == 3


def test_the_bandwidth_is_taken_as_it_is_if_no_straggler_ratio_is_wanted() -> None:
    setting = build_experiment(small_config(fleet__straggler_ratio=0, fleet__bandwidth_hz=12345.0)).setting
    assert setting.channel.bandwidth_hz == 12345.0


def test_noise_may_differ_by_device() -> None:
    noise = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert build_experiment(small_config(coding__noise_variance=noise)).setting.code.noise_variance.tolist() == noise
    assert build_experiment(small_config(coding__noise_variance=0.5)).setting.code.noise_variance.tolist() == [0.5] * 6


def test_a_fleet_file_replaces_the_draw(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("mac_rate,transmit_power_dbm\n" + "1e6,20\n" * 6)
    fleet = build_experiment(small_config(fleet__file=str(path))).setting.fleet
    assert fleet.columns()["mac_rate"].tolist() == [1e6] * 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coding__noise_variance": [0.1, 0.2]}, "coding.noise_variance has 2 value(s) for 6 device(s)"),
        ({"coding__noise_variance": []}, "coding.noise_variance has 0 value(s) for 6 device(s)"),
        ({"coding__label_noise_variance": [1.0] * 7}, "coding.label_noise_variance has 7 value(s) for 6 device(s)"),
        ({"fleet__mac_rate_factor": [1.0, 0.8]}, "fleet.mac_rate_factor = (1.0, 0.8)"),
        ({"fleet__transmit_power_dbm": [25, 5]}, "fleet.transmit_power_dbm = (25.0, 5.0)"),
        ({"fleet__file": "nowhere.csv"}, "fleet.file = 'nowhere.csv'"),
        ({"data__devices": 5000}, "devices = 5000 is more than the 1258 training rows"),
        ({"data__dataset": "nowhere.csv"}, "nowhere.csv"),
        ({"data__dataset": "minst"}, "Did you mean 'mnist'?"),
        ({"data__target": ["x"]}, "data.target"),
        ({"data__partition": "column"}, "device"),
        ({"training__deadline_s": 1e-6}, "straggler_ratio = 0.3 is not attainable"),
        ({"training__local_steps": 10**9}, "straggler_ratio = 0.3 is not attainable"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        build_experiment(small_config(**changes))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
