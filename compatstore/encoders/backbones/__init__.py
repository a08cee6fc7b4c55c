"""Network architectures, described by small frozen dataclasses so that they can be written down and built again."""

from compatstore.encoders.backbones.backbone import Backbone, BasisTransformed, FinalNorm
from compatstore.encoders.backbones.description import from_description, to_description
from compatstore.encoders.backbones.published import TimmBackbone, TorchvisionBackbone
from compatstore.encoders.backbones.small import SmallConvNet, SmallVisionTransformer

__all__ = [
    "Backbone",
    "BasisTransformed",
    "FinalNorm",
    "SmallConvNet",
    "SmallVisionTransformer",
    "TimmBackbone",
    "TorchvisionBackbone",
    "from_description",
    "to_description",
]
