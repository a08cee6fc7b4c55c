"""An artifact in int8 whose scales are fixed, so that a row comes out the same whichever rows are beside it.

`export --int8` takes the scales of a layer's inputs from each batch. A hop that is stopped and goes on elsewhere has
other batches. So here they are taken once, of a sample of the gallery's own vectors, and become part of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact, Transformed
from compatstore.artifacts.runners import one_thread_each
from compatstore.errors import InvalidInput, MissingExtra

LayerScales = Mapping[str, tuple[float, int]]  # dense layer's input -> size of a step, and the step that is zero
ROWS = 512  # of a batch; every batch has as many, so that what stays float32 is rounded alike
MARGIN = 1.125  # the range of a sample is exceeded by some rows of the gallery, and what lies outside is cut off
_DYNAMIC = "DynamicQuantizeLinear"


class FixedInt8:
    """One artifact in int8; it pickles, and threads may share it.

    Args:
        artifact: The artifact.
        scales: Of each dense layer's inputs, see `calibrated`.

    Raises:
        MissingExtra: `onnx` or `onnxruntime` is not installed; raised by the first call.
    """

    def __init__(self, artifact: Artifact, scales: LayerScales) -> None:
        self.artifact, self.scales = artifact, dict(scales)

    def __reduce__(self) -> tuple[Any, tuple[Artifact, LayerScales]]:
        return FixedInt8, (self.artifact, self.scales)

    def apply(self, vectors: FloatArray, side: FloatArray | None = None) -> Transformed:
        """Transform vectors; the same row gives the same bits in whatever company.

        Args:
            vectors: (n, dim) float32, finite, in the space that the artifact reads.
            side: (n, side_dim) float32 for an artifact that reads side-information, else None.
        """
        feeds, _ = _feeds(vectors, side), self._session
        with one_thread_each() as threads, ThreadPoolExecutor(threads) as pool:  # as many as float32 takes
            starts = range(0, len(vectors), ROWS)
            made = list(pool.map(lambda start: self._batch(feeds, start), starts or [0]))
        found = dict(zip(self._outputs, (np.concatenate(one) for one in zip(*made, strict=True)), strict=True))
        return Transformed(
            vectors=found["vectors"],
            uncertainty=found.get("uncertainty"),
            side=found.get("side"),
        )

    def _batch(self, feeds: Mapping[str, FloatArray], start: int) -> list[FloatArray]:
        """What a batch gives, less the rows that fill it up."""
        part = {name: rows[start : start + ROWS] for name, rows in feeds.items()}
        size = len(part["source_vectors"])
        filled = {name: np.zeros((ROWS, rows.shape[1]), np.float32) for name, rows in part.items()}
        for name, rows in part.items():
            filled[name][:size] = rows
        return [output[:size] for output in self._session.run(self._outputs, filled)]

    @cached_property
    def _outputs(self) -> list[str]:
        return [output.name for output in self._session.get_outputs()]

    @cached_property
    def _session(self) -> Any:
        return _session(_frozen(_quantised(self.artifact), self.scales))


def calibrated(artifact: Artifact, vectors: FloatArray, side: FloatArray | None = None) -> FixedInt8:
    """The artifact in int8, with scales for vectors like these.

    Args:
        artifact: The artifact.
        vectors: (n, dim) float32, finite, n >= 1: a sample of what will be transformed.
        side: (n, side_dim) float32 for an artifact that reads side-information, else None.

    Raises:
        InvalidInput: It has no dense layers, or what they read of these vectors is not finite.
        MissingExtra: `onnx` or `onnxruntime` is not installed.
    """
    import onnx

    model, asked = _quantised(artifact), f"run artifact {artifact.short_id} in int8"
    layers = _dynamic(model)
    if not layers:
        raise InvalidInput(asked, expected="an artifact with dense layers", found=artifact.manifest.method)
    tensor = onnx.TensorProto
    for layer in layers:
        for name, kind in zip(layer.output[1:], (tensor.FLOAT, tensor.UINT8), strict=True):
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, []))
    names = [name for layer in layers for name in layer.output[1:]]
    values = iter(_session(model).run(names, _feeds(vectors, side)))
    scales = {layer.input[0]: (MARGIN * float(next(values)), int(next(values))) for layer in layers}
    if not all(np.isfinite(np.float32(size)) and np.float32(size) > 0 for size, _ in scales.values()):
        raise InvalidInput(asked, expected="layers whose values are finite", found="values that overflow")
    return FixedInt8(artifact, scales)


def _quantised(artifact: Artifact) -> Any:
    """The artifact's model in int8, with scales that are taken from each batch."""
    from compatstore.devices.export import graph_of, quantised  # not needed by a hop in another precision

    return quantised(graph_of((artifact,), f"run artifact {artifact.short_id} in int8"))


def _frozen(model: Any, scales: LayerScales) -> Any:
    """The same model with these scales in place of a batch's."""
    import onnx

    for layer in _dynamic(model):
        size, zero = scales[layer.input[0]]
        found, *names = layer.output
        for name, value in zip(names, (np.float32(size), np.uint8(zero)), strict=True):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        layer.CopyFrom(onnx.helper.make_node("QuantizeLinear", [layer.input[0], *names], [found], name=layer.name))
    return model


def _dynamic(model: Any) -> list[Any]:
    return [node for node in model.graph.node if node.op_type == _DYNAMIC]


def _session(model: Any) -> Any:
    """The model, ready to run in one thread."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _feeds(vectors: FloatArray, side: FloatArray | None) -> dict[str, FloatArray]:
    feeds = {"source_vectors": np.ascontiguousarray(vectors, np.float32)}
    if side is not None:
        feeds["source_side"] = np.ascontiguousarray(side, np.float32)
    return feeds
