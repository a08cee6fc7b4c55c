"""Network architectures, described by small frozen dataclasses so that they can be written down and built again."""

from compatstore.encoders.backbones.backbone import Backbone
from compatstore.encoders.backbones.basis_transformed import BasisTransformed
from compatstore.encoders.backbones.description import from_description, to_description
from compatstore.encoders.backbones.final_norm import FinalNorm
from compatstore.encoders.backbones.small_convnet import SmallConvNet
from compatstore.encoders.backbones.small_transformer import SmallVisionTransformer
from compatstore.encoders.backbones.timm_backbone import TimmBackbone
from compatstore.encoders.backbones.torchvision_backbone import TorchvisionBackbone

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
