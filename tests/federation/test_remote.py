from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._settings import remote_setting
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import Evaluator
from tests.federation.support import NAMES, digits_config


def setting(**changes: Any) -> Setting:
    values: dict[str, Any] = {
        "config": digits_config(coding={"clip_norm": 2.0}),
        "names": NAMES,
        "samples": np.array([250, 350, 400, 397]),
        "noise_variance": np.array([0.1, 0.2, 0.3, 0.0]),
        "label_noise_variance": np.array([0.0, 0.0, 0.5, 0.0]),
        "participants": np.array([True, True, True, False]),
        "test": None,
        "streams": Streams(7),
    }
    return remote_setting(**{**values, **changes})


def test_the_server_knows_sizes_and_no_rows() -> None:
    federation = setting().federation
    assert federation.samples.tolist() == [250, 350, 400, 397]
    assert federation.total_samples == 1397
    assert federation.devices == 4
    assert (federation.dimension, federation.outputs) == (50, 10)
    assert len(federation.features) == len(federation.labels) == 0
    with pytest.raises(LookupError, match="rows of device south are on the device alone"):
        federation.device(2)


def test_the_code_is_what_devices_declared() -> None:
    code = setting().code
    assert code.coded_samples == 200
    assert code.noise_variance.tolist() == [0.1, 0.2, 0.3, 0.0]
    assert code.label_noise_variance.tolist() == [0.0, 0.0, 0.5, 0.0]
    assert code.uploading.tolist() == [True, True, True, False]
    assert code.clip_norm == 2.0


def test_without_any_upload_there_is_a_setting_all_the_same() -> None:
    """Schemes without an upload have no participants, which a code cannot express."""
    nothing = np.zeros(4)
    blank = setting(noise_variance=nothing, label_noise_variance=nothing, participants=nothing.astype(bool))
    assert blank.code.participants is None
    assert setting(config=digits_config()).code.clip_norm is None


def test_models_are_scored_on_the_servers_own_rows() -> None:
    labels = np.eye(10, dtype=np.float32)[[3, 4, 4]]
    features = np.eye(3, 50, dtype=np.float32)
    model = np.zeros((50, 10))
    model[0, 3] = model[1, 4] = model[2, 9] = 1.0
    scored = setting(test=(features, labels))
    assert Evaluator(scored).scores(model)[0] == pytest.approx(2 / 3, abs=1e-12)
    assert len(setting().federation.test_features) == 0


@pytest.mark.parametrize("samples", [[1, 2, 3], [1, 2, 3, -1]])
def test_sizes_that_are_none_are_refused(samples: list[int]) -> None:
    with pytest.raises(InputError, match=r"sizes has \d values for 4 devices"):
        setting(samples=np.array(samples))
