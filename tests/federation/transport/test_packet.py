from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codedfl.federation.transport import Packet

ARRAYS: dict[str, Any] = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(())}
VALUES: dict[str, Any] = {
    "device": "north",
    "round": 3,
    "noise": 0.5,
    "joins": True,
    "key": b"123",
    "names": ["x", "yz"],
}


def test_the_size_counts_names_and_content() -> None:
    arrays = (1 + 24) + (1 + 8)
    values = (6 + 5) + (5 + 8) + (5 + 8) + (5 + 8) + (3 + 3) + (5 + 3)
    assert Packet(ARRAYS, VALUES).bytes == arrays + values
    assert Packet().bytes == 0


def test_text_is_counted_in_utf8() -> None:
    assert Packet({}, {"a": "σ²"}).bytes == 1 + 4
    assert Packet({}, {"a": "\ud800"}).bytes == 1 + 3


def test_the_digest_does_not_depend_on_order_in_the_mapping_or_in_memory() -> None:
    shuffled = Packet(
        {"b": ARRAYS["b"].copy(), "a": np.asfortranarray(ARRAYS["a"])}, dict(reversed(list(VALUES.items())))
    )
    assert shuffled.digest == Packet(ARRAYS, VALUES).digest
    assert len(shuffled.digest) == 64


@pytest.mark.parametrize(
    "other",
    [
        Packet(ARRAYS | {"a": ARRAYS["a"].astype(np.float64)}, VALUES),
        Packet(ARRAYS | {"a": ARRAYS["a"].reshape(3, 2)}, VALUES),
        Packet(ARRAYS | {"a": ARRAYS["a"] + np.float32(1e-6)}, VALUES),
        Packet(ARRAYS | {"c": np.zeros(())}, VALUES),
        Packet({"a": ARRAYS["a"], "c": ARRAYS["b"]}, VALUES),
        Packet(ARRAYS, VALUES | {"round": 4}),
        Packet(ARRAYS, VALUES | {"round": 3.0}),
        Packet(ARRAYS, VALUES | {"joins": 1}),
        Packet(ARRAYS, VALUES | {"key": "123"}),
        Packet(ARRAYS, VALUES | {"names": ["xy", "z"]}),
        Packet(ARRAYS, {}),
        Packet({}, VALUES),
    ],
)
def test_any_difference_shows_in_the_digest(other: Packet) -> None:
    assert other.digest != Packet(ARRAYS, VALUES).digest


def test_python_objects_have_no_digest() -> None:
    with pytest.raises(TypeError):
        _ = Packet({"a": np.array([None])}, {}).digest
