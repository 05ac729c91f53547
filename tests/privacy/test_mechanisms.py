from __future__ import annotations

import math
from typing import Any

import pytest

from codedfl.errors import InputError
from codedfl.privacy import CodedMechanism, GaussianMechanism, Mechanism
from codedfl.privacy._mechanisms import merge


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier = -1.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier = nan"),
        ({"noise_multiplier": True}, "noise_multiplier = True"),
        ({"count": 0}, "count = 0"),
        ({"count": 2.5}, "count = 2.5"),
        ({"sampling_rate": 0.0}, "sampling_rate = 0.0"),
        ({"sampling_rate": 1.01}, "sampling_rate = 1.01"),
        ({"sampling_rate": math.nan}, "sampling_rate = nan"),
    ],
)
def test_impossible_gaussian_mechanisms_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words} must "):
        GaussianMechanism(**{"noise_multiplier": 1.0, **wrong})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"coded_samples": 0}, "coded_samples = 0 must"),
        ({"signal_to_noise": -0.1}, "signal_to_noise = -0.1 must"),
        ({"count": 0}, "count = 0 must"),
        ({"coded_samples": 2**30, "count": 2**20}, "count = 1048576 uploads of"),
    ],
)
def test_impossible_coded_mechanisms_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        CodedMechanism(**{"coded_samples": 10, "signal_to_noise": 0.5, **wrong})


def test_equal_mechanisms_are_merged_in_any_order() -> None:
    mechanisms: list[Mechanism] = [
        GaussianMechanism(4.0, count=9),
        CodedMechanism(10, 0.5, count=2),
        GaussianMechanism(2.0, count=3, sampling_rate=0.1),
        GaussianMechanism(3.0, count=16),
        CodedMechanism(7, 0.5),
        GaussianMechanism(2.0, count=4, sampling_rate=0.1),
        CodedMechanism(5, 0.25),
    ]
    merged = merge(mechanisms)
    assert merged.mu == pytest.approx(math.sqrt(9 / 16 + 16 / 9))
    assert merged.sampled == ((2.0, 0.1, 7),)
    assert merged.coded == ((0.25, 5), (0.5, 27))
    assert merge(mechanisms[::-1]) == merged


def test_what_reveals_nothing_is_left_out_and_what_has_no_noise_is_unbounded() -> None:
    nothing: list[Mechanism] = [
        GaussianMechanism(math.inf),
        GaussianMechanism(math.inf, 5, 0.1),
        CodedMechanism(10, 0.0),
    ]
    assert merge(nothing) == merge([])
    unbounded: list[Mechanism] = [GaussianMechanism(0.0), GaussianMechanism(0.0, 1, 0.5), CodedMechanism(10, math.inf)]
    for bare in unbounded:
        assert merge([*nothing, bare]).mu == math.inf


def test_rows_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(InputError, match=r"^coded uploads of signal_to_noise = 0.5 have "):
        merge([CodedMechanism(2**40, 0.5), CodedMechanism(1, 0.5)])
