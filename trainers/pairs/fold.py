"""Fold batch normalisation into the dense layers around it, so that use needs matrix products alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.two_branch import TwoBranch

Tensors = dict[str, torch.Tensor]


def fold(model: TwoBranch) -> Tensors:
    """Return the dense layers that the model is in evaluation mode, computed in float64.

    Returns:
        Tensors named as in `Architecture.shapes`, float64 on the CPU; weights (out, in).
    """
    parts = {"source": model.source, "mixer": model.mixer}
    if model.side is not None:
        parts["side"] = model.side
    tensors = {name: value for part, stack in parts.items() for name, value in _folded(part, stack)}
    depth = len(model.architecture.mixer)
    tensors |= {f"mixer.{depth}.weight": _exact(model.output.weight), f"mixer.{depth}.bias": _exact(model.output.bias)}
    if model.skip is not None:
        tensors["skip.weight"] = _exact(model.skip.weight)
    if model.skip_side is not None:
        tensors["skip_side.weight"] = _exact(model.skip_side.weight)
    if model.log_sigma2 is not None:
        tensors["log_sigma2.weight"] = _exact(model.log_sigma2.weight)
        tensors["log_sigma2.bias"] = _exact(model.log_sigma2.bias)
    return tensors


def fold_zero_side(architecture: Architecture, tensors: Tensors) -> tuple[Architecture, Tensors]:
    """Drop a side branch that is fed zeros: its constant output becomes part of the mixer's first bias.

    Args:
        architecture: With a side branch.
        tensors: What `fold` returned for it.

    Returns:
        The same map without side branch.
    """
    features = torch.zeros(architecture.side_dim or 0, dtype=torch.float64)
    for index in range(len(architecture.side_branch)):
        features = torch.relu(tensors[f"side.{index}.weight"] @ features + tensors[f"side.{index}.bias"])
    weight = tensors["mixer.0.weight"]
    split = weight.shape[1] - len(features)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(("side.", "skip_side."))}
    kept["mixer.0.weight"] = weight[:, :split]
    kept["mixer.0.bias"] = tensors["mixer.0.bias"] + weight[:, split:] @ features
    return replace(architecture, side_dim=None, side_branch=()), kept


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
