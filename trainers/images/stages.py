"""The stages of a published network, in order: the first may be left as they are, the others learn at own rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from compatstore.encoders.backbones import (
    Backbone,
    BasisTransformed,
    FinalNorm,
    GeneralisedMean,
    TimmBackbone,
    TorchvisionBackbone,
)
from compatstore.errors import InvalidInput

# Modules of torchvision that hold a network's stages, one after the other.
_CONTAINERS = ("features", "trunk_output", "encoder", "layers", "blocks")
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)

_RATE = "compatstore_rate"


class Published(NamedTuple):
    """A network of timm or torchvision inside of what is trained.

    Attributes:
        network: It, with names as its library gives them.
        backbone: Its description.
    """

    network: nn.Module
    backbone: TimmBackbone | TorchvisionBackbone


def published(network: nn.Module, backbone: Backbone) -> Published | None:
    """Find the network of timm or torchvision inside of what a backbone built; None where there is none."""
    if isinstance(backbone, FinalNorm):
        return published(network.get_submodule("0"), backbone.inner)
    if isinstance(backbone, GeneralisedMean):
        return published(network, backbone.inner)
    if isinstance(backbone, BasisTransformed):
        return published(network.get_submodule("inner"), backbone.inner)
    return Published(network, backbone) if isinstance(backbone, TimmBackbone | TorchvisionBackbone) else None


def stages(found: Published) -> list[list[str]]:
    """Names of all parameters by stage: the stem, the stages or blocks, and last what makes the embedding.

    timm says itself what its stages are. Of torchvision they are the modules of a network in order, those inside of
    its containers one by one, each with the normalisation after it.
    """
    if isinstance(found.backbone, TimmBackbone):
        from timm.models import group_parameters

        network: Any = found.network  # every network of timm has a matcher
        groups = group_parameters(network, network.group_matcher(coarse=True))
        return [list(groups[number]) for number in sorted(groups)]
    of_torchvision: list[list[str]] = []
    for prefix, module in _units(found.network, ""):
        names = [f"{prefix}.{name}" for name, _ in module.named_parameters()]
        if names and isinstance(module, _NORMS) and of_torchvision:
            of_torchvision[-1] += names
        elif names:
            of_torchvision.append(names)
    placed = {name for stage in of_torchvision for name in stage}
    of_torchvision[0] += [name for name, _ in found.network.named_parameters() if name not in placed]
    return of_torchvision


def _units(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        if name in _CONTAINERS:
            yield from _units(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", child


def set_stages(found: Published, *, frozen: int, decay: float) -> None:
    """Freeze the first stages and set the learning rates of the others, in place.

    Args:
        found: The network.
        frozen: Stages that are not trained.
        decay: Rate of a stage / rate of the stage after it; the last has the full rate.

    Raises:
        InvalidInput: No stage would be left that is trained.
    """
    parameters, in_order = dict(found.network.named_parameters()), stages(found)
    if frozen >= len(in_order):
        raise InvalidInput(
            f"freeze stages of {found.backbone.name}",
            expected=f"at most {len(in_order) - 1} of {len(in_order)}: the last makes the embedding",
            found=f"{frozen}",
        )
    for number, names in enumerate(in_order):
        for name in names:
            parameters[name].requires_grad_(number >= frozen)
            setattr(parameters[name], _RATE, decay ** (len(in_order) - 1 - number))


def rate_of(parameter: nn.Parameter) -> float:
    """Learning rate of a parameter / the setting; 1 for all that belongs to no stage."""
    rate: float = getattr(parameter, _RATE, 1.0)
    return rate


def rest_frozen(objective: nn.Module) -> None:
    """Keep parts of which nothing is trained in evaluation mode: their BatchNorms keep their statistics."""
    for module in objective.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()
