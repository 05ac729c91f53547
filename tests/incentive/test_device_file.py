from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.incentive import read_devices


def test_everything_but_sensitivity_is_optional(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sensitivity\n2\n1\n")
    names, traits = read_devices(tmp_path / "a.csv")
    assert names == ("device-1", "device-2")
    assert traits.sensitivity.tolist() == [2, 1]
    assert traits.interference.tolist() == traits.min_noise_variance.tolist() == [0, 0]


def test_columns_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("min_noise_variance,name,sensitivity,h2\n0.5,x,2,3\n")
    names, traits = read_devices(tmp_path / "a.csv")
    assert (names, traits.least_hidden_variance.tolist()) == (("x",), [3.5])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("name\na\n", "has no column 'sensitivity'"),
        ("sensitivity\n", "one row per device"),
        ("sensitivity,colour\n1,2\n", "'colour'"),
        ("sensitivity\nnan\n", "row 1"),
        ("sensitivity,name\n1,a\n2,a\n", "row 2: 'a' has a row already"),
        ("sensitivity,h2\n1,-1\n", "interference"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_devices(tmp_path / "a.csv")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: f"sensitivity\n{text}".encode()))
def test_whatever_is_in_the_file_is_devices_or_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    try:
        names, traits = read_devices(tmp_path / "a.csv")
    except InputError:
        return
    assert len(names) == traits.devices > 0
