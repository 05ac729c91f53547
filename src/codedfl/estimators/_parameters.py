"""From the parameters of an estimator to a configuration."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from codedfl._messages import shown
from codedfl.config import Config, flatten, load_config
from codedfl.errors import InputError
from codedfl.fleet import Workload
from codedfl.schemes import scheme_builder, scheme_names

DEFAULT_ROUNDS = 100
"""Rounds if neither they nor a training time are given."""

FEW_FEATURES = 300
"""Up to this many features devices upload exact statistics by default; the upload grows with the square of the number."""

ENOUGH_ROWS = 5
"""Rows per feature from which on they do: with fewer, exact least squares fits their noise, and training that stops does less."""

ROOM = 12.0
"""A round lasts this many times download and one row, at least: about as long as on MNIST in the paper."""

KEYS: Mapping[str, str] = {
    "scheme": "schemes",
    "rounds": "training.rounds",
    "total_time_s": "training.total_time_s",
    "deadline_s": "training.deadline_s",
    "features": "features.map",
    "dimension": "features.dimension",
    "gamma": "features.gamma",
    "standardize": "features.standardize",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "threat_model": "privacy.threat_model",
    "clip_norm": "coding.clip_norm",
    "label_bound": "privacy.label_bound",
    "label_center": "privacy.label_center",
    "devices": "data.devices",
    "random_state": "seed",
}
"""Parameters, and the keys of the configuration that they set."""

OPEN_DATA_KEYS = ("data.partition", "data.dirichlet_alpha")
"""What ``config`` may say about the data; ``fit`` is given everything else."""


def chosen_scheme(params: Mapping[str, Any], rows: int, columns: int) -> Any:
    """Return the scheme, or what ``auto`` stands for with these parameters and data of this size.

    Example:
        >>> from codedfl.estimators import CodedRegressor
        >>> [chosen_scheme(CodedRegressor(epsilon=epsilon).get_params(), 400, 30) for epsilon in (None, 2.0)]
        ['fed3r', 'dp-gd']
        >>> [chosen_scheme(CodedRegressor().get_params(), *size) for size in ((100, 30), (9000, 1000))]
        ['ccfl', 'ccfl']
    """
    if params["scheme"] != "auto":
        return params["scheme"]
    if params["epsilon"] is not None:
        return "dp-gd"
    if params["rounds"] is not None or params["total_time_s"] is not None:
        return "ccfl"  # statistics are uploaded once, so that there would be no rounds
    width = params["dimension"] if params["features"] == "rff" else columns
    few = isinstance(width, int | float) and width <= FEW_FEATURES and ENOUGH_ROWS * width <= rows
    return "fed3r" if few else "ccfl"


def make_config(params: Mapping[str, Any], *, rows: int, columns: int, outputs: int) -> Config:
    """Return the configuration of an estimator for data of a given size.

    Args:
        params: those of the estimator.
        rows: number of training rows.
        columns: number of columns.
        outputs: number of classes or targets.

    Raises:
        InputError: for a value that is not possible, in terms of the parameters.
    """
    params = {name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()}
    overrides = {**_overrides(params, rows, columns), **_own_overrides(params["config"])}
    with in_terms_of_parameters():
        config = load_config(overrides=overrides)
    features = config.features
    devices = min(config.data.devices, max(1, rows // 2))
    dimension = features.dimension if features.map == "rff" else columns
    deadline_s = config.training.deadline_s
    if params["deadline_s"] is None:
        deadline_s = max(deadline_s, _shortest_deadline_s(config, dimension + bool(features.intercept), outputs))
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"devices": devices}),
            "training": config.training.model_copy(update={"deadline_s": deadline_s}),
        }
    )


@contextmanager
def in_terms_of_parameters() -> Iterator[None]:
    """Name the parameter instead of the key in refusals of a configuration, and write values as Python does."""
    names = {key: name for name, key in KEYS.items()}
    try:
        yield
    except InputError as error:
        keys = "|".join(re.escape(key) for key in names if "." in key)
        text = re.sub(rf"\b({keys})\b", lambda match: names[match[1]], str(error))
        text = re.sub(r"^(seed|schemes)\b(\[0\])?", lambda match: names[match[1]], text)
        text = re.sub(r"^([^ ]+ = )(.*?)( is not possible: )", _in_python, text, flags=re.DOTALL)
        text = text.replace("must be true or false", "must be True or False")
        text = re.sub(r" \(--[a-z-]+\)", "", text)  # options of the command line
        raise InputError(text) from error


def _in_python(match: re.Match[str]) -> str:
    """Turn the value of a refusal, which is JSON as in a file, into Python; leave one that was cut as it is."""
    try:
        return f"{match[1]}{json.loads(match[2])!r}{match[3]}"
    except ValueError:
        return match[0]


def _require_possible(params: Mapping[str, Any]) -> None:
    """Refuse values of which a configuration would say something else than the parameters do."""
    epsilon, rounds = params["epsilon"], params["rounds"]
    if epsilon is not None and not (_is_number(epsilon) and 0 < epsilon < np.inf):
        raise InputError(f"epsilon = {shown(epsilon)} must be a positive number, or None for no guarantee.")
    if rounds is not None and not (_is_number(rounds) and rounds >= 1 and rounds % 1 == 0):
        raise InputError(f"rounds = {shown(rounds)} must be an integer of 1 or more, or None for the default.")
    if rounds is not None and params["total_time_s"] is not None:
        raise InputError(
            f"rounds = {rounds} and total_time_s = {shown(params['total_time_s'])} both say how long to train: give one."
        )
    if not isinstance(params["standardize"], bool):
        raise InputError(f"standardize = {shown(params['standardize'])} must be True or False.")
    if params["features"] not in ("none", "rff"):
        raise InputError(f"features = {shown(params['features'])} is unknown: use 'none' or 'rff'.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _overrides(params: Mapping[str, Any], rows: int, columns: int) -> dict[str, Any]:
    """Return what the parameters set, by key."""
    _require_possible(params)
    scheme, epsilon, clip_norm = chosen_scheme(params, rows, columns), params["epsilon"], params["clip_norm"]
    values = {
        "schemes": [scheme],
        "seed": _seed(params["random_state"]),
        "data.dataset": "arrays",
        "data.devices": params["devices"],
        "features.map": params["features"],
        "features.dimension": params["dimension"],
        "features.gamma": params["gamma"],
        "features.standardize": False,  # done beforehand, in double precision
        "features.intercept": params["features"] != "rff",
        "privacy.epsilon": epsilon or 0.0,
        "privacy.delta": params["delta"],
        "privacy.threat_model": params["threat_model"],
        "coding.clip_norm": 0.0 if clip_norm == "auto" and epsilon is None else clip_norm,
        "privacy.label_bound": params.get("label_bound") or 0.0,
        "privacy.label_center": params.get("label_center", 0.0),
        "training.rounds": _rounds(params["rounds"], params["total_time_s"]),
    }
    values |= {KEYS[name]: params[name] for name in ("total_time_s", "deadline_s") if params[name] is not None}
    if params["rounds"] is not None and _has_rounds(scheme):
        values[f"options.{scheme}.rounds"] = params["rounds"]
    return values | _fleet_overrides(params["fleet"])


def _has_rounds(scheme: str) -> bool:
    """Return whether a scheme has the number of rounds as an option of its own."""
    return scheme in scheme_names() and "rounds" in inspect.signature(scheme_builder(scheme)).parameters


def _rounds(rounds: Any, total_time_s: Any) -> Any:
    """Return the number of rounds: as asked for, or by default, or 0 for as many as fit in the training time."""
    if rounds is not None:
        return rounds
    return DEFAULT_ROUNDS if total_time_s is None else 0


def _fleet_overrides(fleet: Any) -> dict[str, Any]:
    if fleet is None:
        return {}
    if isinstance(fleet, Mapping):
        return {f"fleet.{str(key).removeprefix('fleet.')}": value for key, value in fleet.items()}
    if isinstance(fleet, str | os.PathLike):
        return {"fleet.file": os.fspath(fleet)}
    raise InputError(
        f"fleet = {shown(fleet)} must be the path of a file, a dictionary such as {{'straggler_ratio': 0.5}}, or None."
    )


def _own_overrides(config: Any) -> dict[str, Any]:
    """Return the user's own values by key, or refuse what parameters and data determine."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InputError(f"config = {shown(config)} must be a dictionary such as {{'training.local_steps': 3}}.")
    values = dict(flatten(config.items()))
    names = {key: name for name, key in KEYS.items()}
    for key in values:
        if key in names:
            raise InputError(f"config sets {key}, for which there is a parameter: set {names[key]} instead.")
        if key.startswith("data.") and key not in OPEN_DATA_KEYS:
            raise InputError(f"config sets {key}, but the data is what fit is given: leave it out.")
    return values


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int):
        return random_state
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _shortest_deadline_s(config: Config, dimension: int, outputs: int) -> float:
    """Return a deadline that leaves devices time for more than the download of the model and a single row."""
    fleet = config.fleet
    work = Workload.for_linear_model(dimension, outputs, config.training.local_steps)
    row_s = work.local_steps * work.macs_per_sample / (fleet.mac_rate * fleet.mac_rate_factor[0])
    return ROOM * (work.payload_bits / fleet.download_rate_bps + row_s)
