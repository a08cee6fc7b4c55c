"""Weights that a network of timm or torchvision starts from."""

from __future__ import annotations

import hashlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compatstore.encoders.backbones import Backbone, Published, TimmBackbone, TorchvisionBackbone, published
from compatstore.encoders.model_files import read_weights
from compatstore.encoders.published_models import downloading
from compatstore.errors import Incompatible, InvalidInput, NotFound, first_offenders
from compatstore.paths import is_file, is_folder

DOWNLOAD, PACKAGE = "download", "package:"
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
# Counts batches, and decides nothing where BatchNorm has a momentum; older files lack it.
_COUNTER = "num_batches_tracked"


def load_pretrained(network: nn.Module, backbone: Backbone, pretrained: str) -> None:
    """Give a network its first weights, in place; the layer that makes the embedding stays random.

    Args:
        network: Made by `backbone.build()`.
        backbone: Its description.
        pretrained: See `ImageTraining`.

    Raises:
        InvalidInput: The network is not of timm or torchvision, or a folder or package holds several files.
        NotFound: There is no such file, folder or package, it holds no weights, or the library's cannot be had.
        CorruptArtifact: The file cannot be read.
        Incompatible: The weights are another network's; lists missing, unexpected and misshapen weights.
    """
    described, place = published(backbone)
    if described is None:
        expected = 'architecture "timm:NAME" or "torchvision:NAME"'
        raise InvalidInput(f"start from {pretrained}", expected=expected, found="a small network")
    inner = network.get_submodule(place)
    operation = f"start {described.name} from {pretrained}"
    if pretrained == DOWNLOAD:
        state = _of_library(described, operation)
    else:
        state = read_weights(find_weights(pretrained), operation)
        if described.channels == 1:  # a network of timm: torchvision's take colour alone
            _to_grey(state, _layers(inner, "first_conv"))
    own = inner.state_dict()
    embedding = tuple(f"{name}." for name in _embedding_layers(inner, described))
    wanted = [name for name in own if not name.startswith(embedding)]
    given = {name: value for name, value in state.items() if not name.startswith(embedding)}
    shared = [name for name in wanted if name in given]
    differ = {
        "missing": [name for name in wanted if name not in given and not name.endswith(_COUNTER)],
        "unexpected": [name for name in given if name not in own and not name.endswith(_COUNTER)],
        "of another shape": [f"{n} {tuple(given[n].shape)}" for n in shared if given[n].shape != own[n].shape],
    }
    if any(differ.values()):
        expected = f"the {len(wanted)} tensors of {described.name} before its last layer"
        lists = [f"{len(names)} {kind}: {first_offenders(names)}" for kind, names in differ.items() if names]
        fix = "Name the architecture that the weights are of."
        raise Incompatible(operation, expected=expected, found="; ".join(lists), fix=fix)
    inner.load_state_dict(own | {name: given[name] for name in shared})


def find_weights(pretrained: str) -> Path:
    """Return the file that holds the weights.

    Raises:
        NotFound: There is no such file, folder or package, or it holds no weights.
        InvalidInput: It holds several files of weights.
    """
    operation = f"find the weights {pretrained}"
    packaged = pretrained.startswith(PACKAGE)
    place = _package(pretrained, operation) if packaged else Path(pretrained).expanduser()
    if is_file(place):
        return place
    if not is_folder(place):
        fix = f'Check the path; "{DOWNLOAD}" takes the published weights, "{PACKAGE}NAME" those of a package.'
        raise NotFound(operation, expected="a file or a folder", found="nothing", fix=fix)
    # A package keeps its files anywhere; below a folder of the user's there may be millions.
    inside = place.rglob("*") if packaged else place.iterdir()
    files = sorted(file for file in inside if file.suffix in SUFFIXES and is_file(file))
    if not files:
        raise NotFound(operation, expected=f"a file that ends in {', '.join(SUFFIXES)}", found="none")
    if len(files) > 1:
        names = first_offenders([str(file.relative_to(place)) for file in files])
        raise InvalidInput(operation, expected="one file of weights", found=names, fix="Name one of them.")
    return files[0]


def weights_digest(pretrained: str) -> str:
    """SHA-256 of the file of weights, independent of its path; "download" of those of the library."""
    if pretrained in ("", DOWNLOAD):
        return pretrained
    with find_weights(pretrained).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pixel_scale(backbone: Backbone) -> tuple[float, float]:
    """Mean and deviation of pixels, from 0 to 1, that the published weights expect: means over the three channels.

    Args:
        backbone: Of timm or torchvision; of a model that they do not have, 0.5 and 0.5.
    """
    means, deviations = [0.5], [0.5]
    if isinstance(backbone, TimmBackbone):
        from timm.models import get_pretrained_cfg, is_model

        if is_model(backbone.name.partition(".")[0]):
            with suppress(RuntimeError):  # an unknown tag, or a model without published weights
                of_model = get_pretrained_cfg(backbone.name, allow_unregistered=False)
                means, deviations = of_model.mean, of_model.std
    elif isinstance(backbone, TorchvisionBackbone):
        from torchvision import models

        if backbone.name in models.list_models(module=models):
            transform = models.get_model_weights(backbone.name)["DEFAULT"].transforms()
            means, deviations = transform.mean, transform.std
    return float(np.mean(means)), float(np.mean(deviations))


def _package(pretrained: str, operation: str) -> Path:
    """Folder of an installed package, which is not imported, or a file in it: "package:NAME", "package:NAME/FILE"."""
    name, _, inside = pretrained.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        fix = "Install it with pip; its name is the one it is imported by."
        raise NotFound(operation, expected="an installed package that ships weights", found=repr(name), fix=fix)
    return Path(folders[0], inside)


def _of_library(backbone: Published, operation: str) -> dict[str, torch.Tensor]:
    """Return the published weights, from the library's cache or the network."""
    with downloading(operation, "name a file, a folder or package:NAME"):
        if isinstance(backbone, TimmBackbone):
            import timm

            model = timm.create_model(backbone.name, pretrained=True, in_chans=backbone.channels)
        else:
            from torchvision import models

            model = models.get_model(backbone.name, weights="DEFAULT")
        return dict(model.state_dict())


def _to_grey(state: dict[str, torch.Tensor], layers: list[str]) -> None:
    """Make convolutions of colour images fit grey ones, in place."""
    from timm.models import adapt_input_conv

    for layer in layers:
        weight = state.get(f"{layer}.weight")
        if weight is not None and weight.ndim == 4 and weight.shape[1] == 3:
            state[f"{layer}.weight"] = adapt_input_conv(1, weight)


def _embedding_layers(network: nn.Module, backbone: Published) -> list[str]:
    """Names of the layers that give classes in the published network, and the embedding here."""
    if isinstance(backbone, TimmBackbone):
        return _layers(network, "classifier")
    return [name for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)][-1:]


def _layers(network: Any, key: str) -> list[str]:
    """Layers that timm's description of a model names: none, one or several."""
    names = network.pretrained_cfg.get(key) or ()
    return [names] if isinstance(names, str) else list(names)
