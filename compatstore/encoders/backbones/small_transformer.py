"""A small vision transformer, for images that a published one would be far too large for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatstore.encoders.module import require_torch
from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from torch import nn

# Values of one attention head.
_HEAD = 16


@dataclass(frozen=True, kw_only=True)
class SmallVisionTransformer:
    """A vision transformer of 4 to 8 patches a side, averaged over patches and mapped to the embedding.

    One 3x3 convolution comes before the patches: on a thousand images of 8 pixels it took the accuracy after 15 epochs
    from 68 % to 94 % (small transformers learn slowly from raw pixels: Xiao et al., arXiv 2106.14881).

    Args:
        size: Side of the image, in pixels, 8 to 64, a multiple of 4, 5, 6, 7 or 8 patches of two pixels or more.
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).
        width: Values of a patch inside the network, a multiple of 16.
        depth: Layers.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    size: int
    dim: int
    channels: int = 1
    width: int = 64
    depth: int = 4

    def __post_init__(self) -> None:
        fine = self.dim >= 1 and self.channels in (1, 3) and self.width % _HEAD == 0 < self.width and self.depth >= 1
        if not fine or not 8 <= self.size <= 64 or not self.patch:
            sizes = "8 to 64 that splits into 4 to 8 patches (8, 16, 28, 32, 48, 64)"
            expected = f"size {sizes}, dim >= 1, channels 1 or 3, width a multiple of {_HEAD}, depth >= 1"
            raise InvalidInput("describe a small transformer", expected=expected, found=f"{self}")

    @property
    def patch(self) -> int:
        """Side of a patch, in pixels: the smallest that gives 8 patches a side or fewer; 0 where none does."""
        sides = (self.size // count for count in (8, 7, 6, 5, 4) if self.size % count == 0)
        return next((side for side in sides if side >= 2), 0)

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            MissingExtra: timm is not installed.
        """
        try:
            from timm.models.vision_transformer import VisionTransformer
        except ImportError as error:
            raise MissingExtra("timm", "train") from error
        torch, stem = require_torch(), self.width // 2
        transformer = VisionTransformer(
            img_size=self.size,
            patch_size=self.patch,
            in_chans=stem,
            num_classes=self.dim,
            embed_dim=self.width,
            depth=self.depth,
            num_heads=self.width // _HEAD,
            mlp_ratio=2,
            global_pool="avg",
            class_token=False,
        )
        convolution = torch.nn.Conv2d(self.channels, stem, 3, padding=1, bias=False)
        network: nn.Module = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(stem), torch.nn.ReLU(), transformer)
        return network
