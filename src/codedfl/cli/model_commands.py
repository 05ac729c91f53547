"""``codedfl predict``, ``codedfl evaluate`` and ``codedfl export``: what to do with a trained model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json

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
    from codedfl.cli.model_tables import predictions_csv, predictions_json
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
    from codedfl.cli.model_tables import print_evaluation
    from codedfl.errors import InputError
    from codedfl.models import Predictor, evaluate_file

    loaded = Predictor.load(model)
    try:
        found = evaluate_file(loaded, data, target=tuple(target or ()), device_column=device_column)
    except InputError as error:
        if str(error).startswith("target "):
            raise InputError(f"--{error}") from error
        raise
    if target and loaded.target_columns and set(target) != set(loaded.target_columns):
        trained, given = (", ".join(map(repr, names)) for names in (loaded.target_columns, target))
        print(f"note: the model was trained to predict {trained}, and is scored on {given}.", file=sys.stderr)
    if json_:
        print(json.dumps(found.as_dict()))
    else:
        print_evaluation(loaded, found, data, Console())


def export(
    model: Model,
    *,
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.", metavar="FILE", show_default=False)],
    json_: Json = False,
) -> None:
    """Write a trained model as an ONNX file, for programs in any language.

    Example: codedfl export runs/wards/models/ccfl.safetensors --onnx wards.onnx
    """
    from codedfl.cli.model_tables import print_export
    from codedfl.cli.outputs import require_writable
    from codedfl.models import Predictor, export_onnx

    require_writable("--onnx", onnx)
    loaded = Predictor.load(model)
    inputs = export_onnx(loaded, onnx)
    if json_:
        print(json.dumps({"file": str(onnx), "inputs": inputs, "targets": list(loaded.target_names)}))
    else:
        print_export(loaded, inputs, onnx, Console())
