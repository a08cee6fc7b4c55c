"""Encoders of timm: its backbones with the preprocessing that their weights were trained with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatstore.boundary import checked
from compatstore.encoders.checkpoint import load_checkpoint, sized_like
from compatstore.encoders.images import read_image
from compatstore.encoders.module import Module
from compatstore.errors import MissingExtra, NotFound

if TYPE_CHECKING:
    import torch


@checked
class TimmModel(Module):
    """A timm backbone without its classifier.

    Args:
        name: Name of the model, with or without the tag of its weights ("resnet18", "resnet18.a1_in1k").
        checkpoint: Weights of your own (.safetensors, or a .pt state dict); a classifier among them is left out.
            Without it the published weights are loaded, from timm's cache or the network: never random ones.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA where there is one.
        batch_size: Images that go through the network at once.
        roots: Folders that image paths must lie in; empty allows every path.

    Raises:
        NotFound: timm has no such model, its weights cannot be reached, or there is no such checkpoint.
        CorruptArtifact: The checkpoint does not fit the model.
        MissingExtra: timm is not installed.

    Examples:
        >>> import timm
        >>> from safetensors.torch import save_file
        >>> save_file(timm.create_model("test_resnet").state_dict(), "weights.safetensors")
        >>> encoder = cs.encoders.TimmModel("test_resnet", checkpoint="weights.safetensors", device="cpu")
        >>> encoder.encode([np.zeros((160, 160, 3), np.uint8)]).shape == (1, encoder.dim)
        True
    """

    def __init__(
        self,
        name: str,
        *,
        checkpoint: str | Path | None = None,
        normalise: bool = False,
        device: str | None = None,
        batch_size: int = 64,
        roots: Sequence[str | Path] = (),
    ) -> None:
        timm = _require_timm()
        network = _create(timm, name, pretrained=checkpoint is None)
        if checkpoint is not None:
            load_checkpoint(network, checkpoint)
        config = timm.data.resolve_model_data_config(network)
        transform = timm.data.create_transform(**config, is_training=False)

        def preprocess(source: Any) -> torch.Tensor:
            tensor: torch.Tensor = transform(read_image(source, "RGB", roots))
            return tensor

        plain = checkpoint is None and not normalise
        super().__init__(
            network,
            sized_like(network, config["input_size"]),
            preprocess,
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            identity=repr(transform),
            spec=f"timm:{name}" if plain else "",
        )


def _require_timm() -> Any:
    try:
        import timm
        import timm.data
    except ImportError as error:
        raise MissingExtra("timm", "train") from error
    return timm


def _create(timm: Any, name: str, *, pretrained: bool) -> Any:
    asked = f"build timm's {name}"
    if not timm.is_model(name):
        similar = ", ".join(timm.list_models(f"*{name.split('.')[0]}*")[:5])
        raise NotFound(asked, expected="a name of timm.list_models()", found=repr(name), fix=f"Similar: {similar}.")
    if not pretrained:
        return timm.create_model(name, num_classes=0, pretrained=False)
    try:
        return timm.create_model(name, num_classes=0, pretrained=True)
    except (OSError, RuntimeError) as error:  # no network, no cache, or no published weights at all
        fix = "Connect to the network once, or hand over TimmModel(name, checkpoint=...)."
        raise NotFound(asked, expected="its pretrained weights", found=str(error), fix=fix) from error
