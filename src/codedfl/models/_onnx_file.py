"""ONNX files, which need a package that is not always installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from codedfl.errors import InputError
from codedfl.files import require_room_for, write_atomically
from codedfl.models._predictor import Predictor


def export_onnx(model: Predictor, path: Path | str) -> list[dict[str, Any]]:
    """Write a model to an ONNX file that computes what `Predictor.outputs` returns, in the model's own precision.

    A model of numeric columns has one input, ``inputs``, a matrix with a column for each of them, in order, of the type that
    the model computes in (`Predictor.precision`): float64 for a model of an estimator, float32 for one of a run. A model whose
    preprocessing reads categories, dates or bounded numbers has an input for each column of the raw table, by its name,
    (rows, 1). The output ``outputs`` has the outputs, (rows, o); a classifier also has ``label``, the classes, (rows,), as text
    or in the type that they had in training. What the inputs mean, the names of targets, privacy statement and provenance are
    in the metadata of the file, as JSON.

    Args:
        model: the model.
        path: the file.

    Returns:
        Every input of the graph: its name ``input``, the ``columns`` of the table that it holds, and their ``meaning``.

    Raises:
        InputError: if the package ``onnx`` is not installed, the folder is missing, or the model is too large for such a file.
    """
    require_room_for(path)
    if find_spec("onnx") is None:
        raise InputError('writing an ONNX file needs the package onnx: run pip install "codedfl[onnx]".')
    from codedfl.models._onnx import onnx_model
    from codedfl.models._onnx_inputs import describe_inputs

    write_atomically(path, onnx_model(model).SerializeToString(deterministic=True))
    return describe_inputs(model)
