"""A network with its weights: runs any number of rows in batches of one fixed size."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture, forward
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOperators
from compatstore.artifacts.runners import NumpyRunner, TorchRunner, one_thread_each
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput

Precision = Literal["float32", "bfloat16"]
"""Of a network's products. Not float16: its range ends at 65,504, so a hop would lose rows with larger values."""

PrecisionRequest = Literal["auto", Precision]
"""A precision, or the better one on this machine."""

DEVICE = re.compile(r"cpu|cuda(:\d+)?")

Runner = Callable[[FloatArray, FloatArray | None], tuple[FloatArray, FloatArray | None]]

# As fast as any larger batch on CPUs, and a single row, padded, costs least.
_CPU_ROWS = 512
_CUDA_ROWS = 16384
MOST_ROWS = 2**20  # of a batch, whose buffers are made before the first

LARGEST_LOG = 80.0  # of sigma^2


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings to run a network by.

    Args:
        batch_size: Rows of a batch, from 1 to 1,048,576; None takes 512 on the CPU and 16,384 on CUDA.
        device: "cpu", "cuda" or "cuda:<n>".
        precision: "float32", or "bfloat16" if speed matters more than the last digits.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    batch_size: int | None = None
    device: str = "cpu"
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if self.batch_size is not None and not 1 <= self.batch_size <= MOST_ROWS:
            expected = f"batch_size from 1 to {MOST_ROWS}"
            raise InvalidInput("apply an artifact", expected=expected, found=str(self.batch_size))
        if not DEVICE.fullmatch(self.device):
            raise InvalidInput("apply an artifact", expected="device cpu or cuda", found=repr(self.device))

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.batch_size or (_CPU_ROWS if self.device == "cpu" else _CUDA_ROWS)


class Network:
    """An architecture and its weights.

    Attributes:
        architecture: Description of the network.
        tensors: Its weights, float32, named as in `Architecture.shapes`.

    Args:
        architecture: Description of the network.
        tensors: Its weights, float32, named as in `Architecture.shapes`.
    """

    def __init__(self, architecture: Architecture, tensors: Mapping[str, FloatArray]) -> None:
        self.architecture = architecture
        self.tensors = MappingProxyType(dict(tensors))
        self._on_torch: dict[tuple[str, str], TorchRunner] = {}

    def run(
        self, source: FloatArray, side: FloatArray | None, execution: Execution
    ) -> tuple[FloatArray, FloatArray | None]:
        """Run all rows.

        Every batch has the same shape, the last one too: a matrix product may round a row differently when the batch
        has other dimensions, and a hop that is run again must give the same bits, however many rows follow.

        Args:
            source: (n, source_dim) float32, finite.
            side: (n, side_dim) float32, finite, or None for a network without side branch.
            execution: Device, batch size and precision.

        Returns:
            (n, output_dim) and sigma^2 (n,) or None, float32.
        """
        n, rows = len(source), execution.rows
        vectors = np.empty((n, self.architecture.output_dim), np.float32)
        log_sigma2 = np.empty(n, np.float32) if self.architecture.uncertainty else None

        def run_batches(starts: range) -> None:
            runner, batch = self._runner(execution), np.zeros((rows, source.shape[1]), np.float32)
            side_batch = None if side is None else np.zeros((rows, side.shape[1]), np.float32)
            for start in starts:
                size = min(rows, n - start)
                # Rows beyond `size` keep values of the batch before; their output is dropped.
                batch[:size] = source[start : start + size]
                if side is not None and side_batch is not None:
                    side_batch[:size] = side[start : start + size]
                with np.errstate(over="ignore", invalid="ignore"):  # callers check the output
                    output, logs = runner(batch, side_batch)
                vectors[start : start + size] = output[:size]
                if log_sigma2 is not None and logs is not None:
                    log_sigma2[start : start + size] = logs[:size]

        starts = range(0, n, rows)
        if execution.device != "cpu" or execution.precision != "float32":
            run_batches(starts)
        else:
            with one_thread_each() as threads, ThreadPoolExecutor(threads) as pool:
                parts = [starts[first::threads] for first in range(min(threads, len(starts)))]
                list(pool.map(run_batches, parts))  # raises the first error
        if log_sigma2 is None:
            return vectors, None
        # Clipped, so that sigma^2 is a finite, positive float32 for any network.
        return vectors, np.exp(np.clip(log_sigma2, -LARGEST_LOG, LARGEST_LOG))

    def to_onnx(self, graph: OnnxGraph, source: str, side: str | None) -> tuple[str, str | None]:
        """Add the network to an ONNX graph; see `run`.

        Args:
            graph: Gets its nodes and weights.
            source: Name of the value that holds (n, source_dim) float32.
            side: Name of the value that holds (n, side_dim) float32, or None for a network without side branch.

        Returns:
            Names of the values that hold (n, output_dim) and sigma^2 (n,); None for the latter if there is none.
        """
        vectors, log_sigma2 = forward(self.architecture, OnnxOperators(graph, self.tensors), source, side)
        return vectors, None if log_sigma2 is None else graph.exp_clipped(log_sigma2, LARGEST_LOG)

    def _runner(self, execution: Execution) -> Runner:
        # NumPy's product was the faster of the two in float32 on CPUs, and needs no second of importing torch.
        if execution.device == "cpu" and execution.precision == "float32":
            return NumpyRunner(self.architecture, self.tensors, execution.rows)
        key = (execution.device, execution.precision)
        if key not in self._on_torch:
            self._on_torch[key] = TorchRunner(
                self.architecture, self.tensors, device=execution.device, precision=execution.precision
            )
        return self._on_torch[key]
