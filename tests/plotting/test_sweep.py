from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from codedfl.plotting import _sweep as sweep_module
from codedfl.plotting import can_draw_sweep, draw_sweep, new_figure


def means_of(over: dict[str, list[Any]], seeds: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    means = []
    for combination, (place, scheme) in itertools.product(
        itertools.product(*over.values()), enumerate(("fedavg", "made-by-a-plug-in"))
    ):
        values = [float(value) for value in 0.8 + 0.05 * place + 0.01 * rng.standard_normal(seeds)]
        score = {"mean": float(np.mean(values)), "values": values}
        point = dict(zip(over, combination, strict=True))
        means.append({"values": point, "scheme": scheme, "title": scheme, "score": score, "centralised": {"mean": 0.9}})
    return means


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.slow
def test_a_grid_of_one_two_and_three_keys() -> None:
    one = {"coding.noise_variance": [0.1, 1.0, 10.0]}
    two = one | {"data.partition": ["iid", "shards"]}
    three = two | {"data.devices": [5, 10]}
    sizes = [size_of(draw_sweep(over, means_of(over), "accuracy", title="a$b$")) for over in (one, two, three)]
    assert sizes[1][1] < sizes[2][1]
    assert draw_sweep(one, means_of(one), "r2") == draw_sweep(one, means_of(one), "r2")


def test_seeds_that_diverged_are_gaps_and_not_errors() -> None:
    over: dict[str, list[Any]] = {"coding.noise_variance": [0.0, 1.0]}
    means = means_of(over, seeds=3)
    means[0]["score"] = {"mean": None, "values": [0.5, None, 0.6]}
    for mean in means:
        mean["centralised"] = {"mean": None}
    size_of(draw_sweep(over, means, "accuracy", seeds=3))


@pytest.mark.parametrize(
    ("over", "possible"),
    [
        ({}, False),
        ({"a": [1]}, True),
        ({"a": list(range(99)), "b": list(range(16))}, True),
        ({"a": [1, 2], "b": list(range(17))}, False),
        ({"a": [1], "b": [1], "c": [1]}, True),
        ({"a": [1], "b": [1], "c": [1], "d": [1]}, False),
    ],
)
def test_what_fits_in_a_picture(over: dict[str, list[Any]], possible: bool) -> None:
    assert can_draw_sweep(over) is possible


def axis_for(values: list[Any]) -> Axes:
    axes = new_figure(8, 4.6).add_subplot()
    axes.plot(sweep_module._places(values), [0.5] * len(values))
    sweep_module._scale(axes, values, columns=1)
    return axes


@pytest.mark.parametrize(
    ("values", "scale", "ticks"),
    [
        ([5, 10, 20], "linear", [5, 10, 20]),
        ([0.1, 1.0, 10.0], "log", [0.1, 1, 10]),
        ([0, 0.1, 1.0, 10.0], "symlog", [0, 0.1, 1, 10]),
        ([100, 200, 500, 1000, 2000, 5000], "log", [100, 200, 500, 1000, 2000, 5000]),
        (["iid", "shards"], "linear", [0, 1]),
        ([True, False], "linear", [0, 1]),
    ],
)
def test_scales_and_ticks_follow_the_values(values: list[Any], scale: str, ticks: list[float]) -> None:
    axes = axis_for(values)
    assert axes.get_xscale() == scale
    assert list(axes.get_xticks()) == ticks


def test_integers_have_integer_ticks_however_many_there_are() -> None:
    ticks = axis_for(list(range(1, 200))).get_xticks()
    assert 5 < len(ticks) < 20
    assert all(float(tick).is_integer() for tick in ticks)
