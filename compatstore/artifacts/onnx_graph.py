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
from compatstore.artifacts.architecture import Architecture
from compatstore.errors import MissingExtra

OPSET, IR_VERSION = 18, 8  # read by onnxruntime 1.14 and later


@dataclass(frozen=True, kw_only=True)
class OnnxOutputs:
    """Names of the values that hold what an artifact makes; see `Transformed`."""

    vectors: str
    uncertainty: str | None = None
    side: str | None = None


class OnnxGraph:
    """Nodes and weights, in the order in which they were added. A value goes by its name, a text.

    Raises:
        MissingExtra: `onnx` is not installed.
    """

    def __init__(self) -> None:
        self._onnx = load_onnx()
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
        """Values as bits are read: 1 above zero, and -1 otherwise."""
        above = self.add("Greater", values, self._number(0))
        return self.add("Where", above, self._number(1), self._number(-1))

    def radial(self, products: str, vectors: str, gamma: FloatArray) -> str:
        """exp(min(products - gamma |x|^2, 0)), (n, units), of products with their bias and vectors x (n, dim)."""
        squares = self.add("ReduceSumSquare", vectors, self._axis(), keepdims=1)
        exponent = self.add("Sub", products, self.add("Mul", squares, self.weight(gamma)))
        return self.add("Exp", self.add("Min", exponent, self._number(0)))

    def unit_length(self, vectors: str) -> str:
        """Scale rows to unit length in float32; zero stays zero, and what overflows becomes NaN."""
        length = self.add("ReduceL2", vectors, self._axis(), keepdims=1)
        divisor = self.add("Max", length, self._number(np.finfo(np.float32).tiny))
        infinite = self.add("IsInf", length)
        return self.add("Div", vectors, self.add("Where", infinite, self._number(np.nan), divisor))

    def log_inverse_square_length(self, vectors: str) -> str:
        """(n, d) -> (n, 1): -2 log of the length of each row, in float32."""
        length = self.add("ReduceL2", vectors, self._axis(), keepdims=1)
        log = self.add("Log", self.add("Max", length, self._number(np.finfo(np.float32).tiny)))
        return self.add("Mul", log, self._number(-2.0))

    def exact_unit_length(self, vectors: str) -> str:
        """Scale rows to unit length as derivations do, by lengths in float64; a row of zeros becomes NaN."""
        wide = self._wide(vectors)
        scaled = self.add("Div", wide, self._length(wide))
        return self.add("Cast", scaled, to=self._onnx.TensorProto.FLOAT)

    def only_unit(self, vectors: str, tolerance: float) -> str:
        """NaN for rows whose length differs from 1 by more than the tolerance."""
        one, most = (self.weight(np.array(number, np.float64)) for number in (1.0, tolerance))
        apart = self.add("Abs", self.add("Sub", self._length(self._wide(vectors)), one))
        return self.add("Where", self.add("LessOrEqual", apart, most), vectors, self._number(np.nan))

    def exp_clipped(self, values: str, largest: float) -> str:
        """(n, 1) -> (n,), the exponential of values that are limited to plus and minus `largest`."""
        clipped = self.add("Clip", values, self._number(-largest), self._number(largest))
        return self.add("Squeeze", self.add("Exp", clipped), self._axis())

    def model(self, inputs: Mapping[str, int], outputs: Mapping[str, tuple[str, int | None]]) -> Any:
        """Make the whole an `onnx.ModelProto`, and check it.

        Args:
            inputs: Name of each input -> values of a row.
            outputs: Name of each output -> the value that it is, and values of a row, None for one number a row.
        """
        helper, number = self._onnx.helper, self._onnx.TensorProto.FLOAT
        ends = [helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        graph = helper.make_graph(
            [*self._nodes, *ends],
            "compatstore",
            [helper.make_tensor_value_info(name, number, ["rows", dim]) for name, dim in inputs.items()],
            [
                helper.make_tensor_value_info(name, number, ["rows"] if dim is None else ["rows", dim])
                for name, (_, dim) in outputs.items()
            ],
            self._weights,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="compatstore"
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _number(self, value: float | np.floating[Any]) -> str:
        return self.weight(np.array(value, np.float32))

    def _axis(self) -> str:
        return self.weight(np.array([1], np.int64))

    def _wide(self, vectors: str) -> str:
        return self.add("Cast", vectors, to=self._onnx.TensorProto.DOUBLE)

    def _length(self, wide: str) -> str:
        return self.add("Sqrt", self.add("ReduceSumSquare", wide, self._axis(), keepdims=1))


def add_network(
    graph: OnnxGraph, network: Architecture, tensors: Mapping[str, FloatArray], source: str, side: str | None
) -> tuple[str, str | None]:
    """Add a network; one `Gemm` and `Relu` for a layer, and more for a radial one.

    Args:
        graph: Gets its nodes and weights.
        network: What it looks like.
        tensors: Its weights, float32, named as in `Architecture.shapes`.
        source: Name of the value that holds (n, source_dim) float32.
        side: Name of the value that holds (n, side_dim) float32, or None for a network without side branch.

    Returns:
        Names of the values that hold (n, output_dim) and log sigma^2 (n, 1), or None for the latter.
    """

    def dense(layer: str, values: str) -> str:
        names = (graph.weight(tensors[f"{layer}.{part}"]) for part in ("weight", "bias"))
        return graph.add("Gemm", values, *names, transB=1)

    def branch(part: str, depth: int, values: str) -> str:
        for index in range(depth):
            products = dense(f"{part}.{index}", values)
            if network.radial and (part, index) == ("mixer", 0):
                values = graph.radial(products, values, tensors["mixer.0.gamma"])
            else:
                values = graph.add("Relu", products)
        return values

    def added(output: str, skip: str, values: str) -> str:
        return graph.add("Add", output, graph.add("Gemm", values, graph.weight(tensors[skip]), transB=1))

    features = branch("source", len(network.source_branch), source)
    if side is not None:
        features = graph.add("Concat", features, branch("side", len(network.side_branch), side), axis=1)
    features = branch("mixer", len(network.mixer), features)
    output = dense(f"mixer.{len(network.mixer)}", features)
    if network.skip:
        output = added(output, "skip.weight", source)
        output = output if side is None else added(output, "skip_side.weight", side)
    log_sigma2 = dense("log_sigma2", output) if network.uncertainty is True else None
    if network.uncertainty == "length":
        log_sigma2 = graph.log_inverse_square_length(output)
    return graph.unit_length(output) if network.normalise else output, log_sigma2


def load_onnx() -> Any:
    """The module `onnx`.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra("onnx", "onnx") from error
    return onnx
