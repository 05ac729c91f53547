"""The inputs of a model as an ONNX graph takes them: a matrix, or the columns of a raw table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from codedfl.models._onnx_graph import ML, Graph
from codedfl.models._predictor import Predictor

if TYPE_CHECKING:
    from codedfl.data import Column, Preprocessing

OUTPUTS, LABEL = "outputs", "label"
"""Names of the outputs."""

MATRIX = "inputs"
MEANINGS = {
    "number": "float64; NaN if missing",
    "boolean": "float64: 1 for true, 0 for false; NaN if missing",
    "date": "float64: days since 2000-01-01 in UTC, times of day as fractions; NaN if missing",
    "category": "text without blanks around it; empty if missing",
}


def add_inputs(graph: Graph, model: Predictor) -> str:
    """Declare the inputs, add the preprocessing, and return the numeric inputs of the feature map, (rows, p)."""
    preprocessing = model.preprocessing
    if preprocessing is None:
        return graph.input(MATRIX, graph.kind, model.feature_map.input_dimension)
    if preprocessing.is_numeric:
        matrix = graph.input(MATRIX, TensorProto.FLOAT, model.feature_map.input_dimension)
        fill = graph.constant([[column.fill for column in preprocessing.columns]], np.float32)
        table = graph.add("Where", graph.add("IsNaN", matrix), fill, matrix)
    else:
        table = _add_table(graph, preprocessing)
    return table if graph.kind == TensorProto.FLOAT else graph.add("Cast", table, to=graph.kind)


def describe_inputs(model: Predictor) -> list[dict[str, Any]]:
    """Return name, columns and meaning of every input of the graph."""
    preprocessing = model.preprocessing
    if preprocessing is None or preprocessing.is_numeric:
        meaning = str(model.precision) if preprocessing is None else "float32; NaN if missing"
        return [{"input": MATRIX, "columns": list(model.input_names), "meaning": meaning}]
    return [
        {"input": _input_name(column), "columns": [column.name], "meaning": MEANINGS[column.kind]}
        for column in preprocessing.columns
    ]


def _add_table(graph: Graph, preprocessing: Preprocessing) -> str:
    parts = [_add_column(graph, column) for column in preprocessing.columns]
    return graph.add("Cast", graph.add("Concat", *parts, axis=1), to=TensorProto.FLOAT)


def _add_column(graph: Graph, column: Column) -> str:
    """Add one column, in float64 like scikit-learn's transformers."""
    if column.kind == "category":
        codes = graph.add(
            "LabelEncoder",
            graph.input(_input_name(column), TensorProto.STRING, 1),
            domain=ML,
            keys_strings=[*column.categories, ""],
            values_int64s=[*range(len(column.categories)), _code_of_missing(column)],
            default_int64=-1,
        )
        every = graph.constant([range(len(column.categories))], np.int64)
        return graph.add("Cast", graph.add("Equal", codes, every), to=TensorProto.DOUBLE)
    given = graph.input(_input_name(column), TensorProto.DOUBLE, 1)
    values = graph.add("Where", graph.add("IsNaN", given), graph.constant([[column.fill]], np.float64), given)
    if column.bounds is None:
        return values
    low, high = column.bounds
    shifted = graph.add("Sub", values, graph.constant([[low]], np.float64))
    scaled = graph.add("Mul", shifted, graph.constant([[2 / (high - low)]], np.float64))
    centred = graph.add("Sub", scaled, graph.constant([[1.0]], np.float64))
    limits = (graph.constant(np.float64(limit), np.float64) for limit in (-1.0, 1.0))
    return graph.add("Clip", centred, *limits)


def _code_of_missing(column: Column) -> int:
    return column.categories.index(str(column.fill)) if column.fill in column.categories else -1


def _input_name(column: Column) -> str:
    return f"{column.name} (column)" if column.name in (OUTPUTS, LABEL) else column.name
