"""Encoders of torchvision: its classifiers without their last layer, with the transforms of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatstore.boundary import checked
from compatstore.encoders.checkpoint import load_checkpoint, sized_like
from compatstore.encoders.images import read_image
from compatstore.encoders.module import Module, require_torch
from compatstore.errors import InvalidInput, MissingExtra, NotFound

if TYPE_CHECKING:
    import torch


@checked
class TorchvisionModel(Module):
    """A torchvision classifier whose last linear layer is replaced by the identity.

    Args:
        name: Name of the model ("resnet18").
        weights: Name of its published weights, which also decide the preprocessing.
        checkpoint: Weights of your own (.safetensors, or a .pt state dict); a classifier among them is left out.
            Without it the published weights are loaded, from torch's cache or the network: never random ones.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA where there is one.
        batch_size: Images that go through the network at once.
        roots: Folders that image paths must lie in; empty allows every path.

    Raises:
        NotFound: torchvision has no such model or weights, they cannot be reached, or there is no such checkpoint.
        CorruptArtifact: The checkpoint does not fit the model.
        InvalidInput: The model does not end in a linear layer.
        MissingExtra: torchvision is not installed.

    Examples:
        >>> import torchvision
        >>> from safetensors.torch import save_file
        >>> save_file(torchvision.models.shufflenet_v2_x0_5().state_dict(), "weights.safetensors")
        >>> encoder = cs.encoders.TorchvisionModel("shufflenet_v2_x0_5", checkpoint="weights.safetensors", device="cpu")
        >>> encoder.encode([np.zeros((64, 64, 3), np.uint8)]).shape == (1, encoder.dim)
        True
    """

    def __init__(
        self,
        name: str,
        *,
        weights: str = "DEFAULT",
        checkpoint: str | Path | None = None,
        normalise: bool = False,
        device: str | None = None,
        batch_size: int = 64,
        roots: Sequence[str | Path] = (),
    ) -> None:
        published = _weights(name, weights)
        network = _create(name, published if checkpoint is None else None)
        _drop_classifier(network, name)
        if checkpoint is not None:
            load_checkpoint(network, checkpoint)
        transform = published.transforms()

        def preprocess(source: Any) -> torch.Tensor:
            tensor: torch.Tensor = transform(read_image(source, "RGB", roots))
            return tensor

        plain = checkpoint is None and not normalise and weights == "DEFAULT"
        super().__init__(
            network,
            sized_like(network, tuple(preprocess(_blank()).shape)),
            preprocess,
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            identity=repr(transform),
            spec=f"torchvision:{name}" if plain else "",
        )


def _weights(name: str, weights: str) -> Any:
    try:
        from torchvision import models
    except ImportError as error:
        raise MissingExtra("torchvision", "train") from error
    asked = f"build torchvision's {name} with weights {weights}"
    try:
        return models.get_model_weights(name)[weights]
    except (ValueError, KeyError) as error:
        raise NotFound(asked, expected="a name of torchvision.models.list_models()", found=str(error)) from error


def _create(name: str, weights: Any) -> Any:
    from torchvision import models

    try:
        return models.get_model(name, weights=weights)
    except (OSError, RuntimeError) as error:  # no network and no cache, or a broken download
        fix = "Connect to the network once, or hand over TorchvisionModel(name, checkpoint=...)."
        raise NotFound(
            f"build torchvision's {name}", expected="its pretrained weights", found=str(error), fix=fix
        ) from error


def _drop_classifier(network: Any, name: str) -> None:
    nn = require_torch().nn
    last_name, last = list(network.named_modules())[-1]
    if not isinstance(last, nn.Linear):
        fix = "Wrap it yourself: encoders.Module(network, dim, preprocess)."
        raise InvalidInput(f"embed with {name}", expected="a last linear layer", found=type(last).__name__, fix=fix)
    network.set_submodule(last_name, nn.Identity())


def _blank() -> Any:
    from PIL import Image

    return Image.new("RGB", (256, 256))
