"""Encoders: the one protocol, one file per kind, and specs that build an encoder again.

Light to import: a class loads when it is first named, and torch only when a network is built.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from compatstore.arrays import FloatArray
from compatstore.encoders.metering import Bill, Meter, Metered, meter, metered
from compatstore.encoders.protocol import Encoded, Encoder, QueryEncoder, encode_queries, encode_readable
from compatstore.encoders.specs import from_spec

if TYPE_CHECKING:
    from compatstore.encoders.derived import Derived, FilesById
    from compatstore.encoders.functions import Function, LanceDBFunction
    from compatstore.encoders.module import Module
    from compatstore.encoders.network import NetworkEncoder
    from compatstore.encoders.openai_compatible import OpenAICompatible
    from compatstore.encoders.precomputed import Precomputed
    from compatstore.encoders.published_models import OpenClipModel, TimmModel, TorchvisionModel
    from compatstore.encoders.text_models import (
        FastembedModel,
        Model2VecModel,
        SentenceTransformersModel,
        TransformersModel,
    )

__all__ = [
    "Bill",
    "Derived",
    "Encoded",
    "Encoder",
    "FastembedModel",
    "FilesById",
    "FloatArray",
    "Function",
    "LanceDBFunction",
    "Meter",
    "Metered",
    "Model2VecModel",
    "Module",
    "NetworkEncoder",
    "OpenAICompatible",
    "OpenClipModel",
    "Precomputed",
    "QueryEncoder",
    "SentenceTransformersModel",
    "TimmModel",
    "TorchvisionModel",
    "TransformersModel",
    "encode_queries",
    "encode_readable",
    "from_spec",
    "meter",
    "metered",
]

_HOMES = {
    "Derived": "derived",
    "FastembedModel": "text_models",
    "FilesById": "derived",
    "Function": "functions",
    "LanceDBFunction": "functions",
    "Model2VecModel": "text_models",
    "Module": "module",
    "NetworkEncoder": "network",
    "OpenAICompatible": "openai_compatible",
    "OpenClipModel": "published_models",
    "Precomputed": "precomputed",
    "SentenceTransformersModel": "text_models",
    "TimmModel": "published_models",
    "TorchvisionModel": "published_models",
    "TransformersModel": "text_models",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
