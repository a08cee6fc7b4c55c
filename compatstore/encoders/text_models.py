"""Text models in local folders, run by installed libraries: nothing is downloaded, no code of a model runs.

The fingerprint is that of the folder's files and of the settings, so that the same model at another path is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, checked_fields, foreign
from compatstore.digests import fingerprint as digest
from compatstore.encoders.model_files import hash_folder, loading, require_folder
from compatstore.encoders.module import require_torch
from compatstore.encoders.protocol import EMPTY_SOURCE
from compatstore.encoders.specs import join_spec
from compatstore.errors import InvalidInput, NotFound, SourceError, load_extra

Pooling = Literal["mean", "cls", "last"]
LONGEST = 100_000  # tokens; tokenizers without a limit name one of 10^30


@dataclass(eq=False, repr=False, kw_only=True)
class TextEncoder(ABC):
    """Embeds texts; a kind of encoder implements `_encode`.

    Args:
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length.
        batch_size: Texts that are embedded at once.

    Raises:
        InvalidInput: `batch_size` is below 1.
    """

    reads: ClassVar[Literal["source", "id"]] = "source"

    query_prefix: str = ""
    document_prefix: str = ""
    normalise: bool = False
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InvalidInput("make an encoder of texts", expected="batch_size >= 1", found=f"{self.batch_size}")

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of an embedding."""

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed items: (n, dim) float32.

        Raises:
            SourceError: Some are no texts; all of them are listed.
        """
        return self._encode(sources, queries=False)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed queries: (n, dim) float32; errors as those of `encode`."""
        return self._encode(queries, queries=True)

    @property
    def treatment(self) -> dict[str, str | bool]:
        """Settings beside the model that affect an embedding, for the fingerprint."""
        return {"query": self.query_prefix, "document": self.document_prefix, "normalise": self.normalise}

    def _prefixed(self, sources: Sequence[Any], *, queries: bool) -> list[str]:
        require_texts(sources)
        return [f"{self.query_prefix if queries else self.document_prefix}{text}" for text in sources]

    @abstractmethod
    def _encode(self, sources: Sequence[Any], *, queries: bool) -> FloatArray:
        """Embed sources with their prefixes: (n, dim) float32."""


def require_texts(sources: Sequence[Any]) -> None:
    """Refuse sources that no model of texts can read.

    Raises:
        SourceError: Some sources are no texts, or empty; all of them are listed.
    """
    failures = {place: why for place, why in enumerate(map(_flaw, sources)) if why}
    if failures:
        fix = "Leave these sources out of the batch."
        raise SourceError(f"embed {len(sources)} texts", failures, fix=fix)


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of length 1; those of length 0 stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: FloatArray = np.divide(vectors, lengths, out=vectors.copy(), where=lengths > 0)
    return scaled


def _flaw(source: Any) -> str:
    if not isinstance(source, str):
        return f"{type(source).__name__} is no text"
    if not source.strip():
        return EMPTY_SOURCE
    try:
        source.encode()
    except UnicodeEncodeError:
        return "a text with half characters"
    return ""


@dataclass(eq=False, repr=False)
class FolderModel(TextEncoder):
    """A text model in a folder; subclasses load it with their library and embed texts.

    Fields of a subclass belong to its fingerprint and its spec; `device` is part of neither.

    Args:
        folder: Its folder.
        query_prefix: Put before each query.
        document_prefix: Put before each item.
        normalise: Scale embeddings to unit length.
        batch_size: Texts that go through the model at once.

    Raises:
        NotFound: There is no such folder.
    """

    folder: str | Path

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.folder = require_folder(self.kind, self.folder)
        with loading(self.kind, self.folder):
            self._model = self._load(self.folder)

    @abstractmethod
    def _load(self, folder: Path) -> Any:
        """The library's model, of a folder that is there."""

    @abstractmethod
    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed at most `batch_size` texts: (n, dim) float32."""

    def _encode(self, sources: Sequence[Any], *, queries: bool) -> FloatArray:
        texts = self._prefixed(sources, queries=queries)
        vectors = [np.empty((0, self.dim), np.float32)]
        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            with foreign(f"embed {len(part)} texts with {type(self).__name__}", "vectors of numbers from the model"):
                made = np.asarray(self.embed(part, queries=queries), np.float32)
            vectors.append(unit(made) if self.normalise else made)
        return np.concatenate(vectors)

    @cached_property
    def dim(self) -> int:
        """Length of an embedding, found by embedding a word."""
        with loading(self.kind, Path(self.folder)):
            return int(self.embed(["dimension"], queries=False).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of the folder's files, the prefixes and the settings."""
        shared = {*(own.name for own in fields(FolderModel)), "device"}
        settings = {own.name: getattr(self, own.name) for own in fields(self) if own.name not in shared}
        return digest(kind=self.kind, files=hash_folder(Path(self.folder)), **settings, **self.treatment)

    @property
    def spec(self) -> str:
        """Spec by which `encoders.from_spec` builds this encoder again."""
        names = [own.name for own in fields(self) if own.name not in ("folder", "device")]
        settings = {name: getattr(self, name) for name in names}
        return join_spec(self.kind, [f"{Path(self.folder).absolute()}"], type(self), settings)


