"""The network that is trained on pairs, and the dense layers that it is stored as."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn

from compatstore.artifacts.architecture import Architecture

Tensors = dict[str, torch.Tensor]


class Prediction(NamedTuple):
    """What the network predicts for n items.

    Attributes:
        vectors: (n, output_dim), of unit length where the architecture says so; but in training not where the length
            says sigma^2.
        log_sigma2: (n,), or None for an architecture without uncertainty.
    """

    vectors: torch.Tensor
    log_sigma2: torch.Tensor | None


class TwoBranch(nn.Module):
    """Branches for source and side-information, a mixer on both (FCT, section 3.3 and appendix D.1).

    Every layer is Linear-BatchNorm-ReLU, except the linear output. With branches of 256, 256 and a mixer of 2048, 2048
    it is the paper's network: 5.7 million parameters at 128/128/128. Dropout and noise are active in training alone,
    so that the stored network is plain dense layers.

    Args:
        architecture: Widths and options.
        bias: Whether the linear layers before a batch normalisation have a bias; the output always has one.
        norm: Whether layers have a batch normalisation.
        dropout: Share of the values that each layer drops, in [0, 1).
        noise: Deviation of the Gaussian noise on the inputs, relative to their own deviation in the batch, >= 0.
        gain: Multiplies the output, > 0: the length of the vectors that a step of the optimiser moves by. sigma^2 reads
            the output before that.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        bias: bool = True,
        norm: bool = True,
        dropout: float = 0.0,
        noise: float = 0.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.architecture, self.noise, self.gain = architecture, noise, gain
        source_dim, side_dim, output_dim = architecture.source_dim, architecture.side_dim, architecture.output_dim

        def stack(*widths: int) -> nn.Sequential:
            return _stack(widths, bias=bias, norm=norm, dropout=dropout)

        self.source = stack(source_dim, *architecture.source_branch)
        self.side = None if side_dim is None else stack(side_dim, *architecture.side_branch)
        self.mixer = stack(architecture.joined_dim, *architecture.mixer)
        self.output = nn.Linear((architecture.joined_dim, *architecture.mixer)[-1], output_dim)
        self.skip = nn.Linear(source_dim, output_dim, bias=False) if architecture.skip else None
        has_skip_side = architecture.skip and side_dim is not None
        self.skip_side = nn.Linear(side_dim or 0, output_dim, bias=False) if has_skip_side else None
        self.log_sigma2 = nn.Linear(output_dim, 1) if architecture.uncertainty is True else None

    def forward(self, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        """Map source vectors (n, source_dim) and side-information (n, side_dim) or None."""
        source, side = self._noisy(source), None if side is None else self._noisy(side)
        features = self.source(source)
        if self.side is not None:
            features = torch.cat([features, self.side(side)], dim=1)
        features = self.mixer(features)
        # The layers of the output stay float32 where others are bfloat16, as in the stored network.
        with torch.autocast(source.device.type, enabled=False):
            return self._output(features.float(), source, side)

    def _output(self, features: torch.Tensor, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        vectors = self.output(features)
        if self.skip is not None:
            vectors = vectors + self.skip(source)
        if self.skip_side is not None:
            vectors = vectors + self.skip_side(side)
        log_sigma2 = None if self.log_sigma2 is None else self.log_sigma2(vectors)[:, 0]
        vectors = self.gain * vectors
        if self.architecture.uncertainty == "length":
            if self.training:  # the length is what is learned
                return Prediction(vectors, None)
            log_sigma2 = -2 * vectors.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny).log()
        if self.architecture.normalise:
            vectors = nn.functional.normalize(vectors, dim=1)
        return Prediction(vectors, log_sigma2)

    def _noisy(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.noise:
            return values
        return values + self.noise * values.std(dim=0) * torch.randn_like(values)


def fold(model: TwoBranch) -> Tensors:
    """Return the model in evaluation mode as dense layers: batch normalisation is folded into them, in float64.

    Returns:
        Tensors named as in `Architecture.shapes`, float64 on the CPU; weights (out, in).
    """
    parts = {"source": model.source, "mixer": model.mixer}
    if model.side is not None:
        parts["side"] = model.side
    tensors = {name: value for part, stack in parts.items() for name, value in _folded(part, stack)}
    depth = len(model.architecture.mixer)
    tensors[f"mixer.{depth}.weight"] = model.gain * _exact(model.output.weight)
    tensors[f"mixer.{depth}.bias"] = model.gain * _exact(model.output.bias)
    if model.skip is not None:
        tensors["skip.weight"] = model.gain * _exact(model.skip.weight)
    if model.skip_side is not None:
        tensors["skip_side.weight"] = model.gain * _exact(model.skip_side.weight)
    if model.log_sigma2 is not None:
        tensors["log_sigma2.weight"] = _exact(model.log_sigma2.weight) / model.gain
        tensors["log_sigma2.bias"] = _exact(model.log_sigma2.bias)
    return tensors


def _stack(widths: tuple[int, ...], *, bias: bool, norm: bool, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers.append(nn.Linear(fan_in, fan_out, bias=bias))
        layers += [nn.BatchNorm1d(fan_out)] if norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)


def _folded(part: str, stack: nn.Sequential) -> Iterator[tuple[str, torch.Tensor]]:
    linears = [module for module in stack if isinstance(module, nn.Linear)]
    norms: list[nn.BatchNorm1d | None] = [module for module in stack if isinstance(module, nn.BatchNorm1d)]
    for index, (linear, norm) in enumerate(zip(linears, norms or [None] * len(linears), strict=True)):
        scale, shift = _affine(linear.out_features, norm)
        weight = _exact(linear.weight)
        bias = torch.zeros(len(weight), dtype=weight.dtype) if linear.bias is None else _exact(linear.bias)
        yield f"{part}.{index}.weight", weight * scale[:, None]
        yield f"{part}.{index}.bias", bias * scale + shift


def _affine(width: int, norm: nn.BatchNorm1d | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift, (width,) each, that a batch normalisation is in evaluation mode."""
    if norm is None:
        return torch.ones(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    assert norm.running_mean is not None, "built with running statistics"
    assert norm.running_var is not None, "built with running statistics"
    scale = _exact(norm.weight) / torch.sqrt(_exact(norm.running_var) + norm.eps)
    return scale, _exact(norm.bias) - _exact(norm.running_mean) * scale


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().double()
