"""Published models of images: of timm and torchvision, and of open_clip, whose queries may be texts.

Each with its own preprocessing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from PIL import Image

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, checked_fields
from compatstore.digests import fingerprint as digest
from compatstore.encoders.images import SUFFIXES, read_image
from compatstore.encoders.model_files import hash_folder, loading, read_weights
from compatstore.encoders.module import Module, require_torch
from compatstore.encoders.specs import join_spec
from compatstore.encoders.text_models import unit
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError, first_offenders, load_extra
from compatstore.paths import is_file, is_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

Transform: TypeAlias = Callable[[Image.Image], "torch.Tensor"]


@dataclass(eq=False, repr=False, kw_only=True)
class ImageModel(Module, ABC):
    """A published network of images with its own preprocessing; a kind of model loads it.

    Fields of a kind that are keyword arguments are settings of its spec.

    Args:
        normalise: See `Module`.
        device: See `Module`.
        batch_size: See `Module`.
        roots: Folders that image paths must lie in; empty allows every path.
    """

    normalise: bool = False
    device: str | None = None
    batch_size: int = 64
    roots: Sequence[str | Path] = ()

    kind: ClassVar[str]
    _reads_ahead = True

    def __post_init__(self) -> None:
        name, network, transform = self._load()
        with require_torch().inference_mode():
            blank = transform(Image.new("RGB", (256, 256)))
            dim = int(network.eval()(blank.unsqueeze(0)).shape[1])
        roots, settings = self.roots, {own.name: getattr(self, own.name) for own in fields(self) if own.kw_only}
        local = {"device", "roots", "checkpoint"} & settings.keys()
        written = {setting: value for setting, value in settings.items() if setting not in local}
        super().__init__(
            network,
            dim,
            lambda source: transform(read_image(source, "RGB", roots)),
            normalise=self.normalise,
            device=self.device,
            batch_size=self.batch_size,
            identity=re.sub(r" at 0x[0-9a-f]+", "", repr(transform)),
            spec="" if roots or settings.get("checkpoint") else join_spec(self.kind, [name], type(self), written),
        )

    @abstractmethod
    def _load(self) -> tuple[str, nn.Module, Transform]:
        """Return the name of the model in a spec, its network, (b, 3, h, w) -> (b, dim), and its preprocessing."""


@checked_fields
@checked
@dataclass(eq=False, repr=False)
class TimmModel(ImageModel):
    """A timm backbone without its classifier.

    Args:
        name: Name of the model, with or without the tag of its weights ("resnet18", "resnet18.a1_in1k").
        checkpoint: Weights of your own (.safetensors, or a .pt state dict); a classifier among them is left out.
            Without it the published weights are loaded, from timm's cache or the network: never random ones.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA if there is one.
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

    name: str
    _: KW_ONLY
    checkpoint: str | Path | None = None

    kind: ClassVar[str] = "timm"

    def _load(self) -> tuple[str, nn.Module, Transform]:
        timm, name, operation = load_extra("timm", "train"), self.name, f"build timm's {self.name}"
        if not timm.is_model(name):
            similar = ", ".join(timm.list_models(f"*{name.split('.')[0]}*")[:5])
            raise NotFound(
                operation, expected="a name of timm.list_models()", found=repr(name), fix=f"Similar: {similar}."
            )
        with downloading(operation, "hand over TimmModel(name, checkpoint=...)"):
            network = timm.create_model(name, num_classes=0, pretrained=self.checkpoint is None)
        if self.checkpoint is not None:
            load_checkpoint(network, self.checkpoint)
        config = timm.data.resolve_model_data_config(network)
        return name, network, timm.data.create_transform(**config, is_training=False)


