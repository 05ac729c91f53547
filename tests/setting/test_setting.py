from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import Fleet
from codedfl.setting import Code
from codedfl.setting._setting import _grams
from tests.problems import make_federation, make_setting


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((20, [0.1, -0.1], [0.0, 0.0]), "coding.noise_variance = -0.1 of device 2"),
        ((20, [0.1, np.nan], [0.0, 0.0]), "coding.noise_variance = nan of device 2"),
        ((20, [0.1, 0.1], [0.0, np.inf]), "coding.label_noise_variance = inf of device 2"),
        ((0, [0.1, 0.1], [0.0, 0.0]), "coding.coded_samples = 0"),
    ],
)
def test_an_impossible_code_is_refused(values: tuple[int, list[float], list[float]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Code(values[0], np.array(values[1]), np.array(values[2]))


def test_fleet_code_and_data_must_have_the_same_devices() -> None:
    setting = make_setting()
    with pytest.raises(InputError, match="the fleet describes 1 device"):
        replace(setting, fleet=Fleet(("only",), np.ones(1), np.ones(1)))
    with pytest.raises(InputError, match=r"coding.noise_variance describes 2 device\(s\) but the data has 4"):
        replace(setting, code=Code(20, np.ones(2), np.ones(4)))


@pytest.mark.parametrize("change", [{"local_steps": 0}, {"deadline_s": 0.0}, {"server_mac_rate": -1.0}])
def test_impossible_numbers_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        replace(make_setting(), **change)  # type: ignore[arg-type]


def test_the_timing_of_other_local_steps_and_deadlines() -> None:
    timing = make_setting(local_steps=4).timing(local_steps=1, deadline_s=7.0)
    assert (timing.workload.local_steps, timing.deadline_s) == (1, 7.0)
    assert make_setting(local_steps=4).timing().workload.local_steps == 4


def test_another_code_leaves_what_is_known_of_the_data() -> None:
    setting = make_setting()
    other = replace(setting, code=replace(setting.code, draw=1), server_batch=3)
    assert setting.federation not in _grams, "nothing is computed for it"
    gram = setting.gram
    assert other.gram is gram
    assert replace(setting, federation=make_federation()).gram is not gram, "other data has moments of its own"
    assert (other.code.draw, other.server_batch) == (1, 3)


def test_a_draw_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match=r"coding\.draw = -1"):
        Code(1, np.ones(2), np.ones(2), draw=-1)