@checked_fields
@checked
@dataclass(eq=False, repr=False, kw_only=True)
class SentenceTransformersModel(FolderModel):
    """A model of the library sentence-transformers.

    The model's own prompts for queries and documents are used, unless prefixes are named.

    Args:
        folder: Folder of `SentenceTransformer.save` or of a download.
        query_prefix: Put before each query; "" takes the model's own prompt.
        document_prefix: Put before each item; "" takes the model's own prompt.
        normalise: Scale embeddings to unit length.
        batch_size: Texts that go through the model at once.
        device: A torch device; None takes CUDA if there is one.

    Raises:
        NotFound: There is no such folder.
        CorruptArtifact: It holds no model of that library.
        MissingExtra: sentence-transformers is not installed.

    Examples:
        >>> try:
        ...     cs.encoders.SentenceTransformersModel("no/such/folder")
        ... except cs.errors.NotFound as error:
        ...     print(error.operation)
        load a model of sentence-transformers
    """

    device: str | None = None

    kind: ClassVar[str] = "sentence-transformers"

    def _load(self, folder: Path) -> Any:
        library = load_extra("sentence_transformers", "text")
        named = {"query": self.query_prefix, "document": self.document_prefix}
        prompts = {name: prefix for name, prefix in named.items() if prefix}
        return library.SentenceTransformer(
            f"{folder}", device=self.device, prompts=prompts, local_files_only=True
        ).eval()

    def _prefixed(self, sources: Sequence[Any], *, queries: bool) -> list[str]:
        require_texts(sources)
        return list(sources)  # the library puts prompts before them: some models leave these out of the pooling

    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed texts by the model's way for queries, or for documents: (n, dim) float32."""
        encode = self._model.encode_query if queries else self._model.encode_document
        return np.asarray(encode(texts, batch_size=self.batch_size, show_progress_bar=False), np.float32)