@contextmanager
def downloading(operation: str, otherwise: str) -> Iterator[None]:
    """Let a library fetch its published weights.

    Args:
        operation: The caller's operation, for errors.
        otherwise: An alternative, for messages.

    Raises:
        NotFound: There is no network and no cache, the download is broken, or no weights were published at all.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        fix = f"Connect to the network once, or {otherwise}."
        raise NotFound(operation, expected="its published weights", found=str(error), fix=fix) from error


@checked_fields
@checked
@dataclass(eq=False, repr=False)
class TorchvisionModel(ImageModel):
    """A torchvision classifier whose last linear layer is replaced by the identity.

    Args:
        name: Name of the model ("resnet18").
        weights: Name of its published weights, which also decide the preprocessing.
        checkpoint: Weights of your own (.safetensors, or a .pt state dict); a classifier among them is left out.
            Without it the published weights are loaded, from torch's cache or the network: never random ones.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA if there is one.
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

    name: str
    _: KW_ONLY
    weights: str = "DEFAULT"
    checkpoint: str | Path | None = None

    kind: ClassVar[str] = "torchvision"

    def _load(self) -> tuple[str, nn.Module, Transform]:
        models, operation = load_extra("torchvision.models", "train"), f"build torchvision's {self.name}"
        try:
            published = models.get_model_weights(self.name)[self.weights]
        except (ValueError, KeyError) as error:
            expected = "a name of torchvision.models.list_models()"
            raise NotFound(f"{operation} with weights {self.weights}", expected=expected, found=str(error)) from error
        with downloading(operation, "hand over TorchvisionModel(name, checkpoint=...)"):
            network = models.get_model(self.name, weights=None if self.checkpoint else published)
        last_name, last = list(network.named_modules())[-1]
        linear = require_torch().nn.Linear
        if not isinstance(last, linear):
            fix = "Wrap it yourself: encoders.Module(network, dim, preprocess)."
            found = type(last).__name__
            raise InvalidInput(f"embed with {self.name}", expected="a last linear layer", found=found, fix=fix)
        network.set_submodule(last_name, require_torch().nn.Identity())
        if self.checkpoint is not None:
            load_checkpoint(network, self.checkpoint)
        return self.name, network, published.transforms()


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
    operation = f"load the weights {path}"
    if not is_file(path):
        raise NotFound(operation, expected="a file", found="nothing", fix="Check the path.")
    state = read_weights(path, operation)
    wanted = network.state_dict()
    missing = [name for name in wanted if name not in state]
    wrong = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if missing or wrong:
        found = f"missing {first_offenders(missing) or 'none'}; of another shape {first_offenders(wrong) or 'none'}"
        raise CorruptArtifact(operation, expected=f"the {len(wanted)} weights of the network", found=found)
    network.load_state_dict({name: state[name] for name in wanted})


IN_FOLDER = "local-dir:"


@checked_fields
@checked
@dataclass(eq=False, repr=False)
class OpenClipModel(ImageModel):
    """Embeds images by the image tower of a CLIP model, and queries that are texts by its text tower.

    A query that ends as the name of an image ("cup.jpg") is read as an image, any other text as a text.

    Args:
        model: A folder with open_clip_config.json and weights, or a name of `open_clip.list_models()`.
        weights: For a name: a file of weights, or the name of published ones ("laion2b_s34b_b79k"), which are taken
            from the cache or the network; never random ones.
        normalise: Scale embeddings to unit length, as CLIP compares them.
        device: A torch device; None takes CUDA if there is one.
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

    model: str
    _: KW_ONLY
    weights: str = ""
    normalise: bool = True

    kind: ClassVar[str] = "open_clip"

    def _load(self) -> tuple[str, nn.Module, Transform]:
        open_clip, folder = load_extra("open_clip", "clip"), Path(self.model).expanduser()
        in_folder = is_folder(folder)
        _require_model(open_clip, self.model, self.weights, in_folder=in_folder)
        name = f"{IN_FOLDER}{folder}" if in_folder else self.model
        with loading(self.kind, folder):
            self._clip, _, transform = open_clip.create_model_and_transforms(name, pretrained=self.weights or None)
            self._tokenize = open_clip.get_tokenizer(name)
        self._text_identity = hash_folder(folder) if in_folder else self.model
        return f"{folder.absolute()}" if in_folder else self.model, _image_tower(self._clip), transform

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of both towers: the text tower and its tokenizer affect queries."""
        return digest(images=super().fingerprint, texts=self._text_identity)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed images and texts: (n, dim) float32.

        Raises:
            SourceError: Some images cannot be read; all of them are listed.
        """
        texts = [place for place, query in enumerate(queries) if is_text(query)]
        images = [place for place, query in enumerate(queries) if not is_text(query)]
        vectors: FloatArray = np.empty((len(queries), self.dim), np.float32)
        try:
            vectors[images] = self.encode([queries[place] for place in images])
        except SourceError as error:
            failures = {images[position]: reason for position, reason in error.failures.items()}
            raise SourceError(f"embed {len(queries)} queries", failures, fix=error.fix) from error
        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            tokens = self._tokenize([queries[place] for place in part]).to(self.device)
            with require_torch().inference_mode():
                output: FloatArray = self._clip.encode_text(tokens).float().cpu().numpy()
            vectors[part] = unit(output) if self.normalise else output
        return vectors


def is_text(query: Any) -> bool:
    """True if a query is a text, and not the name of an image's file."""
    return isinstance(query, str) and Path(query.split("?")[0]).suffix.lower() not in SUFFIXES


def _require_model(open_clip: Any, model: str, weights: str, *, in_folder: bool) -> None:
    operation = f"load open_clip's {model}"
    if in_folder and weights:
        raise InvalidInput(operation, expected="a folder, which holds its weights", found=f"weights {weights} as well")
    if not in_folder and model not in open_clip.list_models():
        raise NotFound(operation, expected="a folder, or a name of open_clip.list_models()", found=repr(model))
    if not in_folder and not weights:
        known = ", ".join(open_clip.list_pretrained_tags_by_model(model)[:5])
        raise InvalidInput(operation, expected="weights: a file, or a name", found="none", fix=f"Published: {known}.")


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
