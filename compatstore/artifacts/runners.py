"""Run a network: with NumPy alone, float32 on the CPU; or with torch, in bfloat16 or on a CUDA device.

With NumPy batches run side by side with one BLAS thread each. Several threads on one matrix product leave a core idle
while the other adds biases, reads and writes; several products at once, with one thread each, do not. The last bits of
a product then do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import threadpoolctl

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture, forward
from compatstore.errors import InvalidInput, load_extra

if TYPE_CHECKING:
    import torch


_lock = Lock()
_holders = 0
_threads = 1
_limit: Any = None


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Hold NumPy's BLAS to one thread; gives the number of threads that it was set to, 1 or more.

    The setting is one for the whole process, so concurrent callers share it: the first one makes it, the last
    one takes it back.
    """
    global _holders, _threads, _limit
    with _lock:
        if not _holders:
            _threads = max([library["num_threads"] for library in _controller().info()], default=1)
            _limit = _controller().limit(limits=1)
        _holders += 1
    try:
        yield _threads
    finally:
        with _lock:
            _holders -= 1
            if not _holders:
                _limit.restore_original_limits()


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


# Bias, ReLU and exponential go over this many rows at a time, so that they find the product still in the cache.
_SLAB = 64


class NumpyRunner:
    """One network and its buffers, for batches of exactly `rows` rows; not to be shared between threads.

    Args:
        architecture: Description of the network.
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
        output, log_sigma2 = forward(self._architecture, self, source, side)
        return output, None if log_sigma2 is None else log_sigma2[:, 0]

    def hidden(self, layer: str, values: FloatArray) -> FloatArray:
        """Apply a dense layer and a ReLU."""
        return self.dense(layer, values, relu=True)

    def radial(self, values: FloatArray) -> FloatArray:
        """Apply the radial layer."""
        output = self._product("mixer.0.weight", values)
        bias = self._tensors["mixer.0.bias"]
        lengths = self._tensors["mixer.0.gamma"] * np.einsum("nd,nd->n", values, values)
        for start in range(0, len(output), _SLAB):
            slab = output[start : start + _SLAB]
            slab += bias
            slab -= lengths[start : start + _SLAB, None]
            np.exp(np.minimum(slab, 0, out=slab), out=slab)
        return output

    def joined(self, source: FloatArray, side: FloatArray) -> FloatArray:
        """Put the values of both branches side by side."""
        return np.concatenate((source, side), axis=1, out=self._joined)

    def dense(self, layer: str, values: FloatArray, *, relu: bool = False) -> FloatArray:
        """Apply a dense layer."""
        output = self._product(f"{layer}.weight", values)
        bias = self._tensors[f"{layer}.bias"]
        for start in range(0, len(output), _SLAB):
            slab = output[start : start + _SLAB]
            slab += bias
            if relu:
                np.maximum(slab, 0, out=slab)
        return output

    def skip(self, output: FloatArray, weight: str, values: FloatArray) -> FloatArray:
        """Add a linear map of `values` to the output."""
        output += self._product(weight, values)
        return output

    def unit(self, output: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scale to unit length; overflows become NaN, not zero."""
        lengths = np.maximum(np.linalg.norm(output, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        output /= np.where(np.isfinite(lengths), lengths, np.float32(np.nan))
        return output, lengths

    def log_inverse_square(self, lengths: FloatArray) -> FloatArray:
        """Log sigma^2 of lengths."""
        return -2 * np.log(lengths)

    def _product(self, weight: str, values: FloatArray) -> FloatArray:
        return np.matmul(values, self._tensors[weight].T, out=self._outputs[weight])


class TorchRunner:
    """One network on a device; holds no buffers, so that threads may share it.

    In bfloat16 the layers that make the output (last of the mixer, skip, log sigma^2) stay float32: they cost a few
    per cent of the time, and the output keeps its precision.

    Args:
        architecture: Description of the network.
        tensors: Its weights, float32, named as in `Architecture.shapes`.
        device: "cpu", "cuda" or "cuda:<n>".
        precision: "float32" or "bfloat16".

    Raises:
        MissingExtra: torch is not installed.
        InvalidInput: The machine has no such device.
    """

    def __init__(
        self, architecture: Architecture, tensors: Mapping[str, FloatArray], *, device: str, precision: str
    ) -> None:
        torch = load_extra("torch", "train")
        self._architecture = architecture
        self._device = torch.device(device)
        if self._device.type == "cuda" and (self._device.index or 0) >= torch.cuda.device_count():
            found = f"{torch.cuda.device_count()} CUDA devices on this machine"
            raise InvalidInput("apply an artifact", expected=f"device {device}", found=found)
        self._inner = torch.bfloat16 if precision == "bfloat16" else torch.float32
        wide = (f"mixer.{len(architecture.mixer)}.", "skip.", "skip_side.", "log_sigma2.", "mixer.0.gamma")
        self._tensors = {
            name: torch.from_numpy(np.array(tensor)).to(
                self._device, torch.float32 if name.startswith(wide) else self._inner
            )
            for name, tensor in tensors.items()
        }

    def __call__(self, source: FloatArray, side: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """Run one batch.

        Args:
            source: (rows, source_dim) float32.
            side: (rows, side_dim) float32, or None for a network without side branch.

        Returns:
            (rows, output_dim) and log sigma^2 (rows,) or None, float32.
        """
        import torch

        with torch.inference_mode():
            rows = torch.from_numpy(source).to(self._device)
            beside = None if side is None else torch.from_numpy(side).to(self._device)
            output, log_sigma2 = forward(self._architecture, self, rows, beside)
            return output.cpu().numpy(), None if log_sigma2 is None else log_sigma2[:, 0].cpu().numpy()

    def hidden(self, layer: str, values: torch.Tensor) -> torch.Tensor:
        """Apply a dense layer and a ReLU, in the precision of inner layers."""
        return self.dense(layer, values).relu_()

    def radial(self, values: torch.Tensor) -> torch.Tensor:
        """Apply the radial layer."""
        lengths = self._tensors["mixer.0.gamma"] * (values * values).sum(dim=1, keepdim=True)
        exponents: torch.Tensor = self.dense("mixer.0", values).float() - lengths
        return exponents.clamp_max(0).exp()

    def joined(self, source: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        """Put the values of both branches side by side."""
        import torch

        return torch.cat([source.to(self._inner), side.to(self._inner)], dim=1)

    def dense(self, layer: str, values: torch.Tensor) -> torch.Tensor:
        """Apply a dense layer, in the precision of its weights."""
        import torch

        weight = self._tensors[f"{layer}.weight"]
        return torch.nn.functional.linear(values.to(weight.dtype), weight, self._tensors[f"{layer}.bias"])

    def skip(self, output: torch.Tensor, weight: str, values: torch.Tensor) -> torch.Tensor:
        """Add a linear map of `values` to the output."""
        import torch

        return output + torch.nn.functional.linear(values, self._tensors[weight])

    def unit(self, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale to unit length; overflows become NaN, not zero."""
        lengths = output.norm(dim=1, keepdim=True).clamp_min(float(np.finfo(np.float32).tiny))
        return output / lengths.where(lengths.isfinite(), np.nan), lengths

    def log_inverse_square(self, lengths: torch.Tensor) -> torch.Tensor:
        """Log sigma^2 of lengths."""
        return lengths.log() * -2
