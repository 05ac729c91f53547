from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from codedfl.federation._requests import requested_menu, requested_train
from codedfl.federation.transport import Packet
from tests.federation.support import digits_config
from tests.support import refusal_of

CONFIG = digits_config(scheme="scfl")
VALUES: dict[str, Any] = {
    "round": 3,
    "batch_size": 20,
    "local_steps": 2,
    "step_size": 0.5,
    "sampling": "bernoulli",
    "stride": 20,
}
MODEL = np.arange(500, dtype=np.float32).reshape(50, 10)


def packet(model: Any = MODEL, **changes: Any) -> Packet:
    return Packet({"model": model}, {**VALUES, **changes})


def refusal(request: Packet, config: Any = CONFIG) -> str:
    return refusal_of(lambda: requested_train(request, config))


def test_a_request_to_train_is_read() -> None:
    asked = requested_train(packet(), CONFIG)
    assert (asked.round, asked.batch_size, asked.local_steps, asked.step_size) == (3, 20, 2, 0.5)
    assert (asked.sampling, asked.stride) == ("bernoulli", 20)
    np.testing.assert_array_equal(asked.sent["model"], MODEL)


def test_the_steps_are_those_of_the_scheme_where_it_fixes_them() -> None:
    """CCFL takes one step on a walk, whatever the federation's local_steps are."""
    config = digits_config(scheme="ccfl", training={"local_steps": 9})
    asked = requested_train(packet(local_steps=1, sampling="walk"), config)
    assert (asked.local_steps, asked.sampling) == (1, "walk")
    assert "local_steps = 9 and sampling = 'walk'" in refusal(packet(local_steps=9, sampling="walk"), config)


@pytest.mark.parametrize("scheme", ["dp-cfl", "one-shot"])
def test_a_scheme_whose_devices_do_not_train_is_never_trained_with(scheme: str) -> None:
    assert "has no training on devices: nothing is computed" in refusal(packet(), digits_config(scheme=scheme))


@pytest.mark.parametrize(
    "model",
    [
        None,
        "weights",
        MODEL.astype(np.float64),
        MODEL[:-1],
        MODEL.T,
        MODEL[None],
        np.full((50, 10), np.nan, np.float32),
        np.full((50, 10), np.inf, np.float32),
    ],
)
def test_a_model_of_another_shape_type_or_without_numbers_is_refused(model: Any) -> None:
    assert refusal(packet(model)).startswith("model ")
    assert refusal(Packet({}, VALUES)).startswith("model ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", -1),
        ("round", 1.0),
        ("round", True),
        ("round", None),
        ("round", 2**63),
        ("batch_size", 0),
        ("batch_size", "all"),
        ("stride", 0),
        ("stride", [1]),
        ("local_steps", 3),
        ("local_steps", None),
        ("sampling", "walk"),
        ("step_size", 0.0),
        ("step_size", -1.0),
        ("step_size", float("nan")),
        ("step_size", float("inf")),
        ("step_size", 1),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(name: str, value: Any) -> None:
    sentence = refusal(packet(**{name: value}))
    assert f"{name} = " in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("name", list(VALUES))
def test_a_missing_value_is_refused_by_its_name(name: str) -> None:
    request = Packet({"model": MODEL}, {key: value for key, value in VALUES.items() if key != name})
    assert f"{name} = None" in refusal(request)


def test_a_menu_is_read() -> None:
    assert requested_menu(Packet({}, {"round": 1})) is None
    menu = requested_menu(Packet({}, {"mi_dp_bits": [3.0, 2.0], "reward": [9.0, 4]}))
    assert menu is not None
    assert (menu.mi_dp_bits.tolist(), menu.reward.tolist()) == ([3.0, 2.0], [9.0, 4.0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mi_dp_bits": [1.0]}, "reward of the contract must be a list"),
        ({"reward": [1.0]}, "mi_dp_bits of the contract must be a list"),
        ({"mi_dp_bits": 1.0, "reward": [1.0]}, "mi_dp_bits of the contract must be a list"),
        ({"mi_dp_bits": [], "reward": []}, "a list of 1 to 10000 numbers"),
        ({"mi_dp_bits": [1.0] * 10_001, "reward": [1.0]}, "a list of 1 to 10000 numbers"),
        ({"mi_dp_bits": [1.0], "reward": ["much"]}, "reward of the contract must have numbers"),
        ({"mi_dp_bits": [float("nan")], "reward": [1.0]}, "mi_dp_bits of the contract must have numbers"),
        ({"mi_dp_bits": [-1.0], "reward": [1.0]}, "mi_dp_bits of the contract must have numbers"),
        ({"mi_dp_bits": [10**400], "reward": [1.0]}, "mi_dp_bits of the contract must have numbers"),
        ({"mi_dp_bits": [2.0, 1.0], "reward": [1.0]}, "2 budgets and 1 rewards"),
    ],
)
def test_a_menu_that_is_none_is_refused(values: Mapping[str, Any], words: str) -> None:
    assert words in refusal_of(lambda: requested_menu(Packet({}, values)))
