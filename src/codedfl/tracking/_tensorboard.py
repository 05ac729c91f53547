"""Runs in TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

from codedfl.errors import InputError
from codedfl.tracking._tracker import Tracker
from codedfl.training import Status


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
        if find_spec("tensorboardX") is None:
            raise InputError(
                'TensorBoardCallback needs tensorboardX, which is not installed: run pip install "codedfl[tensorboard]".'
            )
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
