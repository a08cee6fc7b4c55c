"""Run a network with NumPy alone: float32 on the CPU, batches side by side with one BLAS thread each.

Several threads on one matrix product leave a core idle while the other adds biases, reads and writes; several products
at once, with one thread each, do not. The last bits of a product then do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import threadpoolctl

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Hold NumPy's BLAS to one thread; gives the number of threads that it was set to, 1 or more.

    The setting is one for the whole process, so callers at the same time share it: the first one makes it, the last
    one takes it back.
    """
    threads = _hold()
    try:
        yield threads
    finally:
        _release()


_lock = Lock()
_holders = 0
_threads = 1
_limit: Any = None


def _hold() -> int:
    global _holders, _threads, _limit
    with _lock:
        if not _holders:
            _threads = max([library["num_threads"] for library in _controller().info()], default=1)
            _limit = _controller().limit(limits=1)
        _holders += 1
        return _threads


def _release() -> None:
    global _holders, _limit
    with _lock:
        _holders -= 1
        if not _holders:
            _limit.restore_original_limits()
            _limit = None


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


# Bias, ReLU and exponential go over this many rows at a time, so that they find the product still in the cache.
_SLAB = 64


class NumpyRunner:
    """One network and its buffers, for batches of exactly `rows` rows; not to be shared between threads.

    Args:
        architecture: What the network looks like.
        tensors: Its weights, float32, named as in `Architecture.shapes`.
        rows: Rows of a batch.
    """

    def __init__(self, architecture: Architecture, tensors: Mapping[str, FloatArray], rows: int) -> None:
        self._architecture = architecture
        self._tensors = tensors
        self._outputs = {
            name: np.empty((rows, shape[0]), np.float32)
            for name, shape in architecture.shapes().items()
            if name.endswith("weight")
        }
        self._joined = np.empty((rows, architecture.joined_dim), np.float32)

    def __call__(self, source: FloatArray, side: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """Run one batch.

        Args:
            source: (rows, source_dim) float32.
            side: (rows, side_dim) float32, or None for a network without side branch.

        Returns:
            (rows, output_dim) and log sigma^2 (rows,) or None, float32; overwritten by the next call.
        """
        network = self._architecture
        features = self._branch("source", len(network.source_branch), source)
        if side is not None:
            branches = (features, self._branch("side", len(network.side_branch), side))
            features = np.concatenate(branches, axis=1, out=self._joined)
        features = self._branch("mixer", len(network.mixer), features, radial=network.radial)
        output = self._dense(f"mixer.{len(network.mixer)}", features, relu=False)
        if network.skip:
            output += self._product("skip.weight", source)
            if side is not None:
                output += self._product("skip_side.weight", side)
        log_sigma2 = self._dense("log_sigma2", output, relu=False)[:, 0] if network.uncertainty is True else None
        if network.normalise:
            norms = np.maximum(np.linalg.norm(output, axis=1, keepdims=True), np.finfo(np.float32).tiny)
            output /= np.where(np.isfinite(norms), norms, np.float32(np.nan))  # what overflows must not become zero
            if network.uncertainty == "length":
                log_sigma2 = -2 * np.log(norms[:, 0])
        return output, log_sigma2

    def _branch(self, part: str, depth: int, values: FloatArray, *, radial: bool = False) -> FloatArray:
        for index in range(depth):
            first = radial and not index
            values = self._radial(values) if first else self._dense(f"{part}.{index}", values, relu=True)
        return values

    def _radial(self, values: FloatArray) -> FloatArray:
        output = self._product("mixer.0.weight", values)
        bias = self._tensors["mixer.0.bias"]
        lengths = self._tensors["mixer.0.gamma"] * np.einsum("nd,nd->n", values, values)
        for start in range(0, len(output), _SLAB):
            slab = output[start : start + _SLAB]
            slab += bias
            slab -= lengths[start : start + _SLAB, None]
            np.exp(np.minimum(slab, 0, out=slab), out=slab)
        return output

    def _dense(self, layer: str, values: FloatArray, *, relu: bool) -> FloatArray:
        output = self._product(f"{layer}.weight", values)
        bias = self._tensors[f"{layer}.bias"]
        for start in range(0, len(output), _SLAB):
            slab = output[start : start + _SLAB]
            slab += bias
            if relu:
                np.maximum(slab, 0, out=slab)
        return output

    def _product(self, weight: str, values: FloatArray) -> FloatArray:
        return np.matmul(values, self._tensors[weight].T, out=self._outputs[weight])
