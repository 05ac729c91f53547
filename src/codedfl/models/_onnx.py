"""Models as ONNX graphs, for programs that know nothing of this library.

The package ``onnx`` is not always installed, and takes a while to import: `export_onnx` asks for it, and `Graph` alone uses it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codedfl._version import __version__
from codedfl.data import Column, FeatureMap, Preprocessing
from codedfl.errors import InputError
from codedfl.files import require_room_for, write_atomically
from codedfl.models._predictor import Predictor

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

ML = "ai.onnx.ml"
"""Domain of the operators for classical models."""

OPSETS = (("", 17), (ML, 3))
"""Versions of the operators, old enough for runtimes of 2022."""

IR_VERSION = 8

LARGEST_BYTES = 2**31 - 2**20
"""Protocol buffers hold less than 2 GiB."""

OUTPUTS, LABEL = "outputs", "label"
"""Names of the outputs."""

MATRIX = "inputs"
MEANINGS = {
    "number": "float64; NaN if missing",
    "boolean": "float64: 1 for true, 0 for false; NaN if missing",
    "date": "float64: days since 2000-01-01 in UTC, times of day as fractions; NaN if missing",
    "category": "text without blanks around it; empty if missing",
}


def export_onnx(model: Predictor, path: Path | str) -> list[dict[str, Any]]:
    """Write a model to an ONNX file that computes what `Predictor.outputs` returns, in the model's own precision.

    A model of numeric columns has one input, ``inputs``, a matrix with a column for each of them, in order, of the type that
    the model computes in (`Predictor.precision`): float64 for a model of an estimator, float32 for most of a run. A model whose
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
    entries = model.weights.size + sum(array.size for array in model.feature_map.to_arrays().values())
    size = model.precision.itemsize * entries
    if size > LARGEST_BYTES:
        raise InputError(f"the model has {size} bytes, more than an ONNX file can hold: lower features.dimension.")
    graph = Graph(model.precision)
    _add_outputs(graph, model, _add_features(graph, model.feature_map, _add_inputs(graph, model)))
    write_atomically(path, graph.model(_metadata(model)).SerializeToString(deterministic=True))
    return _inputs(model)


class Graph:
    """An ONNX graph under construction; every method takes and returns names of tensors.

    Names that it makes up begin with a slash, so that they differ from those of columns.

    Args:
        precision: type of constants, if nothing else is said.
    """

    def __init__(self, precision: npt.DTypeLike) -> None:
        self.precision = np.dtype(precision)
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.constants: list[TensorProto] = []

    def input(self, name: str, dtype: npt.DTypeLike, columns: int) -> str:
        """Declare an input, (rows, columns)."""
        self.inputs.append(_declaration(name, dtype, columns))
        return name

    def output(self, name: str, dtype: npt.DTypeLike, *columns: int) -> str:
        """Declare an output, (rows, columns) or (rows,)."""
        self.outputs.append(_declaration(name, dtype, *columns))
        return name

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        name = f"/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype or self.precision), name))
        return name

    def add(self, operation: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any) -> str:
        """Add an operation with a single output."""
        from onnx import helper

        output = output or f"/{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [output], domain=domain, **attributes))
        return output

    def cast(self, tensor: str, dtype: npt.DTypeLike) -> str:
        """Add a conversion to another type."""
        return self.add("Cast", tensor, to=_type(dtype))

    def model(self, metadata: Mapping[str, str]) -> ModelProto:
        """Return the finished graph as a checked model."""
        from onnx import checker, helper

        made: ModelProto = helper.make_model(
            helper.make_graph(self.nodes, "codedfl", self.inputs, self.outputs, self.constants),
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in OPSETS],
            ir_version=IR_VERSION,
            producer_name="codedfl",
            producer_version=__version__,
        )
        helper.set_model_props(made, dict(metadata))
        checker.check_model(made, full_check=True)
        return made


def _declaration(name: str, dtype: npt.DTypeLike, *columns: int) -> ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, _type(dtype), ["rows", *columns])


