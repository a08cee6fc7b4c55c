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
from compatstore.artifacts.architecture import Architecture
from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    import torch


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


class TorchRunner:
    """One network on a device; holds no buffers, so that threads may share it.

    In bfloat16 the layers that make the output (last of the mixer, skip, log sigma^2) stay float32: they cost a few
    per cent of the time, and the output keeps its precision.

    Args:
        architecture: What the network looks like.
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
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("torch", "train") from error
        self._architecture = architecture
        self._device = torch.device(device)
        if self._device.type == "cuda" and (self._device.index or 0) >= torch.cuda.device_count():
            found = f"{torch.cuda.device_count()} CUDA devices on this machine"
            raise InvalidInput("apply an artifact", expected=f"device {device}", found=found)
        self._inner = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._last = f"mixer.{len(architecture.mixer)}"
        self._tensors = {
            name: torch.from_numpy(np.array(tensor)).to(self._device, self._dtype_of(name))
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
            output, log_sigma2 = self.forward(self._load(source), None if side is None else self._load(side))
            return output.cpu().numpy(), None if log_sigma2 is None else log_sigma2.cpu().numpy()

    def forward(self, source: torch.Tensor, side: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run rows that are on the device: (rows, output_dim) and log sigma^2 (rows,) or None, float32, there."""
        import torch

        network = self._architecture
        features = self._branch("source", len(network.source_branch), source.to(self._inner))
        if side is not None:
            branch = self._branch("side", len(network.side_branch), side.to(self._inner))
            features = torch.cat([features, branch], dim=1)
        if network.radial:
            features = self._radial(features, source)
        features = self._branch("mixer", len(network.mixer), features, first=int(network.radial))
        output = self._dense(self._last, features.float())
        if network.skip:
            output += torch.nn.functional.linear(source, self._tensors["skip.weight"])
            if side is not None:
                output += torch.nn.functional.linear(side, self._tensors["skip_side.weight"])
        log_sigma2 = self._dense("log_sigma2", output)[:, 0] if network.uncertainty is True else None
        if network.normalise:
            norms = output.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
            output = output / torch.where(norms.isfinite(), norms, torch.nan)  # what overflows must not become zero
            if network.uncertainty == "length":
                log_sigma2 = -2 * norms[:, 0].log()
        return output, log_sigma2

    def _branch(self, part: str, depth: int, values: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        for index in range(first, depth):
            values = self._dense(f"{part}.{index}", values).relu_()
        return values

    def _radial(self, features: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        products = self._dense("mixer.0", features).float()
        lengths = self._tensors["mixer.0.gamma"] * (source * source).sum(dim=1, keepdim=True)
        return (products - lengths).clamp_max(0).exp().to(self._inner)

    def _dense(self, layer: str, values: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.functional.linear(values, self._tensors[f"{layer}.weight"], self._tensors[f"{layer}.bias"])

    def _load(self, values: FloatArray) -> torch.Tensor:
        import torch

        return torch.from_numpy(values).to(self._device)

    def _dtype_of(self, name: str) -> torch.dtype:
        import torch

        makes_output = name.startswith((f"{self._last}.", "skip.", "skip_side.", "log_sigma2.", "mixer.0.gamma"))
        return torch.float32 if makes_output else self._inner
