"""Published models of timm and torchvision as encoders, with their own weights or those of a checkpoint of the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatstore.boundary import checked
from compatstore.encoders.images import read_image
from compatstore.encoders.model_files import read_weights
from compatstore.encoders.module import Module, require_torch
from compatstore.errors import CorruptArtifact, InvalidInput, MissingExtra, NotFound, first_offenders
from compatstore.paths import is_file

if TYPE_CHECKING:
    import torch
    from torch import nn


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

    _reads_ahead = True

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
        network = _create_timm(timm, name, pretrained=checkpoint is None)
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


def _create_timm(timm: Any, name: str, *, pretrained: bool) -> Any:
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

    _reads_ahead = True

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
        network = _create_torchvision(name, published if checkpoint is None else None)
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


def _create_torchvision(name: str, weights: Any) -> Any:
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


def load_checkpoint(network: nn.Module, path: str | Path) -> None:
    """Load weights into a network without classifier; names that the network does not have are a classifier's.

    Args:
        network: The network, changed in place.
        path: A .safetensors file, or a state dict saved by torch (read with weights_only=True), also one under
            the key "state_dict".

    Raises:
        NotFound: There is no such file.
        StorageError: The file may not be read.
        CorruptArtifact: The file cannot be read, lacks weights of the network, or has them in another shape.
    """
    path = Path(path)
    asked = f"load the weights {path}"
    if not is_file(path):
        raise NotFound(asked, expected="a file", found="nothing", fix="Check the path.")
    state = read_weights(path, asked)
    wanted = network.state_dict()
    missing = [name for name in wanted if name not in state]
    wrong = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if missing or wrong:
        found = f"missing {first_offenders(missing) or 'none'}; of another shape {first_offenders(wrong) or 'none'}"
        raise CorruptArtifact(asked, expected=f"the {len(wanted)} weights of the network", found=found)
    network.load_state_dict({name: state[name] for name in wanted})


def sized_like(network: nn.Module, input_size: Sequence[int]) -> int:
    """Length of an embedding of a network, asked by sending one blank image of (c, h, w) through it."""
    torch = require_torch()
    with torch.inference_mode():
        return int(network.eval()(torch.zeros(1, *input_size)).shape[1])
