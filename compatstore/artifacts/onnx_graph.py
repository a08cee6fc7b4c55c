"""Artifacts as an ONNX graph: the operators of which their computation consists, without torch.

The graph computes what `runners.py` and the kinds compute, operator by operator. `devices/export.py` makes a file
of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.errors import load_extra

OPSET, IR_VERSION = 18, 8  # read by onnxruntime 1.14 and later


@dataclass(frozen=True, kw_only=True)
class OnnxOutputs:
    """Names of an artifact's output values; see `Transformed`."""

    vectors: str
    uncertainty: str | None = None
    side: str | None = None


class OnnxGraph:
    """Nodes and weights, in the order in which they were added. A value goes by its name, a text.

    Raises:
        MissingExtra: `onnx` is not installed.
    """

    def __init__(self) -> None:
        self._onnx = load_extra("onnx", "onnx")
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def add(self, operator: str, *inputs: str, **attributes: float | int) -> str:
        """Add one operator of ONNX; return the name of its output."""
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def weight(self, values: npt.NDArray[np.generic]) -> str:
        """Add a constant; return its name."""
        name = f"weight_{len(self._weights)}"
        self._weights.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def first(self, vectors: str, dim: int) -> str:
        """(n, more than `dim`) -> (n, dim), the first values of each row."""
        start, stop, axis = (self.weight(np.array([number], np.int64)) for number in (0, dim, 1))
        return self.add("Slice", vectors, start, stop, axis)

    def signs(self, values: str) -> str:
        """Values of bits: 1 above zero, and -1 otherwise."""
        above = self.add("Greater", values, self.number(0))
        return self.add("Where", above, self.number(1), self.number(-1))

    def unit(self, vectors: str) -> tuple[str, str]:
        """Unit vectors, and lengths (n, 1); zero stays zero, and a length beyond float32 gives NaN."""
        length = self.add("ReduceL2", vectors, self.axis(), keepdims=1)
        divisor = self.add("Max", length, self.number(float(np.finfo(np.float32).tiny)))
        infinite = self.add("IsInf", length)
        return self.add("Div", vectors, self.add("Where", infinite, self.number(np.nan), divisor)), divisor

    def exact_unit_length(self, vectors: str) -> str:
        """Scale rows to unit length as derivations do, by lengths in float64; a row of zeros becomes NaN."""
        wide = self._wide(vectors)
        scaled = self.add("Div", wide, self._length(wide))
        return self.add("Cast", scaled, to=self._onnx.TensorProto.FLOAT)

    def only_unit(self, vectors: str, tolerance: float) -> str:
        """NaN for rows whose length differs from 1 by more than the tolerance."""
        one, most = (self.weight(np.array(number, np.float64)) for number in (1.0, tolerance))
        apart = self.add("Abs", self.add("Sub", self._length(self._wide(vectors)), one))
        return self.add("Where", self.add("LessOrEqual", apart, most), vectors, self.number(np.nan))

    def exp_clipped(self, values: str, largest: float) -> str:
        """(n, 1) -> (n,), the exponential of values that are limited to plus and minus `largest`."""
        clipped = self.add("Clip", values, self.number(-largest), self.number(largest))
        return self.add("Squeeze", self.add("Exp", clipped), self.axis())

    def model(self, inputs: Mapping[str, int], outputs: Mapping[str, tuple[str, int | None]]) -> Any:
        """Make the whole an `onnx.ModelProto`, and check it.

        Args:
            inputs: Name of each input -> values of a row.
            outputs: Name of each output -> the value that it is, and values of a row, None for one number a row.
        """
        helper, number = self._onnx.helper, self._onnx.TensorProto.FLOAT
        ends = [helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        read = [helper.make_tensor_value_info(name, number, ["rows", dim]) for name, dim in inputs.items()]
        made = [
            helper.make_tensor_value_info(name, number, ["rows"] if dim is None else ["rows", dim])
            for name, (_, dim) in outputs.items()
        ]
        graph = helper.make_graph([*self._nodes, *ends], "compatstore", read, made, self._weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="compatstore"
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def number(self, value: float) -> str:
        """Add a float32 constant; return its name."""
        return self.weight(np.array(value, np.float32))

    def axis(self) -> str:
        """Add the axis of the values of a row; return its name."""
        return self.weight(np.array([1], np.int64))

    def _wide(self, vectors: str) -> str:
        return self.add("Cast", vectors, to=self._onnx.TensorProto.DOUBLE)

    def _length(self, wide: str) -> str:
        return self.add("Sqrt", self.add("ReduceSumSquare", wide, self.axis(), keepdims=1))


class OnnxOperators:
    """The operations of one network: one `Gemm` and `Relu` for a layer, and more for a radial one.

    Args:
        graph: Gets the nodes and weights.
        tensors: Weights of the network, float32, named as in `Architecture.shapes`.
    """

    def __init__(self, graph: OnnxGraph, tensors: Mapping[str, FloatArray]) -> None:
        self._graph, self._tensors = graph, tensors

    def hidden(self, layer: str, values: str) -> str:
        """Apply a dense layer and a ReLU."""
        return self._graph.add("Relu", self.dense(layer, values))

    def radial(self, values: str) -> str:
        """Apply the radial layer: exp(min(products - gamma |x|^2, 0)), of products with their bias."""
        add, gamma = self._graph.add, self._graph.weight(self._tensors["mixer.0.gamma"])
        squares = add("ReduceSumSquare", values, self._graph.axis(), keepdims=1)
        exponent = add("Sub", self.dense("mixer.0", values), add("Mul", squares, gamma))
        return add("Exp", add("Min", exponent, self._graph.number(0)))

    def joined(self, source: str, side: str) -> str:
        """Put the values of both branches side by side."""
        return self._graph.add("Concat", source, side, axis=1)

    def dense(self, layer: str, values: str) -> str:
        """Apply a dense layer."""
        names = (self._graph.weight(self._tensors[f"{layer}.{part}"]) for part in ("weight", "bias"))
        return self._graph.add("Gemm", values, *names, transB=1)

    def skip(self, output: str, weight: str, values: str) -> str:
        """Add a linear map of `values` to the output."""
        product = self._graph.add("Gemm", values, self._graph.weight(self._tensors[weight]), transB=1)
        return self._graph.add("Add", output, product)

    def unit(self, output: str) -> tuple[str, str]:
        """Scale to unit length."""
        return self._graph.unit(output)

    def log_inverse_square(self, lengths: str) -> str:
        """Log sigma^2 of lengths."""
        return self._graph.add("Mul", self._graph.add("Log", lengths), self._graph.number(-2))
