"""Embedding models of other frameworks as encoders of a gallery's versions, and their identities."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import foreign
from compatstore.encoders import Function
from compatstore.encoders.specs import without_secrets
from compatstore.errors import InvalidInput
from compatstore.versions import EmbeddingVersion

EmbedTexts = Callable[[Sequence[Any]], Any]

# Settings of a model's device, speed or logging, which do not affect its vectors.
_RUNNING = re.compile(
    r"batch|chunk|timeout|retr|progress|device|worker|parallel|thread|concurren|async|proxy|header|client|cache|"
    r"verbose|debug|log|callback|tag|url|base|endpoint|host|port|organi[sz]ation|user|rate|limit|warn|legacy|num_instances",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FrameworkModel:
    """An embedding model of another framework.

    Args:
        identity: Identity of the model: `identity_of` the object, or declared by its owner
            ("text-embedding-3-small@2024-01"). Part of the fingerprint of versions.
        documents: Embeds n texts to store: n vectors. None for a model that is used outside of the store.
        queries: Embeds n texts to search with: n vectors. None beside no `documents`.
    """

    identity: str
    documents: EmbedTexts | None = None
    queries: EmbedTexts | None = None

    def encoder(self, dim: int) -> Function | None:
        """The model as an encoder of `dim` values; None of one that is used outside."""
        if self.documents is None:
            return None
        return Function(self.documents, dim, fingerprint=self.identity, queries=self.queries)

    def is_of(self, version: EmbeddingVersion, given: str = "") -> bool:
        """True if a version, read without its encoders, is this model's.

        Args:
            version: The version.
            given: Fingerprint of the encoder that a version without a model was given later; "" for none.
        """
        encoder = self.encoder(version.dim)
        return (given or version.identity) == (self.identity if encoder is None else encoder.fingerprint)

    def measured(self, spec: str = "") -> Function:
        """The model as an encoder of as many values as the embedding of one text has.

        Args:
            spec: Spec by which `encoders.from_spec` finds the encoder again ("python:package.module:attribute").

        Raises:
            InvalidInput: It gives no vector. It is used outside.
        """
        operation = f"embed a text with {self.identity}"
        if self.documents is None:
            raise InvalidInput(operation, expected="a model that embeds, or the length of its vectors", found="a name")
        with foreign(operation, "a vector of numbers"):
            vector: FloatArray = np.asarray(self.documents(["dimension"])[0], np.float32)
        if vector.ndim != 1 or not len(vector):
            raise InvalidInput(operation, expected="a vector", found=f"shape {vector.shape}")
        return Function(self.documents, len(vector), fingerprint=self.identity, queries=self.queries, spec=spec)


def model_of_framework(
    framework: str, kind: type, methods: tuple[str, str], model: object, identity: str | None
) -> FrameworkModel:
    """A model object of a framework with an identity; a `FrameworkModel` as it is.

    Args:
        framework: Its name, in its usual spelling.
        kind: The class of its models.
        methods: Names of their methods that embed n texts to store, and one text to search with.
        model: The model object.
        identity: As its owner declares it; None for `identity_of` the object.

    Raises:
        InvalidInput: It is no model of this framework, or the identity is no text.
    """
    if isinstance(model, FrameworkModel):
        return model
    if not isinstance(model, kind):
        expected = f"an object of {kind.__name__}"
        raise InvalidInput(f"use a model of {framework}", expected=expected, found=type(model).__name__)
    named = identity_of(model, framework.lower()) if identity is None else require_model(identity, framework)
    documents, query = (getattr(model, method) for method in methods)
    return FrameworkModel(named, lambda texts: documents(list(texts)), lambda texts: [query(text) for text in texts])


def identity_of(model: object, framework: str) -> str:
    """Identity of a model object: its class, its settings and the release of its library; no secrets.

    Settings are the plain values among the object's public attributes, without those of its device and speed only. Of a
    release the first two numbers count. If these do not match the factors that affect the vectors, the
    owner of the model declares an identity.

    Args:
        model: An embedding model.
        framework: Its framework, in one word.

    Returns:
        For example 'langchain: OpenAIEmbeddings(dimensions=512, model=text-embedding-3-small) of langchain-openai 1.0'.
    """
    kind = type(model)
    settings = {name: value for name, value in sorted(_attributes(model)) if not _RUNNING.search(name)}
    plain = {name: value for name, value in settings.items() if _is_plain(value)}
    shown = ", ".join(f"{name}={value}" for name, value in without_secrets(plain).items())
    return f"{framework}: {kind.__qualname__}({shown}) of {_release(kind.__module__.partition('.')[0])}"


def require_model(identity: str, framework: str) -> str:
    """An identity that a caller declares.

    Raises:
        InvalidInput: It is no text.
    """
    if not isinstance(identity, str) or not identity.strip():
        raise InvalidInput(f"name a model of {framework}", expected="a text that names it", found=repr(identity))
    return identity


def _attributes(model: object) -> Iterable[tuple[str, Any]]:
    """Public attributes; functions by their names."""
    for name, value in getattr(model, "__dict__", {}).items():
        if not name.startswith("_"):
            yield name, f"{value.__module__}.{value.__qualname__}" if inspect.isfunction(value) else value


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, str | bool | int | float)


@cache
def _release(module: str) -> str:
    names = packages_distributions().get(module, [])
    try:
        return f"{names[0]} {'.'.join(version(names[0]).split('.')[:2])}" if names else module
    except PackageNotFoundError:
        return module
