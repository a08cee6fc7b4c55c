"""Published models of images: of timm and torchvision, and of open_clip, whose queries may be texts.

Each with its own preprocessing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from compatstore.arrays import FloatArray
from compatstore.boundary import checked
from compatstore.digests import fingerprint as digest
from compatstore.encoders.images import SUFFIXES, read_image
from compatstore.encoders.model_files import hash_folder, loading, read_weights
from compatstore.encoders.module import Module, require_torch
from compatstore.encoders.specs import Value, join_spec
from compatstore.encoders.text_models import unit
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError, first_offenders, load_extra
from compatstore.paths import is_file, is_folder

if TYPE_CHECKING:
    import torch
    from torch import nn


class ImageModel(Module):
    """Embeds images with a network and the preprocessing that was published with it.

    Args:
        network: (b, 3, h, w) -> (b, dim).
        transform: Of an image.
        normalise: See `Module`.
        device: See `Module`.
        batch_size: See `Module`.
        roots: Folders that image paths must lie in; empty allows every path.
        spec: See `Module`.
    """

    _reads_ahead = True

    def __init__(
        self,
        network: nn.Module,
        transform: Callable[[Image.Image], torch.Tensor],
        *,
        normalise: bool,
        device: str | None,
        batch_size: int,
        roots: Sequence[str | Path],
        spec: str,
    ) -> None:
        with require_torch().inference_mode():
            blank = transform(Image.new("RGB", (256, 256)))
            dim = int(network.eval()(blank.unsqueeze(0)).shape[1])
        super().__init__(
            network,
            dim,
            lambda source: transform(read_image(source, "RGB", roots)),
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            identity=re.sub(r" at 0x[0-9a-f]+", "", repr(transform)),
            spec=spec,
        )


@checked
class TimmModel(ImageModel):
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
        timm = load_extra("timm", "train")
        network = _create_timm(timm, name, pretrained=checkpoint is None)
        if checkpoint is not None:
            load_checkpoint(network, checkpoint)
        config = timm.data.resolve_model_data_config(network)
        spec = f"timm:{name}" if checkpoint is None and not normalise else ""
        super().__init__(
            network,
            timm.data.create_transform(**config, is_training=False),
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            roots=roots,
            spec=spec,
        )


def _create_timm(timm: Any, name: str, *, pretrained: bool) -> Any:
    asked = f"build timm's {name}"
    if not timm.is_model(name):
        similar = ", ".join(timm.list_models(f"*{name.split('.')[0]}*")[:5])
        raise NotFound(asked, expected="a name of timm.list_models()", found=repr(name), fix=f"Similar: {similar}.")
    with downloading(asked, "hand over TimmModel(name, checkpoint=...)"):
        return timm.create_model(name, num_classes=0, pretrained=pretrained)


@contextmanager
def downloading(asked: str, otherwise: str) -> Iterator[None]:
    """Let a library fetch its published weights.

    Args:
        asked: What the caller wanted, for errors.
        otherwise: What else there is to do.

    Raises:
        NotFound: There is no network and no cache, the download is broken, or no weights were published at all.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        fix = f"Connect to the network once, or {otherwise}."
        raise NotFound(asked, expected="its published weights", found=str(error), fix=fix) from error


@checked
class TorchvisionModel(ImageModel):
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
        network = _create_torchvision(name, published if checkpoint is None else None)
        _drop_classifier(network, name)
        if checkpoint is not None:
            load_checkpoint(network, checkpoint)
        plain = checkpoint is None and not normalise and weights == "DEFAULT"
        super().__init__(
            network,
            published.transforms(),
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            roots=roots,
            spec=f"torchvision:{name}" if plain else "",
        )


def _weights(name: str, weights: str) -> Any:
    models = load_extra("torchvision.models", "train")
    asked = f"build torchvision's {name} with weights {weights}"
    try:
        return models.get_model_weights(name)[weights]
    except (ValueError, KeyError) as error:
        raise NotFound(asked, expected="a name of torchvision.models.list_models()", found=str(error)) from error


def _create_torchvision(name: str, weights: Any) -> Any:
    models = load_extra("torchvision.models", "train")
    with downloading(f"build torchvision's {name}", "hand over TorchvisionModel(name, checkpoint=...)"):
        return models.get_model(name, weights=weights)


def _drop_classifier(network: Any, name: str) -> None:
    nn = require_torch().nn
    last_name, last = list(network.named_modules())[-1]
    if not isinstance(last, nn.Linear):
        fix = "Wrap it yourself: encoders.Module(network, dim, preprocess)."
        raise InvalidInput(f"embed with {name}", expected="a last linear layer", found=type(last).__name__, fix=fix)
    network.set_submodule(last_name, nn.Identity())


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


