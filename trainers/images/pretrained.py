"""Weights that a network of timm or torchvision starts from, and its stages, which may learn at rates of their own."""

from __future__ import annotations

import hashlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from compatstore.encoders.backbones import (
    Backbone,
    BasisTransformed,
    FinalNorm,
    GeneralisedMean,
    TimmBackbone,
    TorchvisionBackbone,
)
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
        network: What `backbone.build()` made.
        backbone: Its description.
        pretrained: See `ImageTraining`.

    Raises:
        InvalidInput: The network is not of timm or torchvision, or a folder or package holds several files.
        NotFound: There is no such file, folder or package, it holds no weights, or the library's cannot be had.
        CorruptArtifact: The file cannot be read.
        Incompatible: The weights are another network's; names what is missing, unexpected or of another shape.
    """
    found = published(network, backbone)
    if found is None:
        expected = 'architecture "timm:NAME" or "torchvision:NAME"'
        raise InvalidInput(f"start from {pretrained}", expected=expected, found="a small network")
    asked = f"start {found.backbone.name} from {pretrained}"
    if pretrained == DOWNLOAD:
        state = _of_library(found, asked)
    else:
        state = _in_colours(found, read_weights(find_weights(pretrained), asked))
    own = found.network.state_dict()
    embedding = tuple(f"{name}." for name in _embedding_layers(found))
    wanted = [name for name in own if not name.startswith(embedding)]
    missing = [name for name in wanted if name not in state and not name.endswith(_COUNTER)]
    given = {name: value for name, value in state.items() if not name.startswith(embedding)}
    unexpected = [name for name in given if name not in own and not name.endswith(_COUNTER)]
    shapes = [f"{name} {tuple(given[name].shape)}" for name in wanted if _differs(given.get(name), own[name])]
    if missing or unexpected or shapes:
        lists = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
        raise Incompatible(
            asked,
            expected=f"the {len(wanted)} tensors of {found.backbone.name} before its last layer",
            found="; ".join(f"{len(names)} {kind}: {first_offenders(names)}" for kind, names in lists.items() if names),
            fix="Name the architecture that the weights are of.",
        )
    found.network.load_state_dict(own | {name: given[name] for name in wanted if name in given})


def find_weights(pretrained: str) -> Path:
    """Return the file that holds the weights.

    Raises:
        NotFound: There is no such file, folder or package, or it holds no weights.
        InvalidInput: It holds several files of weights.
    """
    asked = f"find the weights {pretrained}"
    packaged = pretrained.startswith(PACKAGE)
    place = _package(pretrained, asked) if packaged else Path(pretrained).expanduser()
    if is_file(place):
        return place
    if not is_folder(place):
        fix = f'Check the path; "{DOWNLOAD}" takes the published weights, "{PACKAGE}NAME" those of a package.'
        raise NotFound(asked, expected="a file or a folder", found="nothing", fix=fix)
    # A package keeps its files anywhere; below a folder of the user's there may be millions.
    inside = place.rglob("*") if packaged else place.iterdir()
    files = sorted(file for file in inside if file.suffix in SUFFIXES and is_file(file))
    if not files:
        raise NotFound(asked, expected=f"a file that ends in {', '.join(SUFFIXES)}", found="none")
    if len(files) > 1:
        names = first_offenders([str(file.relative_to(place)) for file in files])
        raise InvalidInput(asked, expected="one file of weights", found=names, fix="Name one of them.")
    return files[0]


def weights_digest(pretrained: str) -> str:
    """SHA-256 of the file of weights, wherever it lies; "download" of those of the library."""
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


def _package(pretrained: str, asked: str) -> Path:
    """Folder of an installed package, which is not imported, or a file in it: "package:NAME", "package:NAME/FILE"."""
    name, _, inside = pretrained.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        fix = "Install it with pip; its name is the one it is imported by."
        raise NotFound(asked, expected="an installed package that ships weights", found=repr(name), fix=fix)
    return Path(folders[0], inside)


def _of_library(found: Published, asked: str) -> dict[str, torch.Tensor]:
    """The published weights, from the library's cache or the network."""
    backbone = found.backbone
    with downloading(asked, "name a file, a folder or package:NAME"):
        if isinstance(backbone, TimmBackbone):
            import timm

            return dict(timm.create_model(backbone.name, pretrained=True, in_chans=backbone.channels).state_dict())
        from torchvision import models

        return dict(models.get_model(backbone.name, weights="DEFAULT").state_dict())


def _in_colours(found: Published, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Make the first convolutions of timm's weights fit grey images."""
    if found.backbone.channels == 3:
        return state
    from timm.models import adapt_input_conv

    changed = dict(state)
    for layer in _names(found, "first_conv"):
        weight = state.get(f"{layer}.weight")
        if weight is not None and weight.ndim == 4 and weight.shape[1] == 3:
            changed[f"{layer}.weight"] = adapt_input_conv(found.backbone.channels, weight)
    return changed


def _embedding_layers(found: Published) -> list[str]:
    """Names of the layers that give classes in the published network, and the embedding here."""
    if isinstance(found.backbone, TimmBackbone):
        return _names(found, "classifier")
    layers = [name for name, module in found.network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return layers[-1:]


def _names(found: Published, key: str) -> list[str]:
    """Layers that timm's description of a model names: none, one or several."""
    network: Any = found.network
    names = network.pretrained_cfg.get(key) or ()
    return [names] if isinstance(names, str) else list(names)


def _differs(given: torch.Tensor | None, own: torch.Tensor) -> bool:
    return given is not None and given.shape != own.shape


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
