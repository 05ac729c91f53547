"""A grid of configurations: every combination of values of some keys."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codedfl.config import Config, parse_override
from codedfl.errors import InputError
from codedfl.experiment._runner import seed_configs
from codedfl.results import Axes

MOST_POINTS = 5000
LONGEST_NAME = 70
"""Maximum length of the name of a point's folder."""


@dataclass(frozen=True, eq=False)
class Point:
    """One point of a grid under one seed.

    Args:
        folder: the name of its run folder.
        values: the values of the keys.
        config: the configuration.
    """

    folder: str
    values: Mapping[str, Any]
    config: Config


def parse_axes(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read axes from ``key=value,value,...``; commas within brackets and quotes belong to a value.

    Raises:
        InputError: if a text is something else, a key is named twice, or a value is given twice.

    Example:
        >>> parse_axes(["coding.noise_variance=0.1,1", "data.partition=iid,shards", 'schemes=["fedavg"],["scfl", "ccfl"]'])
        {'coding.noise_variance': [0.1, 1], 'data.partition': ['iid', 'shards'], 'schemes': [['fedavg'], ['scfl', 'ccfl']]}
    """
    axes: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, listed = text.partition("=")
        key = key.strip()
        pieces = [piece.strip() for piece in _split(listed)]
        if not equals or not key or not all(pieces):
            raise InputError(
                f"--over {json.dumps(text)} must look like section.key=value,value: give a key and its values."
            )
        if key in axes:
            raise InputError(f"--over names {key} twice: give all of its values at once.")
        values = [parse_override(f"{key}={piece}")[1] for piece in pieces]
        for value, piece in zip(values, pieces, strict=True):
            if sum(other == value and type(other) is type(value) for other in values) > 1:
                raise InputError(f"--over {key} has the value {piece} twice: give each once.")
        axes[key] = values
    if not axes:
        raise InputError("a sweep needs at least one key to vary: give --over section.key=value,value.")
    return axes


def grid_points(load: Callable[[Sequence[tuple[str, Any]]], Config], axes: Axes, seeds: int = 1) -> list[Point]:
    """Return all points of a grid, the last key varying fastest, each under every seed.

    Args:
        load: returns the configuration with further overrides.
        axes: values by key.
        seeds: number of seeds for each point.

    Raises:
        InputError: if a value is not possible, or there are too many points.

    Example:
        >>> from codedfl.experiment import load_config
        >>> points = grid_points(lambda overrides: load_config(overrides=overrides), {"data.devices": [5, 10], "seed": [1]})
        >>> [(point.folder, point.config.data.devices) for point in points]
        [('001-devices=5-seed=1', 5), ('002-devices=10-seed=1', 10)]
    """
    if seeds != 1 and "seed" in axes:
        raise InputError("--seeds and --over seed=... exclude each other: give one of them.")
    count = seeds * math.prod(len(values) for values in axes.values())
    if count > MOST_POINTS:
        raise InputError(f"the grid has {count} runs, more than {MOST_POINTS}: give fewer values, keys or seeds.")
    names = short_names(list(axes))
    points = []
    for number, combination in enumerate(itertools.product(*axes.values()), start=1):
        values = dict(zip(axes, combination, strict=True))
        label = "-".join(f"{names[key]}={_in_name(value)}" for key, value in values.items())
        for config in seed_configs(load(list(values.items())), seeds):
            suffix = f"-seed={config.seed}" if seeds > 1 else ""
            points.append(Point(f"{number:03d}-{label[:LONGEST_NAME]}{suffix}", values, config))
    return points


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each key that tells it from the others.

    Example:
        >>> short_names(["options.scfl.batch", "options.ccfl.batch", "data.devices"])
        {'options.scfl.batch': 'scfl.batch', 'options.ccfl.batch': 'ccfl.batch', 'data.devices': 'devices'}
    """

    def end(key: str, parts: int) -> str:
        return ".".join(key.split(".")[-parts:])

    names = {}
    for key in keys:
        lengths = range(1, key.count(".") + 2)
        names[key] = next(
            (end(key, parts) for parts in lengths if sum(end(other, parts) == end(key, parts) for other in keys) == 1),
            key,
        )
    return names


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    pieces, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += 0 if quote else (character in "[{") - (character in "]}")
        if character == "," and depth <= 0 and not quote:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _in_name(value: Any) -> str:
    """Return a value as part of a file name."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_") or "empty"
