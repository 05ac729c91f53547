"""Models as ONNX graphs, for programs that know nothing of this library."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy.typing as npt
from onnx import ModelProto, checker, helper

from codedfl._version import __version__
from codedfl.data import FeatureMap
from codedfl.errors import InputError
from codedfl.models._onnx_graph import ML, Graph
from codedfl.models._onnx_inputs import LABEL, OUTPUTS, add_inputs, describe_inputs
from codedfl.models._predictor import Predictor

OPSETS = (("", 17), (ML, 3))
"""Versions of the operators, old enough for runtimes of 2022."""

IR_VERSION = 8

LARGEST_BYTES = 2**31 - 2**20
"""Protocol buffers hold less than 2 GiB."""


def onnx_model(model: Predictor) -> ModelProto:
    """Return a model as a checked ONNX graph; see `to_onnx`."""
    precision = model.precision
    size = precision.itemsize * (
        model.weights.size + sum(array.size for array in model.feature_map.to_arrays().values())
    )
    if size > LARGEST_BYTES:
        raise InputError(f"the model has {size} bytes, more than an ONNX file can hold: lower features.dimension.")
    graph = Graph(precision)
    _add_outputs(graph, model, _add_features(graph, model.feature_map, add_inputs(graph, model)))
    results = [helper.make_tensor_value_info(OUTPUTS, graph.kind, ["rows", len(model.target_names)])]
    if model.task == "classification":
        kind = helper.np_dtype_to_tensor_dtype(_classes(model).dtype)
        results.append(helper.make_tensor_value_info(LABEL, kind, ["rows"]))
    made: ModelProto = helper.make_model(
        helper.make_graph(graph.nodes, "codedfl", graph.inputs, results, graph.constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in OPSETS],
        ir_version=IR_VERSION,
        producer_name="codedfl",
        producer_version=__version__,
    )
    helper.set_model_props(made, _metadata(model))
    checker.check_model(made, full_check=True)
    return made


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
    if model.feature_map.intercept:
        sums = graph.add("MatMul", features, graph.constant(model.weights[:-1]))
        graph.add("Add", sums, graph.constant(model.weights[-1]), output=OUTPUTS)
    else:
        graph.add("MatMul", features, graph.constant(model.weights), output=OUTPUTS)
    if model.task == "classification":
        classes = _classes(model)
        places = graph.add("ArgMax", OUTPUTS, axis=1, keepdims=0)
        graph.add("Gather", graph.constant(classes, classes.dtype), places, output=LABEL)


def _classes(model: Predictor) -> npt.NDArray[Any]:
    """Return the classes in a type that ONNX has."""
    classes = model.classes
    return classes.astype(object) if classes.dtype.kind == "U" else classes


def _metadata(model: Predictor) -> dict[str, str]:
    values = {
        "task": model.task,
        "inputs": describe_inputs(model),
        "target_names": list(model.target_names),
        "target_columns": list(model.target_columns),
        "logits": model.logits,
        "privacy": model.privacy,
        "provenance": dict(model.provenance),
    }
    return {f"codedfl.{name}": json.dumps(value) for name, value in values.items()}
