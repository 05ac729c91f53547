"""Trackers of two services, MLflow and TensorBoard, and how one is named in a word."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain, count, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.tracking._tracker import Tracker
from codedfl.training import Status

MOST_PARAMS = 100
"""Parameters that MLflow takes at once."""

IMPATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""MLflow waits minutes for a server that may come back; whether there is one at all takes seconds."""

ENDINGS: dict[Status, str] = {"completed": "FINISHED", "diverged": "FAILED", "interrupted": "KILLED"}


class MLflowCallback(Tracker):
    """Records every scheme of a comparison as a run in MLflow: parameters, metrics by round, and tags at the end.

    It uses its own client and leaves MLflow's active run alone. MLflow's telemetry is switched off, unless its environment
    variables say otherwise. Needs the extra ``mlflow``.

    Args:
        tracking_uri: a folder, or a URI as MLflow understands it (``http://...``, ``sqlite:///...``).
        experiment: name of the experiment in MLflow; it is created if there is none.

    Raises:
        InputError: if MLflow is not installed or cannot use the URI.

    Example:
        >>> import codedfl
        >>> with MLflowCallback("mlruns") as tracker:  # doctest: +SKIP
        ...     comparison = codedfl.run({"training.rounds": 100}, callbacks=(tracker,))
    """

    def __init__(self, tracking_uri: str | Path, experiment: str = "codedfl") -> None:
        super().__init__()
        _require("MLflowCallback", "mlflow", extra="mlflow")
        try:
            self.client: Any = _client(str(tracking_uri))
            with _impatient():
                existing = self.client.get_experiment_by_name(experiment)
            self.experiment_id = existing.experiment_id if existing else self.client.create_experiment(experiment)
        except Exception as error:  # MLflow raises its own errors and those of requests, sqlalchemy and the file system
            raise InputError(
                f"MLflow cannot use tracking_uri = {str(tracking_uri)!r} with the experiment {experiment!r} ({error}): give a"
                " folder, or the URI of a tracking server that is running."
            ) from error

    def start(self, title: str, params: Mapping[str, str]) -> _MLflowWriter:
        """Begin a run with its parameters."""
        import mlflow

        tags = {"codedfl.scheme": params["scheme"], "codedfl.configuration": params["configuration"]}
        run_id = self.client.create_run(self.experiment_id, run_name=title, tags=tags).info.run_id
        items = iter(params.items())
        while part := [mlflow.entities.Param(*item) for item in islice(items, MOST_PARAMS)]:
            self.client.log_batch(run_id, params=part)
        return _MLflowWriter(self.client, run_id)


class _MLflowWriter:
    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id

    def log_metrics(self, metrics: Mapping[str, float], round: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        self.client.log_batch(self.run_id, [Metric(name, value, now_ms, round) for name, value in metrics.items()])

    def log_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self.client.log_batch(self.run_id, tags=[RunTag(f"codedfl.{name}", value) for name, value in tags.items()])

    def close(self, status: Status) -> None:
        self.client.set_terminated(self.run_id, ENDINGS.get(status, "FAILED"))


def _require(tracker: str, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise InputError(f'{tracker} needs {package}, which is not installed: run pip install "codedfl[{extra}]".')


@contextmanager
def _impatient() -> Iterator[None]:
    """Give up soon on a server that does not answer, unless the user's environment says how long to try."""
    ours = [name for name in IMPATIENCE if name not in os.environ]
    os.environ.update({name: IMPATIENCE[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _client(uri: str) -> Any:
    """Return a client for a URI, or for a folder."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    os.environ.setdefault("DO_NOT_TRACK", "true")
    if urlsplit(uri).scheme in ("", "file"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow prefers a database, which not all have
        uri = uri if uri.startswith("file:") else Path(uri).absolute().as_uri()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


class TensorBoardCallback(Tracker):
    """Records every scheme of a comparison for TensorBoard: scalars by round, and tables of parameters and tags.

    Each run has a folder of its own, named by its scheme; a number is added if there is one already. Needs the extra
    ``tensorboard``, which writes; ``tensorboard --logdir FOLDER`` shows.

    Args:
        folder: the folder for all runs; created if there is none.

    Raises:
        InputError: if tensorboardX is not installed or the folder cannot be made.

    Example:
        >>> import codedfl
        >>> with TensorBoardCallback("tensorboard") as tracker:  # doctest: +SKIP
        ...     comparison = codedfl.run({"training.rounds": 100}, callbacks=(tracker,))
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        _require("TensorBoardCallback", "tensorboardX", extra="tensorboard")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"folder = {str(folder)!r} cannot be made ({error.strerror}): give another one."
            ) from error

    def start(self, title: str, params: Mapping[str, str]) -> _TensorBoardWriter:  # noqa: ARG002
        """Begin a run in a new folder, with a table of its parameters."""
        from tensorboardX import SummaryWriter

        writer = SummaryWriter(str(self._new_folder(params["scheme"])))
        writer.add_text("configuration", _table(params))
        return _TensorBoardWriter(writer)

    def _new_folder(self, scheme: str) -> Path:
        names = chain([scheme], (f"{scheme}-{number}" for number in count(2)))
        return next(path for path in map(self.folder.joinpath, names) if not path.exists())


class _TensorBoardWriter:
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def log_metrics(self, metrics: Mapping[str, float], round: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()  # so that the page can follow

    def log_tags(self, tags: Mapping[str, str]) -> None:
        self.writer.add_text("result", _table(tags))

    def close(self, status: Status) -> None:  # noqa: ARG002
        self.writer.close()


def _table(values: Mapping[str, str]) -> str:
    """Return a Markdown table, which TensorBoard shows as one."""
    rows = [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in values.items()]
    return "\n".join(["| | |", "| --- | --- |", *rows])


def tracker_from(text: str) -> Tracker:
    """Return the tracker that ``mlflow:URI`` or ``tensorboard:FOLDER`` names.

    Raises:
        InputError: for any other text, or if the tracker cannot be made.

    Example:
        >>> tracker_from("wandb:project")
        Traceback (most recent call last):
        codedfl.errors.InputError: track = 'wandb:project' is not possible: give mlflow:URI or tensorboard:FOLDER.
    """
    service, _, place = text.partition(":")
    trackers: dict[str, Callable[[str], Tracker]] = {"mlflow": MLflowCallback, "tensorboard": TensorBoardCallback}
    if place and service in trackers:
        return trackers[service](place)
    raise InputError(f"track = {shown(text)} is not possible: give mlflow:URI or tensorboard:FOLDER.")
