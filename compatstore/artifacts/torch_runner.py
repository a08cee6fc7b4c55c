"""Run a network with torch: bfloat16, or a CUDA device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    import torch


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
