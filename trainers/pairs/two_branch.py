"""The network that learns on pairs: an `Architecture` as torch trains it."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn

from compatstore.artifacts.architecture import Architecture


class Prediction(NamedTuple):
    """What the network says about n items.

    Attributes:
        vectors: (n, output_dim), of unit length where the architecture says so.
        log_sigma2: (n,), or None for an architecture without uncertainty.
    """

    vectors: torch.Tensor
    log_sigma2: torch.Tensor | None


class TwoBranch(nn.Module):
    """Branches for source and side-information, a mixer on both (FCT, section 3.2 and its appendix).

    Every layer is Linear-BatchNorm-ReLU, except the linear output. With branches of 256, 256 and a mixer of 2048,
    2048 it is the paper's network: 5.7 million parameters at 128/128/128. Dropout and noise act in training alone, so
    that the network in use is plain dense layers.

    Args:
        architecture: Widths and options.
        bias: Whether the linear layers before a batch normalisation have a bias; the output always has one.
        norm: Whether layers have a batch normalisation.
        dropout: Share of the values that each layer drops, in [0, 1).
        noise: Deviation of the Gaussian noise on the inputs, relative to their own deviation in the batch, >= 0.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        bias: bool = True,
        norm: bool = True,
        dropout: float = 0.0,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.architecture, self.noise = architecture, noise
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
        self.log_sigma2 = nn.Linear(output_dim, 1) if architecture.uncertainty else None

    def forward(self, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        """Map source vectors (n, source_dim) and side-information (n, side_dim) or None."""
        source, side = self._noisy(source), None if side is None else self._noisy(side)
        features = self.source(source)
        if self.side is not None:
            features = torch.cat([features, self.side(side)], dim=1)
        features = self.mixer(features)
        # The layers that make the output stay float32 where others are bfloat16, as they do in use.
        with torch.autocast(source.device.type, enabled=False):
            return self._output(features.float(), source, side)

    def _output(self, features: torch.Tensor, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        vectors = self.output(features)
        if self.skip is not None:
            vectors = vectors + self.skip(source)
        if self.skip_side is not None:
            vectors = vectors + self.skip_side(side)
        log_sigma2 = None if self.log_sigma2 is None else self.log_sigma2(vectors)[:, 0]
        if self.architecture.normalise:
            vectors = nn.functional.normalize(vectors, dim=1)
        return Prediction(vectors, log_sigma2)

    def _noisy(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.noise:
            return values
        return values + self.noise * values.std(dim=0) * torch.randn_like(values)


def freeze_statistics(model: nn.Module) -> None:
    """Hold the running statistics of batch normalisation; its weights go on learning (FCT, appendix).

    To be called after every `model.train()`, which would let them run again.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


def start_from_identity(model: TwoBranch) -> None:
    """Fix the linear map of the source at the identity, where source and output have one dimension."""
    if model.skip is not None and model.skip.in_features == model.skip.out_features:
        nn.init.eye_(model.skip.weight)
        model.skip.weight.requires_grad_(False)


def _stack(widths: tuple[int, ...], *, bias: bool, norm: bool, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers.append(nn.Linear(fan_in, fan_out, bias=bias))
        layers += [nn.BatchNorm1d(fan_out)] if norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers)
