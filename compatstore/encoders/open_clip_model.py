"""Models of open_clip: items are images, queries are images or texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked
from compatstore.digests import fingerprint as digest
from compatstore.encoders.images import SUFFIXES, read_image
from compatstore.encoders.model_files import hash_folder, loading
from compatstore.encoders.module import Module, require_torch
from compatstore.encoders.specs import Value, join_spec
from compatstore.encoders.texts import unit
from compatstore.errors import InvalidInput, MissingExtra, NotFound, SourceError
from compatstore.paths import is_folder

if TYPE_CHECKING:
    import torch

IN_FOLDER = "local-dir:"


@checked
class OpenClipModel(Module):
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

    _reads_ahead = True

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
        try:
            import open_clip
        except ImportError as error:
            raise MissingExtra("open_clip", "clip") from error
        folder = Path(model).expanduser()
        name = f"{IN_FOLDER}{folder}" if is_folder(folder) else model
        _require_model(open_clip, model, weights, in_folder=is_folder(folder))
        with loading("open_clip", folder):
            built, _, transform = open_clip.create_model_and_transforms(name, pretrained=weights or None)
            self._tokenize = open_clip.get_tokenizer(name)
        self._text_identity = hash_folder(folder) if is_folder(folder) else model

        def preprocess(source: Any) -> torch.Tensor:
            tensor: torch.Tensor = transform(read_image(source, "RGB", roots))
            return tensor

        argument = f"{folder.absolute()}" if is_folder(folder) else model
        settings: dict[str, Value | None] = {"weights": weights, "normalise": normalise, "batch_size": batch_size}
        super().__init__(
            _image_tower(built),
            _values(built, transform),
            preprocess,
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            identity=re.sub(r" at 0x[0-9a-f]+", "", repr(transform)),
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


def _values(built: Any, transform: Any) -> int:
    """Length of an embedding, found by embedding a grey image."""
    from PIL import Image

    torch = require_torch()
    with torch.inference_mode():
        return int(built.eval().encode_image(transform(Image.new("RGB", (64, 64))).unsqueeze(0)).shape[1])
