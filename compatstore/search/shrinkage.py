"""Shrinkage: a search in one version ranks its first candidates by cosines that are shrunk by their predicted error.

The cosine of a transformed vector is multiplied by the factor that `Shrinkage` gives for its sigma^2; that of a native
vector stays. It is applied if the transform's shrinkage was measured. Nothing is embedded and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Doubles, FloatArray
from compatstore.errors import CorruptArtifact
from compatstore.evaluation.distances import shrunk_distances
from compatstore.search.plan import SearchPlan
from compatstore.storage.catalog import Catalog
from compatstore.storage.nearest import with_values
from compatstore.storage.registry import Registry
from compatstore.storage.shrinkage import has_shrinkage, kept_cosines
from compatstore.storage.vector_form import to_floats

FIRST = 100  # candidates of a query that are ranked


def with_shrinkage(catalog: Catalog, registry: Registry, plan: SearchPlan) -> SearchPlan:
    """Rank by shrunk distances if one transform made vectors of the version and its shrinkage was measured; read-only.

    Args:
        catalog: The gallery.
        registry: Its state.
        plan: The search. It is unchanged if rows of two versions are merged.
    """
    record = registry.record(plan.version)
    if len(plan.parts) > 1 or plan.parts[0].version != plan.version or plan.parts[0].columns.uncertainty is None:
        return plan
    paths = {run.path for run in registry.runs.values() if run.target == plan.version and run.path}
    with suppress(CorruptArtifact):  # the vectors are there, and can be searched as they are
        return replace(plan, shrinkage=any(has_shrinkage(catalog, record, path) for path in paths))
    return plan


def rank_shrunk(
    catalog: Catalog, plan: SearchPlan, found: ArrowTable, queries: Mapping[str, FloatArray], columns: Sequence[str]
) -> ArrowTable:
    """Rank the candidates of each query by their shrunk distances, which become `_distance`.

    Args:
        catalog: The gallery.
        plan: Of the search.
        found: Candidates as `execute` gives them, with the column of sigma^2.
        queries: Version -> (q, dim) float32.
        columns: Columns to return.
    """
    part, origins = plan.parts[0], np.asarray(found["_origin"].to_pylist(), object)
    sigma2 = to_floats(found[str(part.columns.uncertainty)])
    numbers = found["_query"].to_numpy() if "_query" in found.column_names else np.zeros(found.num_rows, np.int64)
    added = added_by(queries[plan.version], part.metric)[numbers]
    near = found["_distance"].to_numpy()
    distances = shrunk_distances(near - added, kept_cosines(catalog, origins, sigma2), part.metric) + added
    found = with_values(found, "_distance", distances.astype(np.float32))
    order = np.lexsort((distances, numbers))
    ranks = np.arange(len(order)) - np.searchsorted(numbers, numbers[order])
    kept = [name for name in found.column_names if name != part.columns.uncertainty or name in columns]
    return found.take(pa.array(order[ranks < plan.k])).select(kept)


def added_by(queries: FloatArray, metric: str) -> Doubles:
    """Difference of Lance's distances to those of `measure`: (q, dim) float32 queries -> (q,) float64."""
    if metric != "l2":
        return np.ones(len(queries))
    lengths: Doubles = np.square(queries.astype(np.float64)).sum(axis=1)
    return lengths