@checked_fields
@checked
@dataclass(eq=False, repr=False, kw_only=True)
class TransformersModel(FolderModel):
    """A model of the library transformers, whose last hidden states are pooled.

    Args:
        folder: Folder of model and tokenizer, of `save_pretrained` or of a download.
        pooling: "mean" of the tokens' states, the first one ("cls") or the last one ("last").
        longest: Tokens of a text, the rest is cut; None takes the tokenizer's limit, or else the model's.
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length.
        batch_size: Texts that go through the model at once.
        device: A torch device; None takes CUDA if there is one.

    Raises:
        NotFound: There is no such folder.
        CorruptArtifact: It holds no model of that library.
        InvalidInput: A setting is out of its range.
        MissingExtra: transformers or torch is not installed.

    Examples:
        >>> try:
        ...     cs.encoders.TransformersModel("no/such/folder", pooling="cls")
        ... except cs.errors.NotFound as error:
        ...     print(error.operation)
        load a model of transformers
    """

    pooling: Pooling = "mean"
    longest: int | None = None
    device: str | None = None

    kind: ClassVar[str] = "transformers"

    def _load(self, folder: Path) -> Any:
        if self.longest is not None and self.longest < 1:
            raise InvalidInput("make an encoder of texts", expected="longest >= 1", found=f"{self.longest}")
        torch, library = require_torch(), load_extra("transformers", "text")
        self._device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer = library.AutoTokenizer.from_pretrained(f"{folder}", local_files_only=True)
        model = library.AutoModel.from_pretrained(f"{folder}", local_files_only=True)
        own = getattr(model.config, "max_position_embeddings", None)
        limits = (self.longest, self._tokenizer.model_max_length, own)
        self._longest = next((limit for limit in limits if limit and limit <= LONGEST), None)
        return model.float().to(self._device).eval()

    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed texts: (n, dim) float32."""
        torch = require_torch()
        tokens = self._tokenizer(
            texts, padding=True, truncation=self._longest is not None, max_length=self._longest, return_tensors="pt"
        ).to(self._device)
        with torch.inference_mode():
            states, mask = self._model(**tokens).last_hidden_state, tokens["attention_mask"]
            pooled = _pooled(states, mask, self.pooling)
        vectors: FloatArray = pooled.float().cpu().numpy()
        return vectors


@checked_fields
@checked
@dataclass(eq=False, repr=False, kw_only=True)
class FastembedModel(FolderModel):
    """A model in ONNX form, run by fastembed on onnxruntime, without torch.

    Args:
        folder: Folder of model.onnx (or onnx/model.onnx), tokenizer.json and config.json.
        pooling: "mean" of the tokens' states, the first one ("cls") or the last one ("last").
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length.
        batch_size: Texts that go through the model at once.

    Raises:
        NotFound: There is no such folder, or no ONNX file in it.
        CorruptArtifact: It holds no model that fastembed can run.
        MissingExtra: fastembed is not installed.

    Examples:
        >>> try:
        ...     cs.encoders.FastembedModel("no/such/folder")
        ... except cs.errors.NotFound as error:
        ...     print(error.operation)
        load a model of fastembed
    """

    pooling: Pooling = "mean"

    kind: ClassVar[str] = "fastembed"

    def _load(self, folder: Path) -> Any:
        fastembed = load_extra("fastembed", "text")
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx"))
        file = next((name for name in ("model.onnx", "onnx/model.onnx", *files) if name in files), None)
        if file is None:
            raise NotFound(f"load a model of {self.kind}", expected="a file model.onnx", found=f"none in {folder}")
        name = _registered(fastembed, folder, self.pooling, file)
        return fastembed.TextEmbedding(name, specific_model_path=f"{folder}")

    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed texts: (n, dim) float32."""
        return np.asarray(list(self._model.embed(texts, batch_size=self.batch_size)), np.float32)


@checked_fields
@checked
@dataclass(eq=False, repr=False, kw_only=True)
class Model2VecModel(FolderModel):
    """A static model of the library model2vec: a table of token vectors, fast on any processor.

    Args:
        folder: Folder of `StaticModel.save_pretrained` or of a download.
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length; the model's own setting is in its files.
        batch_size: Texts that go through the model at once.

    Raises:
        NotFound: There is no such folder.
        CorruptArtifact: It holds no model of that library.
        MissingExtra: model2vec is not installed.

    Examples:
        >>> try:
        ...     cs.encoders.Model2VecModel("no/such/folder")
        ... except cs.errors.NotFound as error:
        ...     print(error.operation)
        load a model of model2vec
    """

    batch_size: int = 1024

    kind: ClassVar[str] = "model2vec"

    def _load(self, folder: Path) -> Any:
        return load_extra("model2vec", "text").StaticModel.from_pretrained(folder)

    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed texts: (n, dim) float32."""
        return np.asarray(self._model.encode(texts, use_multiprocessing=False), np.float32)


def _pooled(states: Any, mask: Any, pooling: Pooling) -> Any:
    """(n, tokens, dim) hidden states -> (n, dim), without the padding of short texts, which may be on either side."""
    torch = require_torch()
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    there = mask.bool()
    chosen = places.where(there, -1).amax(1) if pooling == "last" else places.where(there, mask.shape[1]).amin(1)
    return states[torch.arange(len(states), device=states.device), chosen]


def _registered(fastembed: Any, folder: Path, pooling: Pooling, file: str) -> str:
    """Name by which a model in a folder is registered in fastembed, once in a process."""
    from fastembed.common.model_description import ModelSource, PoolingType

    ways = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "last": PoolingType.LAST_TOKEN}
    name = f"compatstore/{hash_folder(folder)}-{pooling}"
    if name not in {model["model"] for model in fastembed.TextEmbedding.list_supported_models()}:
        fastembed.TextEmbedding.add_custom_model(
            model=name,
            pooling=ways[pooling],
            normalization=False,
            sources=ModelSource(url="https://localhost/unused"),
            dim=1,
            model_file=file,
        )
    return name
