"""What trackers have in common: what of a run they write down, and when."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Protocol, Self

from codedfl._messages import number
from codedfl._version import __version__
from codedfl.config import Config
from codedfl.experiment import Experiment, PerRunCallback, guarantee_of_run
from codedfl.identity import identity
from codedfl.training import Callback, Evaluation, RunProgress, RunResult, Scheme, Status


class Writer(Protocol):
    """Where the record of one run goes."""

    def log_metrics(self, metrics: Mapping[str, float], round: int) -> None:
        """Write finite numbers, measured after a round."""

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Write what is known at the end."""

    def close(self, status: Status) -> None:
        """End the record."""


class Tracker(PerRunCallback):
    """A callback that keeps a record of every run; subclasses say where.

    As a context manager it closes the records of runs that an error ended. A record that can no longer be written ends with a
    warning, and training goes on.
    """

    def __init__(self) -> None:
        self._open: dict[_Record, Writer] = {}

    def start(self, title: str, params: Mapping[str, str]) -> Writer:
        """Begin the record of a run.

        Args:
            title: name of the scheme.
            params: the configuration, by ``section.key``, and what else the run depends on.
        """
        raise NotImplementedError

    def for_run(self, experiment: Experiment, scheme: Scheme) -> Callback:
        """Return the callback of one run, whose record begins with its first round."""
        return _Record(self, experiment, scheme)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for record in list(self._open):
            record.close("interrupted")


class _Record(Callback):
    def __init__(self, tracker: Tracker, experiment: Experiment, scheme: Scheme) -> None:
        self.tracker, self.experiment, self.scheme = tracker, experiment, scheme
        self.last: Evaluation | None = None

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Give the record up if it cannot be written: hours of training are worth more."""
        try:
            yield
        except Exception as error:  # whatever a library, a file system or a network raises
            self.tracker._open.pop(self, None)
            name = type(self.tracker).__name__
            warnings.warn(f"{name} stops recording {self.scheme.title} ({error}); training goes on.", stacklevel=2)

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        params = {"rounds_planned": str(rounds), **params_of(self.experiment.config, self.scheme)}
        with self._going_on():
            self.tracker._open[self] = self.tracker.start(self.scheme.title, params)
        for point in progress.curve:  # the model before the first round, and those before a resume
            self.on_evaluation(point)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        metrics = {name: float(value) for name, value in asdict(evaluation).items() if name != "round"}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        if self in self.tracker._open:
            with self._going_on():
                self.tracker._open[self].log_metrics(finite, evaluation.round)
        self.last = evaluation

    def on_end(self, result: RunResult) -> None:
        if result.final != self.last:  # a run that diverged stops before it says so, or returns to an earlier model
            self.on_evaluation(result.final)
        if self in self.tracker._open:
            tags = tags_of(result, self.experiment)
            with self._going_on():
                self.tracker._open[self].log_tags(tags)
            self.close(result.status)

    def close(self, status: Status) -> None:
        if (writer := self.tracker._open.pop(self, None)) is not None:
            with self._going_on():
                writer.close(status)


def params_of(config: Config, scheme: Scheme) -> dict[str, str]:
    """Return what a run depends on as text: its scheme with its options, and the configuration by ``section.key``."""
    values = config.model_dump(mode="json")
    options = values.pop("options").get(scheme.name, {})
    del values["schemes"]
    params = {"scheme": scheme.name, "codedfl_version": __version__, "configuration": identity(config)[:16]}
    for key, value in [*values.items(), (f"options.{scheme.name}", options)]:
        nested = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
        params |= {name: item if isinstance(item, str) else json.dumps(item) for name, item in nested.items()}
    return params


def tags_of(result: RunResult, experiment: Experiment) -> dict[str, str]:
    """Return how a run ended, its step size, and what is known of its privacy, as text."""
    guarantee = guarantee_of_run(result, experiment.config, experiment.feature_map, experiment.preprocessing)
    tags = {
        "status": result.status,
        "message": result.message,
        "step_size": f"{result.learning_rate.initial:.6g}",
        "privacy.epsilon": number(guarantee.epsilon),
        "privacy.delta": f"{guarantee.delta:g}",
        "privacy.covers": guarantee.covers,
        "privacy.threat_model": guarantee.against,
        "privacy.outside": "; ".join(guarantee.outside),
    }
    return {name: value for name, value in tags.items() if value}
