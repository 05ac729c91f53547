"""How well a saved model does on rows of which the truth is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from codedfl.data import Task
from codedfl.files import plain
from codedfl.models._predictor import Predictor
from codedfl.models._rows import LabelledRows, read_labelled
from codedfl.typing import BoolArray, FloatArray

Scores = Mapping[str, float | None]


@dataclass(frozen=True)
class Part:
    """The scores of some rows, or of one output.

    Args:
        name: of the class, the output or the device.
        rows: how many there are.
        scores: by the name of the score; None where it is undefined.
    """

    name: str
    rows: int
    scores: Scores


@dataclass(frozen=True)
class ModelEvaluation:
    """How well a model does on rows of which the truth is known.

    Args:
        task: classification or regression.
        rows: how many there are.
        scores: ``accuracy``; or ``r2``, averaged over outputs, and ``rmse`` if there is a single output.
        baseline: the same scores of the best constant: the most frequent class of these rows, or their mean.
        baseline_class: that class.
        classes: ``recall`` of every class of the model.
        outputs: ``rmse``, ``baseline_rmse`` and ``r2`` of every output of a regression.
        devices: ``accuracy``, or ``rmse`` of every output, of the rows of each device; empty if devices are unknown.
    """

    task: Task
    rows: int
    scores: Scores
    baseline: Scores
    baseline_class: str | None
    classes: tuple[Part, ...]
    outputs: tuple[Part, ...]
    devices: tuple[Part, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        values: dict[str, Any] = plain(asdict(self))
        for parts in ("classes", "outputs", "devices"):
            values[parts] = [part.pop("scores") | part for part in values[parts]]
        return values


def evaluate_file(
    model: Predictor, path: Path, *, target: tuple[str, ...] = (), device_column: str | None = None
) -> ModelEvaluation:
    """Evaluate a model on a file; see `read_labelled` for the arguments.

    Raises:
        InputError: if the file cannot be read or does not fit the model.
    """
    return evaluate_model(model, read_labelled(model, path, target=target, device_column=device_column))


def evaluate_model(model: Predictor, rows: LabelledRows) -> ModelEvaluation:
    """Evaluate a model on rows.

    Example:
        >>> from codedfl.data import FeatureMap
        >>> unchanged = FeatureMap(None, None, None, None, np.ones(1, np.float32), False, input_dimension=1)
        >>> model = Predictor(unchanged, np.array([[-1.0, 1.0]]), "classification", ("no", "yes"))
        >>> truth = np.array([[1, 0], [1, 0], [0, 1]])
        >>> found = evaluate_model(model, LabelledRows(np.array([[-1.0], [2.0], [1.0]]), truth, ("a", "b", "b")))
        >>> found.scores, found.baseline, [(part.name, part.scores["recall"]) for part in found.classes]
        ({'accuracy': 0.666...}, {'accuracy': 0.666...}, [('no', 0.5), ('yes', 1.0)])
    """
    outputs = model.outputs(rows.inputs)
    judge = _classification if model.task == "classification" else _regression
    return judge(model, outputs, rows)


def _classification(model: Predictor, outputs: FloatArray, rows: LabelledRows) -> ModelEvaluation:
    truth = rows.targets.argmax(axis=1)
    hits = outputs.argmax(axis=1) == truth
    counts = np.bincount(truth, minlength=len(model.target_names))
    right = np.bincount(truth, weights=hits, minlength=len(model.target_names))
    most = int(counts.argmax())
    return ModelEvaluation(
        task="classification",
        rows=len(truth),
        scores={"accuracy": float(hits.mean())},
        baseline={"accuracy": float(counts[most] / len(truth))},
        baseline_class=model.target_names[most],
        classes=tuple(
            Part(name, int(count), {"recall": float(found / count) if count else None})
            for name, count, found in zip(model.target_names, counts, right, strict=True)
        ),
        outputs=(),
        devices=tuple(
            Part(name, count, {"accuracy": float(share[0])}) for name, count, share in _by_device(rows, hits[:, None])
        ),
    )


def _regression(model: Predictor, outputs: FloatArray, rows: LabelledRows) -> ModelEvaluation:
    targets = rows.targets.astype(np.float64)
    errors = outputs - targets
    rmse, baseline = _rmse(errors), _rmse(targets - targets.mean(axis=0))
    scores = _r2(targets, outputs)
    names, several = model.target_names, len(model.target_names) > 1
    keys = [f"rmse of {name}" for name in names] if several else ["rmse"]
    r2 = None if scores is None else float(scores.mean())
    return ModelEvaluation(
        task="regression",
        rows=len(targets),
        scores={"r2": r2} if several else {"r2": r2, "rmse": rmse[0]},
        baseline={"r2": 0.0} if several else {"r2": 0.0, "rmse": baseline[0]},
        baseline_class=None,
        classes=(),
        outputs=tuple(
            Part(
                name,
                len(targets),
                {
                    "rmse": rmse[i],
                    "baseline_rmse": baseline[i],
                    "r2": None if scores is None else float(scores[i]),
                },
            )
            for i, name in enumerate(names)
        ),
        devices=tuple(
            Part(name, count, dict(zip(keys, np.sqrt(squares).tolist(), strict=True)))
            for name, count, squares in _by_device(rows, np.square(errors))
        ),
    )


def _rmse(errors: FloatArray) -> list[float]:
    return [float(value) for value in np.sqrt(np.square(errors).mean(axis=0))]


def _r2(targets: FloatArray, outputs: FloatArray) -> FloatArray | None:
    """Return R2 of every output; None for fewer than two rows, where it is undefined."""
    if len(targets) < 2:
        return None
    from sklearn.metrics import r2_score

    values: FloatArray = np.asarray(r2_score(targets, outputs, multioutput="raw_values"))
    return values


def _by_device(rows: LabelledRows, values: FloatArray | BoolArray) -> Iterator[tuple[str, int, FloatArray]]:
    """Yield name, number of rows and mean values of every device, in the order in which they appear."""
    if rows.devices is None:
        return
    codes, names = pd.factorize(np.array(rows.devices, dtype=object))
    counts = np.bincount(codes)
    means = np.column_stack([np.bincount(codes, weights=column) / counts for column in values.T])
    for name, count, mean in zip(names, counts, means, strict=True):
        yield str(name), int(count), mean
