"""compatstore: change the embedding model of a live retrieval system without re-embedding the gallery first.

`import compatstore` is light: nothing is loaded before it is named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatstore import encoders, errors, evaluation
    from compatstore.artifacts import Artifact, Transformed
    from compatstore.derivation import Derivation
    from compatstore.devices.export import export
    from compatstore.errors import CompatStoreError
    from compatstore.gallery import Gallery
    from compatstore.in_memory.nearest import ExactNeighbours, nearest_neighbours
    from compatstore.notebook import ShowProgress
    from compatstore.search.cache import Cache, Nearest
    from compatstore.search.cached_reading import CacheSize
    from compatstore.search.cascade import Cascade
    from compatstore.shards import Shards
    from compatstore.storage.indexes import SearchSettings
    from compatstore.trainers.pairs.learn import Learn
    from compatstore.upgrade.requests.backfill import Backfill
    from compatstore.upgrade.requests.details import Details
    from compatstore.upgrade.requests.gates import Gates
    from compatstore.upgrade.requests.queries import Queries
    from compatstore.upgrade.requests.run_settings import RunSettings
    from compatstore.versions import EmbeddingVersion, HeadLoss

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "Backfill",
    "Cache",
    "CacheSize",
    "Cascade",
    "CompatStoreError",
    "Derivation",
    "Details",
    "EmbeddingVersion",
    "ExactNeighbours",
    "Gallery",
    "Gates",
    "HeadLoss",
    "Learn",
    "Nearest",
    "Queries",
    "RunSettings",
    "SearchSettings",
    "Shards",
    "ShowProgress",
    "Transformed",
    "__version__",
    "encoders",
    "errors",
    "evaluation",
    "export",
    "nearest_neighbours",
]

_HOMES = {
    "Artifact": "compatstore.artifacts",
    "Backfill": "compatstore.upgrade.requests.backfill",
    "Cache": "compatstore.search.cache",
    "CacheSize": "compatstore.search.cached_reading",
    "Cascade": "compatstore.search.cascade",
    "CompatStoreError": "compatstore.errors",
    "Derivation": "compatstore.derivation",
    "Details": "compatstore.upgrade.requests.details",
    "EmbeddingVersion": "compatstore.versions",
    "ExactNeighbours": "compatstore.in_memory.nearest",
    "Gallery": "compatstore.gallery",
    "Gates": "compatstore.upgrade.requests.gates",
    "HeadLoss": "compatstore.versions",
    "Learn": "compatstore.trainers.pairs.learn",
    "Nearest": "compatstore.search.cache",
    "Queries": "compatstore.upgrade.requests.queries",
    "RunSettings": "compatstore.upgrade.requests.run_settings",
    "SearchSettings": "compatstore.storage.indexes",
    "Shards": "compatstore.shards",
    "ShowProgress": "compatstore.notebook",
    "Transformed": "compatstore.artifacts",
    "export": "compatstore.devices.export",
    "nearest_neighbours": "compatstore.in_memory.nearest",
}
_MODULES = ("encoders", "errors", "evaluation")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"compatstore.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'compatstore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
