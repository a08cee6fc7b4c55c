"""compatstore: change the embedding model of a live retrieval system without re-embedding the gallery first.

`import compatstore` is light: nothing is loaded before it is named.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatstore import encoders as encoders
    from compatstore import errors as errors
    from compatstore import evaluation as evaluation
    from compatstore.artifacts import Artifact as Artifact
    from compatstore.artifacts import Transformed as Transformed
    from compatstore.derivation import Derivation as Derivation
    from compatstore.devices.export import export as export
    from compatstore.errors import CompatStoreError as CompatStoreError
    from compatstore.gallery import Gallery as Gallery
    from compatstore.in_memory.nearest import ExactNeighbours as ExactNeighbours
    from compatstore.in_memory.nearest import nearest_neighbours as nearest_neighbours
    from compatstore.notebook import ShowProgress as ShowProgress
    from compatstore.search.cache import Cache as Cache
    from compatstore.search.cache import Nearest as Nearest
    from compatstore.search.cached_reading import CacheSize as CacheSize
    from compatstore.search.cascade import Cascade as Cascade
    from compatstore.shards import Shards as Shards
    from compatstore.storage.records import SearchSettings as SearchSettings
    from compatstore.trainers.pairs.learn import Learn as Learn
    from compatstore.upgrade.requests.backfill import Backfill as Backfill
    from compatstore.upgrade.requests.details import Details as Details
    from compatstore.upgrade.requests.gates import Gates as Gates
    from compatstore.upgrade.requests.queries import Queries as Queries
    from compatstore.upgrade.requests.run_settings import RunSettings as RunSettings
    from compatstore.versions import EmbeddingVersion as EmbeddingVersion
    from compatstore.versions import HeadLoss as HeadLoss

__version__ = "0.1.0"

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
    "SearchSettings": "compatstore.storage.records",
    "Shards": "compatstore.shards",
    "ShowProgress": "compatstore.notebook",
    "Transformed": "compatstore.artifacts",
    "export": "compatstore.devices.export",
    "nearest_neighbours": "compatstore.in_memory.nearest",
}
_MODULES = ("encoders", "errors", "evaluation")
__all__ = sorted([*_HOMES, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"compatstore.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    from compatstore.former import no_attribute

    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return __all__
