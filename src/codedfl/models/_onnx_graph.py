"""An ONNX graph under construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

ML = "ai.onnx.ml"
"""Domain of the operators for classical models."""


class Graph:
    """Nodes, inputs and constants; every method takes and returns names of tensors.

    Names that it makes up begin with a slash, so that they differ from those of columns.

    Args:
        precision: type of constants, if nothing else is said.
    """

    def __init__(self, precision: npt.DTypeLike = np.float32) -> None:
        self.precision = np.dtype(precision)
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.constants: list[TensorProto] = []

    def input(self, name: str, kind: int, columns: int) -> str:
        """Declare an input, (rows, columns), of a type of ``onnx.TensorProto``."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["rows", columns]))
        return name

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Add a constant."""
        name = f"/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype or self.precision), name))
        return name

    @property
    def kind(self) -> int:
        """The precision as a type of ``onnx.TensorProto``."""
        return int(helper.np_dtype_to_tensor_dtype(self.precision))

    def add(self, operation: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any) -> str:
        """Add an operation with a single output."""
        output = output or f"/{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [output], domain=domain, **attributes))
        return output
