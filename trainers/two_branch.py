"""The network that learns on pairs: an `Architecture` with batch normalisation, as torch trains it."""

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
    2048 it is the paper's network: 5.7 million parameters at 128/128/128.

    Args:
        architecture: Widths and options.
        bias: Whether the linear layers before a batch normalisation have a bias; the output always has one.
    """

    def __init__(self, architecture: Architecture, *, bias: bool = True) -> None:
        super().__init__()
        self.architecture = architecture
        self.source = _stack((architecture.source_dim, *architecture.source_branch), bias=bias)
        self.side = (
            None
            if architecture.side_dim is None
            else _stack((architecture.side_dim, *architecture.side_branch), bias=bias)
        )
        mixer = (architecture.joined_dim, *architecture.mixer)
        self.mixer = _stack(mixer, bias=bias)
        self.output = nn.Linear(mixer[-1], architecture.output_dim)
        self.skip = (
            nn.Linear(architecture.source_dim, architecture.output_dim, bias=False) if architecture.skip else None
        )
        self.log_sigma2 = nn.Linear(architecture.output_dim, 1) if architecture.uncertainty else None

    def forward(self, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        """Map source vectors (n, source_dim) and side-information (n, side_dim) or None."""
        features = self.source(source)
        if self.side is not None:
            features = torch.cat([features, self.side(side)], dim=1)
        vectors = self.output(self.mixer(features))
        if self.skip is not None:
            vectors = vectors + self.skip(source)
        log_sigma2 = None if self.log_sigma2 is None else self.log_sigma2(vectors)[:, 0]
        if self.architecture.normalise:
            vectors = nn.functional.normalize(vectors, dim=1)
        return Prediction(vectors, log_sigma2)


def freeze_statistics(model: nn.Module) -> None:
    """Hold the running statistics of batch normalisation; its weights go on learning (FCT, appendix).

    To be called after every `model.train()`, which would let them run again.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()


def _stack(widths: tuple[int, ...], *, bias: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.BatchNorm1d(fan_out), nn.ReLU()]
    return nn.Sequential(*layers)
