"""Descriptions of networks: small frozen dataclasses that can be written down and built again.

Small networks for digits and other tiny images; architectures of timm and torchvision; and those around another.
`FinalNorm` ends in a BatchNorm, as side-information models do: values around zero, of one size. `GeneralisedMean` pools
positions by another mean than the usual one. `BasisTransformed` is the network of BT^2: two changes of basis put a part
compatible with a source model in front of a target embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from compatstore.documents import WIDEST, Malformed, read_record
from compatstore.encoders.module import require_torch
from compatstore.errors import InvalidInput, load_extra

if TYPE_CHECKING:
    from torch import nn


class Backbone(Protocol):
    """A description of a network of (b, channels, size, size) -> (b, dim)."""

    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def channels(self) -> int: ...  # noqa: D102
    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        ...


@dataclass(frozen=True, kw_only=True)
class SmallConvNet:
    """A plain convolutional network for small images, good on a CPU.

    Stages of two 3x3 convolutions, each with BatchNorm and ReLU; the image is halved and the width doubled between
    stages until 4x4 positions are left; these are averaged to 2x2 and mapped to the embedding by one linear layer.

    Args:
        size: Side of the image, in pixels, 8 to 64.
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).
        width: Channels of the first stage.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    size: int
    dim: int
    channels: int = 1
    width: int = 32

    def __post_init__(self) -> None:
        if not 8 <= self.size <= 64 or self.dim < 1 or self.channels not in (1, 3) or self.width < 1:
            expected = "size 8 to 64, dim >= 1, channels 1 or 3, width >= 1"
            raise InvalidInput("describe a small network", expected=expected, found=f"{self}")

    @property
    def stages(self) -> int:
        """Number of stages: 2 for 8 pixels, up to 5 for 64."""
        return (self.size // 4).bit_length()

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        layers: list[nn.Module] = []
        before = self.channels
        for stage in range(self.stages):
            after = self.width * min(2**stage, 8)
            layers += [torch.nn.MaxPool2d(2)] if stage else []
            layers += [*_convolution(before, after), *_convolution(after, after)]
            before = after
        layers += [torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(4 * before, self.dim)]
        network: nn.Module = torch.nn.Sequential(*layers)
        return network


def _convolution(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    nn = require_torch().nn
    convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]


# Values of one attention head.
_HEAD = 16


@dataclass(frozen=True, kw_only=True)
class SmallVisionTransformer:
    """A vision transformer of 4 to 8 patches a side, averaged over patches and mapped to the embedding.

    Convolutions of 3x3 make the patches, one at full size and one for each halving (Xiao et al., arXiv 2106.14881), as
    small transformers learn slowly from raw pixels. With the first of them alone the accuracy on digits of 8 pixels
    was 95.3 % after 15 epochs instead of 97.4 %, and CMC-1 on glyphs of 32 pixels 7.9 after 7 epochs instead of 13.4.

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
        fine = self.dim >= 1 and self.channels in (1, 3) and self.width % _HEAD == 0 < self.width
        if not fine or not 1 <= self.depth <= 256 or not 8 <= self.size <= 64 or not self.patch:
            sizes = "8 to 64 that splits into 4 to 8 patches (8, 16, 28, 32, 48, 64)"
            expected = f"size {sizes}, dim >= 1, channels 1 or 3, width a multiple of {_HEAD}, depth 1 to 256"
            raise InvalidInput("describe a small transformer", expected=expected, found=f"{self}")

    @property
    def patch(self) -> int:
        """Side of a patch, in pixels: the smallest that gives 8 patches a side or fewer; 0 if none does."""
        sides = (self.size // count for count in (8, 7, 6, 5, 4) if self.size % count == 0)
        return next((side for side in sides if side >= 2), 0)

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            MissingExtra: timm is not installed.
        """
        vision_transformer = load_extra("timm.models.vision_transformer", "train")
        torch, patch, channels = require_torch(), self.patch, max(self.width // 4, 8)
        stem = _convolution(self.channels, channels)
        while patch % 2 == 0:
            patch //= 2
            stem += _convolution(channels, 2 * channels, 2)
            channels *= 2
        transformer = vision_transformer.VisionTransformer(
            img_size=self.size * patch // self.patch,
            patch_size=patch,
            in_chans=channels,
            num_classes=self.dim,
            embed_dim=self.width,
            depth=self.depth,
            num_heads=self.width // _HEAD,
            mlp_ratio=2,
            global_pool="avg",
            class_token=False,
        )
        network: nn.Module = torch.nn.Sequential(*stem, transformer)
        return network


@dataclass(frozen=True, kw_only=True)
class TimmBackbone:
    """An architecture of timm, its classifier replaced by a linear layer to the embedding.

    Args:
        name: Name of the model ("resnet18").
        dim: Length of an embedding.
        channels: 1 (grey) or 3 (colour).

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    dim: int
    channels: int = 3

    def __post_init__(self) -> None:
        if not self.name or self.dim < 1 or self.channels not in (1, 3):
            expected = "a name, dim >= 1, channels 1 or 3"
            raise InvalidInput("describe a timm network", expected=expected, found=f"{self}")

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: timm has no such model.
            MissingExtra: timm is not installed.
        """
        timm = load_extra("timm", "train")
        operation, expected = "build a timm network", "a name of timm.list_models()"
        if not timm.is_model(self.name):
            raise InvalidInput(operation, expected=expected, found=self.name)
        try:
            network: nn.Module = timm.create_model(
                self.name, pretrained=False, num_classes=self.dim, in_chans=self.channels
            )
        except RuntimeError as error:
            if "tag" not in str(error):
                raise
            found = f"{self.name}: {error}"
            raise InvalidInput(
                operation, expected=f"{expected}, with a tag of its weights or none", found=found
            ) from error
        return network


@dataclass(frozen=True, kw_only=True)
class TorchvisionBackbone:
    """A classifier of torchvision, with the values of the embedding in place of its classes.

    Args:
        name: Name of the model ("resnet18").
        dim: Length of an embedding.
        channels: 3: torchvision's models take colour. Grey images are converted by the preprocessing mode "RGB".

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    dim: int
    channels: int = 3

    def __post_init__(self) -> None:
        if not self.name or self.dim < 1 or self.channels != 3:
            expected = "a name, dim >= 1, 3 channels"
            fix = 'Set mode="RGB", which converts grey images.' if self.channels == 1 else ""
            raise InvalidInput("describe a torchvision network", expected=expected, found=f"{self}", fix=fix)

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: torchvision has no such classifier, or it has several outputs while it trains.
            MissingExtra: torchvision is not installed.
        """
        models = load_extra("torchvision.models", "train")
        operation = "build a torchvision network"
        if self.name not in models.list_models(module=models):
            expected = "a name of torchvision.models.list_models(module=torchvision.models)"
            raise InvalidInput(operation, expected=expected, found=self.name)
        if self.name in ("googlenet", "inception_v3"):
            raise InvalidInput(
                operation, expected="a model of one output", found=f"{self.name}, with auxiliary outputs"
            )
        network: nn.Module = models.get_model(self.name, weights=None, num_classes=self.dim)
        return network


Published: TypeAlias = TimmBackbone | TorchvisionBackbone


@dataclass(frozen=True, kw_only=True)
class _Around:
    """A backbone around another, whose embeddings have the length and whose images the channels of that one.

    Args:
        inner: The backbone.
    """

    within: ClassVar[str] = ""  # submodule that the inner network is; "" for the network itself

    inner: Backbone

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.inner.dim

    @property
    def channels(self) -> int:
        """Number of channels: 1 or 3."""
        return self.inner.channels


@dataclass(frozen=True, kw_only=True)
class FinalNorm(_Around):
    """A backbone with a BatchNorm after it (FCT, appendix D).

    Args:
        inner: The backbone.
    """

    within: ClassVar[str] = "0"

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        network: nn.Module = torch.nn.Sequential(self.inner.build(), torch.nn.BatchNorm1d(self.dim))
        return network


@dataclass(frozen=True, kw_only=True)
class FinalReLU(_Around):
    """A backbone whose embeddings have no values below 0, like the features that FCT and FastFill compare.

    Args:
        inner: The backbone.
    """

    within: ClassVar[str] = "0"

    def build(self) -> nn.Module:
        """Make the network, with random weights."""
        torch = require_torch()
        network: nn.Module = torch.nn.Sequential(self.inner.build(), torch.nn.ReLU())
        return network


@dataclass(frozen=True, kw_only=True)
class GeneralisedMean(_Around):
    """A backbone whose last average pooling is a generalised mean (Radenovic et al. 2018; DMU pools so).

    Args:
        inner: The backbone; its last average pooling gives way, and its weights keep their names.
        power: p, >= 1: 1 for the average; the larger, the nearer to the maximum.

    Raises:
        InvalidInput: The power is out of its range.
    """

    power: float = 3.0

    def __post_init__(self) -> None:
        if not 1 <= self.power < float("inf"):
            raise InvalidInput("describe a generalised mean", expected="a power of 1 or more", found=f"{self.power}")

    def build(self) -> nn.Module:
        """Make the network, with random weights.

        Raises:
            InvalidInput: The network has no average pooling.
        """
        require_torch()
        from compatstore.encoders.backbone_networks import pool_by_generalised_mean

        network = self.inner.build()
        pool_by_generalised_mean(network, self.power)
        return network


@dataclass(frozen=True, kw_only=True)
class BasisTransformed(_Around):
    """A backbone behind basis transformations (Zhou et al., arXiv 2211.03989, algorithm 1).

    Args:
        inner: The backbone, whose embeddings have m + n values for a target of m and a source of n.
        source_dim: n.
        extra: d, values for information of the source that the target lacks, 1 to n.
        scale: C, the length of the target's part beside the extra values' length of 1, > 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    within: ClassVar[str] = "inner"

    source_dim: int
    extra: int = 32
    scale: float = 2.0

    def __post_init__(self) -> None:
        n, d, m = self.source_dim, self.extra, self.inner.dim - self.source_dim
        if not 1 <= d <= n or m < 1 or m + d < n or self.scale <= 0:
            expected = "1 <= extra <= source_dim <= target's dimension + extra, scale > 0"
            raise InvalidInput("describe a basis transformation", expected=expected, found=f"{self}")

    @property
    def target_dim(self) -> int:
        """Values of the target's own part, m."""
        return self.inner.dim - self.source_dim

    @property
    def dim(self) -> int:
        """Length of an embedding, m + d; its first n values are compared with the source's."""
        return self.target_dim + self.extra

    def build(self) -> nn.Module:
        """Make the network, with random weights and random bases."""
        require_torch()
        from compatstore.encoders.backbone_networks import BasisNetwork

        return BasisNetwork(self.inner.build(), self)


def published(backbone: Backbone) -> tuple[Published | None, str]:
    """The backbone of timm or torchvision inside of another, or None, and the name of its submodule in the network."""
    place: list[str] = []
    while isinstance(backbone, _Around):
        place, backbone = [*place, *filter(None, [backbone.within])], backbone.inner
    return (backbone if isinstance(backbone, TimmBackbone | TorchvisionBackbone) else None), ".".join(place)


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
    operation = "describe a network"
    if not isinstance(description, Mapping):
        raise InvalidInput(operation, expected="an object", found=type(description).__name__)
    settings = dict(description)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(operation, expected=f"one of {', '.join(_KINDS)}", found=f"{kind!r:.60}")
    large = [name for name, value in settings.items() if isinstance(value, int | float) and not value <= WIDEST]
    if large:
        raise InvalidInput(operation, expected=f"numbers up to {WIDEST}", found=f"a larger {large[0]:.60}")
    nested = {name: from_description(value) for name, value in settings.items() if isinstance(value, Mapping)}
    try:
        return read_record(_KINDS[kind], settings, kind, made=nested)
    except (Malformed, AttributeError) as error:  # a number in place of a network has no dimension
        raise InvalidInput(operation, expected=f"the settings of {kind}", found=str(error)) from error


_KINDS: dict[str, type[Backbone]] = {
    kind.__name__: kind
    for kind in (SmallConvNet, SmallVisionTransformer, TimmBackbone, TorchvisionBackbone, *_Around.__subclasses__())
}