def _type(dtype: npt.DTypeLike) -> int:
    """Return a type of numpy as one of ``onnx.TensorProto``; text is an object."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _add_inputs(graph: Graph, model: Predictor) -> str:
    """Declare the inputs, add the preprocessing, and return the numeric inputs of the feature map, (rows, p)."""
    preprocessing, width = model.preprocessing, model.feature_map.input_dimension
    if preprocessing is None:
        return graph.input(MATRIX, graph.precision, width)
    if preprocessing.is_numeric:
        matrix = graph.input(MATRIX, preprocessing.precision, width)
        fill = graph.constant([[column.fill for column in preprocessing.columns]], preprocessing.precision)
        table = graph.add("Where", graph.add("IsNaN", matrix), fill, matrix)
    else:
        table = _add_table(graph, preprocessing)
    return table if graph.precision == preprocessing.precision else graph.cast(table, graph.precision)


def _inputs(model: Predictor) -> list[dict[str, Any]]:
    """Return name, columns and meaning of every input of the graph."""
    preprocessing = model.preprocessing
    if preprocessing is None or preprocessing.is_numeric:
        meaning = str(model.precision) if preprocessing is None else f"{preprocessing.precision}; NaN if missing"
        return [{"input": MATRIX, "columns": list(model.input_names), "meaning": meaning}]
    return [
        {"input": _input_name(column), "columns": [column.name], "meaning": MEANINGS[column.kind]}
        for column in preprocessing.columns
    ]


def _add_table(graph: Graph, preprocessing: Preprocessing) -> str:
    parts = [_add_column(graph, column) for column in preprocessing.columns]
    return graph.cast(graph.add("Concat", *parts, axis=1), preprocessing.precision)


def _add_column(graph: Graph, column: Column) -> str:
    """Add one column, in float64 like scikit-learn's transformers."""
    if column.is_category:
        codes = graph.add(
            "LabelEncoder",
            graph.input(_input_name(column), object, 1),
            domain=ML,
            keys_strings=[*column.categories, ""],
            values_int64s=[*range(len(column.categories)), _code_of_missing(column)],
            default_int64=-1,
        )
        every = graph.constant([range(len(column.categories))], np.int64)
        return graph.cast(graph.add("Equal", codes, every), np.float64)
    raw = graph.input(_input_name(column), np.float64, 1)
    values = graph.add("Where", graph.add("IsNaN", raw), graph.constant([[column.fill]], np.float64), raw)
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


def _add_features(graph: Graph, fitted: FeatureMap, inputs: str) -> str:
    """Add a feature map without its intercept."""
    if fitted.input_mean is not None and fitted.input_scale is not None:
        centred = graph.add("Sub", inputs, graph.constant(fitted.input_mean))
        inputs = graph.add("Div", centred, graph.constant(fitted.input_scale))
    if fitted.frequencies is not None and fitted.offsets is not None:
        projected = graph.add("MatMul", inputs, graph.constant(fitted.frequencies))
        waves = graph.add("Cos", graph.add("Add", projected, graph.constant(fitted.offsets)))
        inputs = graph.add("Mul", waves, graph.constant([math.sqrt(2 / len(fitted.offsets))]))
    return graph.add("Div", inputs, graph.constant(fitted.output_scale))


def _add_outputs(graph: Graph, model: Predictor, features: str) -> None:
    """Add the linear model, and the class of the largest output."""
    graph.output(OUTPUTS, graph.precision, len(model.target_names))
    if model.feature_map.intercept:
        sums = graph.add("MatMul", features, graph.constant(model.weights[:-1]))
        graph.add("Add", sums, graph.constant(model.weights[-1]), output=OUTPUTS)
    else:
        graph.add("MatMul", features, graph.constant(model.weights), output=OUTPUTS)
    if model.task == "classification":
        classes = model.classes.astype(object) if model.class_type == "str" else model.classes
        places = graph.add("ArgMax", OUTPUTS, axis=1, keepdims=0)
        graph.add("Gather", graph.constant(classes, classes.dtype), places, output=graph.output(LABEL, classes.dtype))


def _metadata(model: Predictor) -> dict[str, str]:
    values = {
        "task": model.task,
        "inputs": _inputs(model),
        "target_names": list(model.target_names),
        "target_columns": list(model.target_columns),
        "logits": model.logits,
        "privacy": model.privacy,
        "provenance": dict(model.provenance),
    }
    return {f"codedfl.{name}": json.dumps(value) for name, value in values.items()}
