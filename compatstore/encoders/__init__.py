"""Encoders: the one protocol, one file per kind, and specs that build an encoder again.

Light to import: a name loads when it is first used, and torch only when a network is built.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatstore.arrays import FloatArray as FloatArray
    from compatstore.encoders.derived import Derived as Derived
    from compatstore.encoders.derived import FilesById as FilesById
    from compatstore.encoders.functions import Function as Function
    from compatstore.encoders.functions import LanceDBFunction as LanceDBFunction
    from compatstore.encoders.metering import Bill as Bill
    from compatstore.encoders.metering import Meter as Meter
    from compatstore.encoders.metering import Metered as Metered
    from compatstore.encoders.metering import meter as meter
    from compatstore.encoders.metering import metered as metered
    from compatstore.encoders.module import Module as Module
    from compatstore.encoders.network import NetworkEncoder as NetworkEncoder
    from compatstore.encoders.openai_compatible import OpenAICompatible as OpenAICompatible
    from compatstore.encoders.precomputed import Precomputed as Precomputed
    from compatstore.encoders.protocol import Encoded as Encoded
    from compatstore.encoders.protocol import Encoder as Encoder
    from compatstore.encoders.protocol import QueryEncoder as QueryEncoder
    from compatstore.encoders.protocol import encode_queries as encode_queries
    from compatstore.encoders.protocol import encode_readable as encode_readable
    from compatstore.encoders.published_models import OpenClipModel as OpenClipModel
    from compatstore.encoders.published_models import TimmModel as TimmModel
    from compatstore.encoders.published_models import TorchvisionModel as TorchvisionModel
    from compatstore.encoders.specs import from_spec as from_spec
    from compatstore.encoders.text_models import FastembedModel as FastembedModel
    from compatstore.encoders.text_models import Model2VecModel as Model2VecModel
    from compatstore.encoders.text_models import SentenceTransformersModel as SentenceTransformersModel
    from compatstore.encoders.text_models import TransformersModel as TransformersModel

_NAMES = {
    "arrays": "FloatArray",
    "encoders.derived": "Derived FilesById",
    "encoders.functions": "Function LanceDBFunction",
    "encoders.metering": "Bill Meter Metered meter metered",
    "encoders.module": "Module",
    "encoders.network": "NetworkEncoder",
    "encoders.openai_compatible": "OpenAICompatible",
    "encoders.precomputed": "Precomputed",
    "encoders.protocol": "Encoded Encoder QueryEncoder encode_queries encode_readable",
    "encoders.published_models": "OpenClipModel TimmModel TorchvisionModel",
    "encoders.specs": "from_spec",
    "encoders.text_models": "FastembedModel Model2VecModel SentenceTransformersModel TransformersModel",
}
_HOMES = {name: f"compatstore.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
