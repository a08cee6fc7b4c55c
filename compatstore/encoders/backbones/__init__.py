"""Network architectures, described by small frozen dataclasses so that they can be written down and built again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatstore.documents import WIDEST, Malformed, read_record
from compatstore.encoders.backbones.architectures import (
    SmallConvNet,
    SmallVisionTransformer,
    TimmBackbone,
    TorchvisionBackbone,
)
from compatstore.encoders.backbones.backbone import Backbone, BasisTransformed, FinalNorm, GeneralisedMean
from compatstore.errors import InvalidInput

__all__ = [
    "Backbone",
    "BasisTransformed",
    "FinalNorm",
    "GeneralisedMean",
    "SmallConvNet",
    "SmallVisionTransformer",
    "TimmBackbone",
    "TorchvisionBackbone",
    "from_description",
    "to_description",
]


def to_description(backbone: Backbone) -> dict[str, Any]:
    """Write a backbone down as JSON-able values, a backbone inside it as well."""
    kind = type(backbone).__name__
    if kind not in _KINDS:
        raise InvalidInput("describe a network", expected=f"one of {', '.join(_KINDS)}", found=kind)
    settings = dict(vars(backbone))
    nested = {name: to_description(value) for name, value in settings.items() if type(value).__name__ in _KINDS}
    return {"kind": kind, **settings, **nested}


def from_description(description: Mapping[str, Any]) -> Backbone:
    """Read what `to_description` wrote.

    Raises:
        InvalidInput: The kind is unknown or a setting is missing, unknown or out of its range.
    """
    asked = "describe a network"
    if not isinstance(description, Mapping):
        raise InvalidInput(asked, expected="an object", found=type(description).__name__)
    settings = dict(description)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(asked, expected=f"one of {', '.join(_KINDS)}", found=f"{kind!r:.60}")
    large = [name for name, value in settings.items() if isinstance(value, int | float) and not value <= WIDEST]
    if large:
        raise InvalidInput(asked, expected=f"numbers up to {WIDEST}", found=f"a larger {large[0]:.60}")
    nested = {name: from_description(value) for name, value in settings.items() if isinstance(value, Mapping)}
    try:
        return read_record(_KINDS[kind], settings, kind, made=nested)
    except (Malformed, AttributeError) as error:  # a number where a network belongs has no dimension
        raise InvalidInput(asked, expected=f"the settings of {kind}", found=str(error)) from error


_KINDS: dict[str, type[Backbone]] = {
    kind.__name__: kind
    for kind in (
        SmallConvNet,
        SmallVisionTransformer,
        TimmBackbone,
        TorchvisionBackbone,
        BasisTransformed,
        FinalNorm,
        GeneralisedMean,
    )
}
