"""Haystack's embedders as one embedding model of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haystack import Document, default_from_dict, default_to_dict
from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
from haystack.core.serialization import component_to_dict

from compatstore.encoders import Function
from compatstore.integrations.models import FrameworkModel, identity_of, require_model


class Embedders:
    """A document embedder and the text embedder that belongs to it: one embedding model.

    Args:
        document: Embeds documents by their content.
        text: Embeds queries.
        identity: What tells the model from any other ("text-embedding-3-small@2024-01"), where the components' classes,
            settings and release do not, or tell too much.
    """

    __module__ = "compatstore.integrations.haystack"  # stored pipelines name it so

    def __init__(self, document: DocumentEmbedder, text: TextEmbedder, identity: str | None = None) -> None:
        self.document, self.text, self.identity = document, text, identity

    def to_dict(self) -> dict[str, Any]:
        """What builds them again."""
        document, text = component_to_dict(self.document, "document"), component_to_dict(self.text, "text")
        return default_to_dict(self, document=document, text=text, identity=self.identity)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Embedders:
        """Build them again."""
        return default_from_dict(cls, data)

    def model(self) -> FrameworkModel:
        """The two as one model."""
        named = f"{identity_of(self.document, 'haystack')}; {identity_of(self.text, 'haystack')}"
        return FrameworkModel(
            named if self.identity is None else require_model(self.identity, "Haystack"), self._documents, self._queries
        )

    def _documents(self, texts: Sequence[str]) -> list[list[float]]:
        _warm_up(self.document)
        return [done.embedding for done in self.document.run([Document(content=text) for text in texts])["documents"]]

    def _queries(self, texts: Sequence[str]) -> list[list[float]]:
        _warm_up(self.text)
        return [self.text.run(text)["embedding"] for text in texts]


def as_encoder(embedders: Embedders, *, spec: str = "") -> Function:
    """Haystack's embedders as an encoder: for `Gallery.register`, and for `--encoder python:MODULE:ATTRIBUTE`.

    Args:
        embedders: One document is embedded, to see how many values a vector has.
        spec: How `encoders.from_spec` finds this object again ("python:package.module:attribute"), if it can.
    """
    return embedders.model().measured(spec)


def _warm_up(embedder: object) -> None:
    warm_up = getattr(embedder, "warm_up", None)
    if warm_up is not None:
        warm_up()
