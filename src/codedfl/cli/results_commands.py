"""``codedfl report`` and ``watch``: results as a page; ``codedfl predict``, ``evaluate`` and ``export``: models on new rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl._messages import listing, number
from codedfl.cli.options import Json

if TYPE_CHECKING:
    from codedfl.models import ModelEvaluation, Part, Predictor
    from codedfl.typing import FloatArray

Model = Annotated[
    Path,
    typer.Argument(help="A model: models/SCHEME.safetensors of a run folder.", metavar="MODEL", show_default=False),
]

Data = Annotated[
    Path,
    typer.Argument(
        help="Rows: a .csv or .parquet table with the columns of the training data in any order, or an .npz with the array X.",
        metavar="DATA",
        show_default=False,
    ),
]

MOST_PARTS = 40
"""Maximum number of classes or devices listed."""


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a run, a sweep or a federation; several are compared.", metavar="RUN...", show_default=False
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(help="The page.", metavar="FILE", show_default="report.html in the first folder")
    ] = None,
    json_: Json = False,
) -> None:
    """Write one HTML page of a run, or of several side by side; it needs no network and nothing but itself.

    Example: codedfl report runs/first runs/second --out comparison.html
    """
    from codedfl.cli.outputs import require_writable
    from codedfl.report import read_runs, write_report

    if out is not None:
        require_writable("--out", out)
    records = read_runs(runs)
    path = write_report(runs, out)
    if json_:
        entries = [{"run": record.name, "folder": str(record.path), "state": record.state} for record in records]
        print(json.dumps({"page": str(path), "bytes": path.stat().st_size, "runs": entries}))
    else:
        Console().print(f"page: {path}", soft_wrap=True, markup=False, highlight=False)


def watch(
    run: Annotated[
        Path,
        typer.Argument(help="Folder of a run, a sweep or a federation.", metavar="RUN", show_default=False),
    ],
    *,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any that is free.", min=0, max=65535)] = 0,
    json_: Json = False,
) -> None:
    """Serve the page of a run on this machine, and keep it current while the run goes on; Ctrl-C ends it.

    Example: codedfl watch runs/first
    """
    from codedfl.report import Watch

    served = Watch(run, port)
    if json_:
        print(json.dumps({"url": served.url, "folder": str(run)}), flush=True)
    else:
        Console().print(f"{served.url}  (Ctrl-C ends it)", soft_wrap=True, markup=False, highlight=False)
    try:
        served.serve()
    except KeyboardInterrupt:
        return


def predict(
    model: Model,
    data: Data,
    *,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Add the output of every class, and its probability.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file.", metavar="FILE", show_default="standard output")
    ] = None,
    json_: Json = False,
) -> None:
    """Predict every row of a table with a trained model: CSV on standard output, one line per row.

    Example: codedfl predict runs/wards/models/ccfl.safetensors patients.csv > predicted.csv
    """
    from codedfl.cli.outputs import require_writable
    from codedfl.files import write_atomically
    from codedfl.models import Predictor, read_inputs

    if out is not None:
        require_writable("--out", out)
    loaded = Predictor.load(model)
    computed = loaded.outputs(read_inputs(loaded, data))
    text = (predictions_json if json_ else predictions_csv)(loaded, computed, with_outputs=outputs)
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text)


def evaluate(
    model: Model,
    data: Data,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Column with the truth; repeat it for several outputs.", show_default="that of training"),
    ] = None,
    device_column: Annotated[
        str | None,
        typer.Option(help="Column that names the device of each row.", show_default="that of training, if present"),
    ] = None,
    json_: Json = False,
) -> None:
    """Score a trained model on rows of which the truth is known, next to the best constant prediction.

    Example: codedfl evaluate runs/wards/models/ccfl.safetensors patients.csv --target readmitted
    """
    from codedfl.errors import InputError
    from codedfl.models import Predictor, evaluate_file

    loaded = Predictor.load(model)
    try:
        evaluation = evaluate_file(loaded, data, target=tuple(target or ()), device_column=device_column)
    except InputError as error:
        if str(error).startswith("target "):
            raise InputError(f"--{error}") from error
        raise
    if target and loaded.target_columns and set(target) != set(loaded.target_columns):
        trained, scored = (", ".join(map(repr, names)) for names in (loaded.target_columns, target))
        print(f"note: the model was trained to predict {trained}, and is scored on {scored}.", file=sys.stderr)
    if json_:
        print(json.dumps(evaluation.as_dict()))
    else:
        print_evaluation(loaded, evaluation, data, Console())


def export(
    model: Model,
    *,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.", metavar="FILE", show_default=False)],
    json_: Json = False,
) -> None:
    """Write a trained model as an ONNX file, for programs in any language.

    Example: codedfl export runs/wards/models/ccfl.safetensors --onnx wards.onnx
    """
    from codedfl.cli.outputs import require_writable
    from codedfl.models import Predictor, export_onnx

    require_writable("--onnx", onnx)
    loaded = Predictor.load(model)
    inputs = export_onnx(loaded, onnx)
    if json_:
        print(json.dumps({"file": str(onnx), "inputs": inputs, "targets": list(loaded.target_names)}))
    else:
        print_export(loaded, inputs, onnx, Console())


def predictions_csv(model: Predictor, outputs: FloatArray, *, with_outputs: bool) -> str:
    """Return one line per row: the class or the values, and on demand every output and probability of a classifier."""
    from codedfl.files import csv_text

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
    from codedfl.models import probabilities

    return probabilities(outputs, logits=model.logits).astype(outputs.dtype)


def print_evaluation(model: Predictor, evaluation: ModelEvaluation, data: Path, console: Console) -> None:
    """Print the scores, next to those of the best constant, and those of every class, output and device."""
    _say(console, f"{_origin(model)}: {evaluation.rows} rows of {data}")
    if evaluation.task == "classification":
        accuracy, trivial = evaluation.scores["accuracy"], evaluation.baseline["accuracy"]
        _say(
            console,
            f"accuracy {_shown(accuracy)}; always answering {evaluation.baseline_class!r} has {_shown(trivial)}",
        )
        if accuracy is not None and trivial is not None and accuracy <= trivial:
            _say(console, "note: the model is no better than that constant answer on these rows")
    else:
        _say(console, f"R2 {_shown(evaluation.scores['r2'])}; the mean of these rows has 0")
    for heading, parts in (
        ("class", evaluation.classes),
        ("output", evaluation.outputs),
        ("device", evaluation.devices),
    ):
        if parts:
            console.print(_parts_table(heading, parts))
    trained = model.provenance.get("score")
    if trained is not None:
        rows = model.provenance.get("test_samples")
        where = "its test rows" if rows is None else f"its own {rows} test rows"
        _say(console, f"in training it had {model.provenance.get('metric', 'score')} {trained:.4f} on {where}")


def print_export(model: Predictor, inputs: list[dict[str, Any]], path: Path, console: Console) -> None:
    """Print where the file is, and what goes in and comes out."""
    from codedfl.cli.tables import new_table

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
    from codedfl.cli.tables import new_table

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
