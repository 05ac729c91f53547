from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from codedfl.config import Config, load_config
from codedfl.errors import InputError
from codedfl.experiment import grid_points, parse_axes, short_names
from codedfl.experiment._grid import LONGEST_NAME


def load(given: Sequence[tuple[str, Any]]) -> Config:
    return load_config(overrides=given)


def test_commas_within_brackets_and_quotes_belong_to_a_value() -> None:
    given = ["coding.noise_variance=[0.1, 0.2], [1, 2]", 'data.target="a,b",c', "data.task=auto , regression"]
    assert parse_axes(given) == {
        "coding.noise_variance": [[0.1, 0.2], [1, 2]],
        "data.target": ["a,b", "c"],
        "data.task": ["auto", "regression"],
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "at least one key"),
        (("training.rounds",), "must look like section.key=value,value"),
        (("=1,2",), "must look like"),
        (("training.rounds=",), "must look like"),
        (("training.rounds=1,,2",), "must look like"),
        (("training.rounds=1,2", "training.rounds=3"), "names training.rounds twice"),
        (("training.rounds=1,2,1",), "has the value 1 twice"),
    ],
)
def test_axes_that_make_no_sense_are_refused(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_axes(texts)


def test_a_grid_has_every_combination_under_every_seed() -> None:
    axes: dict[str, list[Any]] = {"coding.noise_variance": [0.1, 1.0], "data.devices": [5, 10, 20]}
    points = grid_points(load, axes, seeds=2)
    assert len(points) == len({point.folder for point in points}) == 12
    seen = {(p.config.coding.noise_variance, p.config.data.devices, p.config.seed) for p in points}
    assert seen == {(v, n, s) for v in (0.1, 1.0) for n in (5, 10, 20) for s in (0, 1)}
    assert points[0].folder == "001-noise_variance=0.1-devices=5-seed=0"
    assert all(p.values["data.devices"] == p.config.data.devices for p in points)


def test_names_of_folders_are_safe_and_short() -> None:
    points = grid_points(load, {"data.dataset": ["../../etc/passwd", "x" * 300, ""]})
    names = [point.folder for point in points]
    assert names[0] == "001-dataset=.._.._etc_passwd"
    assert names[2] == "003-dataset=empty"
    assert all("/" not in name and len(name) <= LONGEST_NAME + 4 for name in names)


@pytest.mark.parametrize(
    ("axes", "seeds", "words"),
    [
        ({"training.rounds": [5, -1]}, 1, "training.rounds = -1"),
        ({"training.round": [5]}, 1, "did you mean training.rounds"),
        ({"seed": [0, 1]}, 3, "exclude each other"),
        ({"training.rounds": list(range(1, 3000))}, 2, "more than 5000"),
        ({"training.rounds": [5]}, 0, "--seeds = 0"),
        ({"seed": [2**63 - 1]}, 1, ""),
    ],
)
def test_points_that_are_not_possible_are_refused(axes: dict[str, list[Any]], seeds: int, words: str) -> None:
    if not words:
        assert len(grid_points(load, axes, seeds)) == 1
        return
    with pytest.raises(InputError, match=words):
        grid_points(load, axes, seeds)


def test_short_names_tell_keys_apart() -> None:
    assert short_names(["seed"]) == {"seed": "seed"}
    assert short_names(["a.b.c", "x.b.c", "c"]) == {"a.b.c": "a.b.c", "x.b.c": "x.b.c", "c": "c"}
