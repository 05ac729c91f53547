"""Predictions as CSV or JSON, and tables about a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl._messages import listing, number
from codedfl.cli.tables import new_table
from codedfl.files import csv_text
from codedfl.models import ModelEvaluation, Part, Predictor, probabilities
from codedfl.typing import FloatArray

MOST_PARTS = 40
"""Maximum number of classes or devices listed."""


def predictions_csv(model: Predictor, outputs: FloatArray, *, with_outputs: bool) -> str:
    """Return one line per row: the class or the values, and on demand every output and probability of a classifier."""
    if model.task == "regression":
        names = model.target_names
        header = ["prediction"] if len(names) == 1 else [f"prediction:{name}" for name in names]
        return csv_text(header, outputs)
    header, columns = ["prediction"], [model.labels(outputs)[:, None].astype(object)]
    if with_outputs:
        header += [f"{what}:{name}" for what in ("output", "probability") for name in model.target_names]
        columns += [outputs, _probabilities(model, outputs)]
    return csv_text(header, ([cell for part in row for cell in part] for row in zip(*columns, strict=True)))


def predictions_json(model: Predictor, outputs: FloatArray, *, with_outputs: bool) -> str:
    """Return the predictions as one JSON object on a line."""
    values: dict[str, Any] = {
        "task": model.task,
        "target_names": list(model.target_names),
        "rows": len(outputs),
        "predictions": model.labels(outputs).tolist(),
    }
    if with_outputs and model.task == "classification":
        values |= {"outputs": outputs.tolist(), "probabilities": _probabilities(model, outputs).tolist()}
    return json.dumps(values) + "\n"


def _probabilities(model: Predictor, outputs: FloatArray) -> FloatArray:
    return probabilities(outputs, logits=model.logits).astype(outputs.dtype)


def print_evaluation(model: Predictor, found: ModelEvaluation, data: Path, console: Console) -> None:
    """Print the scores, next to those of the best constant, and those of every class, output and device."""
    _say(console, f"{_origin(model)}: {found.rows} rows of {data}")
    if found.task == "classification":
        accuracy, trivial = found.scores["accuracy"], found.baseline["accuracy"]
        _say(console, f"accuracy {_shown(accuracy)}; always answering {found.baseline_class!r} has {_shown(trivial)}")
        if accuracy is not None and trivial is not None and accuracy <= trivial:
            _say(console, "note: the model is no better than that constant answer on these rows")
    else:
        _say(console, f"R2 {_shown(found.scores['r2'])}; the mean of these rows has 0")
    for heading, parts in (("class", found.classes), ("output", found.outputs), ("device", found.devices)):
        if parts:
            console.print(_parts_table(heading, parts))
    trained = model.provenance.get("score")
    if trained is not None:
        rows = model.provenance.get("test_samples")
        where = "its test rows" if rows is None else f"its own {rows} test rows"
        _say(console, f"in training it had {model.provenance.get('metric', 'score')} {trained:.4f} on {where}")


def print_export(model: Predictor, inputs: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print where the file is, and what goes in and comes out."""
    _say(console, f"{_origin(model)} written to {path}")
    if len(inputs) == 1 and inputs[0]["input"] == "inputs":
        columns = listing(inputs[0]["columns"]) or "in the order of the training data"
        width = model.feature_map.input_dimension
        _say(console, f"input 'inputs': (rows, {width}), {inputs[0]['meaning']}; columns: {columns}")
    else:
        table = new_table(caption="every input has the shape (rows, 1)")
        table.add_column("input", overflow="fold")
        table.add_column("values")
        for item in inputs:
            table.add_row(Text(item["input"]), item["meaning"])
        console.print(table)
    label = "; 'label': the class" if model.task == "classification" else ""
    _say(console, f"output 'outputs': (rows, {len(model.target_names)}), of {listing(model.target_names)}{label}")


def _origin(model: Predictor) -> str:
    """Return which model it is, in a few words."""
    origin = model.provenance
    of = origin.get("dataset", origin.get("federation"))
    return f"model of {origin['scheme']} on {of}" if "scheme" in origin and of else f"model for {model.task}"


def _parts_table(heading: str, parts: tuple[Part, ...]) -> Table:
    names = list(parts[0].scores)
    left_out = len(parts) - MOST_PARTS
    table = new_table(caption=f"and {left_out} more; --json has all" if left_out > 0 else None)
    table.add_column(heading, overflow="fold")
    for name in ("rows", *names):
        table.add_column(Text(name.replace("_", " ")), justify="right")
    for part in parts[:MOST_PARTS]:
        # Errors have the unit of the target; all other scores are shares of one.
        cells = [_shown(value) if "rmse" not in name else number(value or 0) for name, value in part.scores.items()]
        table.add_row(Text(part.name), str(part.rows), *cells)
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