IN_FOLDER = "local-dir:"


@checked
class OpenClipModel(ImageModel):
    """Embeds images by the image tower of a CLIP model, and queries that are texts by its text tower.

    A query that is a text is an image where it ends as the name of one ("cup.jpg"), and else a text.

    Args:
        model: A folder with open_clip_config.json and weights, or a name of `open_clip.list_models()`.
        weights: For a name: a file of weights, or the name of published ones ("laion2b_s34b_b79k"), which are taken
            from the cache or the network; never random ones.
        normalise: Scale embeddings to unit length, as CLIP compares them.
        device: A torch device; None takes CUDA where there is one.
        batch_size: Images or texts that go through the model at once.
        roots: Folders that image paths must lie in; empty allows every path.

    Raises:
        NotFound: There is no such folder or name.
        InvalidInput: A name without weights, or a folder with them.
        CorruptArtifact: There is no model that open_clip can load.
        MissingExtra: open_clip is not installed.

    Examples:
        >>> try:
        ...     cs.encoders.OpenClipModel("ViT-B-32")
        ... except (cs.errors.InvalidInput, cs.errors.MissingExtra) as error:
        ...     print(type(error).__name__ in ("InvalidInput", "MissingExtra"))
        True
    """

    def __init__(
        self,
        model: str,
        *,
        weights: str = "",
        normalise: bool = True,
        device: str | None = None,
        batch_size: int = 64,
        roots: Sequence[str | Path] = (),
    ) -> None:
        open_clip = load_extra("open_clip", "clip")
        folder = Path(model).expanduser()
        name = f"{IN_FOLDER}{folder}" if is_folder(folder) else model
        _require_model(open_clip, model, weights, in_folder=is_folder(folder))
        with loading("open_clip", folder):
            built, _, transform = open_clip.create_model_and_transforms(name, pretrained=weights or None)
            self._tokenize = open_clip.get_tokenizer(name)
        self._text_identity = hash_folder(folder) if is_folder(folder) else model

        argument = f"{folder.absolute()}" if is_folder(folder) else model
        settings: dict[str, Value | None] = {"weights": weights, "normalise": normalise, "batch_size": batch_size}
        super().__init__(
            _image_tower(built),
            transform,
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            roots=roots,
            spec="" if roots else join_spec("open_clip", [argument], OpenClipModel, settings),
        )
        self._clip = built.to(self.device).eval()
        # The weights of the text tower and its tokenizer decide what queries find.
        self.fingerprint = digest(images=self.fingerprint, texts=self._text_identity)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed images and texts: (n, dim) float32.

        Raises:
            SourceError: Some images cannot be read; all of them are listed.
        """
        texts = [place for place, query in enumerate(queries) if is_text(query)]
        images = [place for place, query in enumerate(queries) if not is_text(query)]
        vectors: FloatArray = np.empty((len(queries), self.dim), np.float32)
        if images:
            vectors[images] = self._encode_images([queries[place] for place in images], images, len(queries))
        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            vectors[part] = self._embed_texts([queries[place] for place in part])
        return vectors

    def _encode_images(self, sources: list[Any], places: list[int], rows: int) -> FloatArray:
        try:
            return self.encode(sources)
        except SourceError as error:
            failures = {places[position]: reason for position, reason in error.failures.items()}
            raise SourceError(f"embed {rows} queries", failures, fix=error.fix) from error

    def _embed_texts(self, texts: list[str]) -> FloatArray:
        torch = require_torch()
        with torch.inference_mode():
            output: FloatArray = self._clip.encode_text(self._tokenize(texts).to(self.device)).float().cpu().numpy()
        return unit(output) if self.normalise else output


def is_text(query: Any) -> bool:
    """Whether a query is a text, and not the name of an image's file."""
    return isinstance(query, str) and Path(query.split("?")[0]).suffix.lower() not in SUFFIXES


def _require_model(open_clip: Any, model: str, weights: str, *, in_folder: bool) -> None:
    asked = f"load open_clip's {model}"
    if in_folder and weights:
        raise InvalidInput(asked, expected="a folder, which holds its weights", found=f"weights {weights} as well")
    if not in_folder and model not in open_clip.list_models():
        raise NotFound(asked, expected="a folder, or a name of open_clip.list_models()", found=repr(model))
    if not in_folder and not weights:
        known = ", ".join(open_clip.list_pretrained_tags_by_model(model)[:5])
        raise InvalidInput(asked, expected="weights: a file, or a name", found="none", fix=f"Published: {known}.")


def _image_tower(built: Any) -> Any:
    """The model as a module of images; its state holds both towers."""
    nn = require_torch().nn

    class ImageTower(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.clip = built

        def forward(self, images: Any) -> Any:
            return self.clip.encode_image(images)

    return ImageTower()
