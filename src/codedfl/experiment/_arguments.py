"""What a run takes: a configuration in one of several forms, and callbacks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from codedfl._messages import shown
from codedfl.config import Config, load_config
from codedfl.errors import InputError
from codedfl.experiment._build import Experiment
from codedfl.training import Callback, Scheme

Settings = Config | Mapping[str, Any] | str | Path
"""A configuration, what differs from the defaults (see `load_config`), or the path of a TOML file."""

Callbacks = Callback | Iterable[Callback]
"""One callback, or several."""


def as_config(given: Settings) -> Config:
    """Return the configuration that is given, read from a file, or made of overrides.

    Example:
        >>> as_config({"training.rounds": 20})
        Config(training=TrainingConfig(rounds=20))
        >>> as_config(3)
        Traceback (most recent call last):
        codedfl.errors.InputError: config = 3 is no configuration: give a Config, a dictionary, or the path of a TOML file.
    """
    if isinstance(given, Config):
        return given
    if isinstance(given, Mapping):
        return load_config(overrides=given)
    if isinstance(given, str | os.PathLike):
        return load_config(given)
    raise InputError(
        f"config = {shown(given)} is no configuration: give a Config, a dictionary, or the path of a TOML file."
    )


def as_callbacks(given: Callbacks) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple, or refuse what is none.

    Example:
        >>> len(as_callbacks(Callback())), len(as_callbacks([Callback(), Callback()]))
        (1, 2)
        >>> as_callbacks(3)
        Traceback (most recent call last):
        codedfl.errors.InputError: callbacks = 3 is no codedfl.training.Callback: give one, or a tuple of them.
    """
    if isinstance(given, Callback):
        return (given,)
    everything = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for each in everything:
        if not isinstance(each, Callback):
            raise InputError(
                f"callbacks = {shown(each)} is no codedfl.training.Callback: give one, or a tuple of them."
            )
    return everything


class PerRunCallback(Callback):
    """Makes a callback of its own for every run of a comparison or a sweep.

    Runs may advance in lock-step, and a callback is not told whose round it was. Short runs that choose a step size get none.

    Example:
        >>> from codedfl.experiment import run
        >>> class Names(PerRunCallback):
        ...     def for_run(self, experiment, scheme):
        ...         print(experiment.config.data.dataset, scheme.title)
        ...         return Callback()
        >>> comparison = run({"schemes": ["fedavg"], "training.rounds": 2}, callbacks=(Names(),))
        digits FedAvg
    """

    def for_run(self, experiment: Experiment, scheme: Scheme) -> Callback:
        """Return the callback of one run.

        Args:
            experiment: configuration, data, fleet and code.
            scheme: the scheme that is about to be trained.
        """
        raise NotImplementedError
