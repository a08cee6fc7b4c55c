"""Read the queries, search the parts, and merge their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, Positions
from compatstore.artifacts.matrix import as_matrix
from compatstore.encoders import encode_queries, metered
from compatstore.errors import InvalidInput
from compatstore.search.parts import PartResult, merged, search_part, with_numbers
from compatstore.search.plan import Part, SearchPlan
from compatstore.search.shrinkage import FIRST, rank_shrunk
from compatstore.storage.catalog import Catalog
from compatstore.storage.registry import Registry
from compatstore.storage.same_model import of_another_length
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm

PATIENCE = 10.0  # seconds that a search waits for an encoder whose rate limit is reached


def as_queries(catalog: Catalog, registry: Registry, version: str, query: Any) -> FloatArray:
    """Read a query.

    Args:
        catalog: The gallery, whose encoder embeds a source.
        registry: Its state.
        version: Version of the query.
        query: (d,) or (q, d) array, list or torch tensor, or one source (path, text, image).

    Returns:
        (q, dim) float32; (1, dim) for one vector or source.

    Raises:
        InvalidInput: The vectors have another length. NaN or infinite values. No vector at all, a source that cannot be
            embedded, or no encoder for it.
    """
    operation = f"search with a query of {version}"
    dim = registry.record(version).dim
    shape = getattr(query, "shape", None)
    shape = shape if isinstance(shape, tuple) else None
    if is_vectors(query, dim):
        if shape is not None and len(shape) == 2 and not shape[0]:
            raise InvalidInput(operation, expected="one vector or more", found="none")
        single = len(shape) == 1 if shape is not None else not any(hasattr(value, "__len__") for value in query)
        try:
            return as_matrix(operation, [query] if single else query, dim)
        except InvalidInput as error:
            if error.dim is None:
                raise
            raise of_another_length(registry, version, error) from None
    encoder = catalog.encoder(version)
    if encoder is None:
        if shape is not None and len(shape) == 2:
            unlike = InvalidInput(operation, found=f"shape {tuple(shape)}", dim=shape[1])
            raise of_another_length(registry, version, unlike)
        options = next_step.either(shell=" (--vector, --id)", python="")
        raise InvalidInput(
            operation,
            expected=f"a vector of {dim} values, or an encoder for {version}",
            found=f"{type(query).__name__} and no encoder",
            fix=f"Search with a vector or with an item{options}, or give its model: {next_step.encoder(version)}.",
        )
    with metered(patience=PATIENCE):
        encoded = encode_queries(encoder, [query])
    if encoded.failures:
        raise InvalidInput(operation, expected="a source that can be embedded", found=encoded.failures[0])
    return encoded.vectors


def is_vectors(query: Any, dim: int) -> bool:
    """True if a query is vectors of `dim` values; an array of two dimensions that are not (q, dim) may be an image."""
    shape = getattr(query, "shape", None)
    if not isinstance(shape, tuple):
        return isinstance(query, list | tuple)
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == dim)


# Multiple of k that is fetched of a part whose rows are known only after the search. Twice is enough
# where half of the neighbours belong to it, and wherever the other part's rows are the nearer ones.
FETCHED = 2


def execute(
    catalog: Catalog, snapshot: Snapshot, plan: SearchPlan, queries: Mapping[str, FloatArray], columns: Sequence[str]
) -> ArrowTable:
    """Search.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_search`.
        queries: Version -> (q, dim) float32, the same q queries in each of the plan's versions.
        columns: Columns to return.

    Returns:
        Arrow table, nearest first: `columns`, `_distance`, `_version` (whose column the row was found in), `_origin`
        (native, or the artifact that made the vector), and `_query` (row of the query) for more than one query.

    Raises:
        InvalidInput: The versions have different numbers of queries. The condition is no valid SQL for this table.
    """
    if plan.shrinkage:
        (part,), k = plan.parts, max(plan.k, FIRST)
        settings = part.settings.fetching(k) if k > plan.k else part.settings  # an index compares as many rows
        candidates = replace(plan, k=k, parts=(replace(part, settings=settings),), shrinkage=False)
        read = list(dict.fromkeys([*columns, str(part.columns.uncertainty)]))
        found = execute(catalog, snapshot, candidates, queries, read)
        return rank_shrunk(catalog, plan, found, queries, columns)
    require_as_many(queries, plan.versions)
    forms = [query_of_part(catalog, part, queries[part.query or plan.version]) for part in plan.parts]
    every = np.arange(len(forms[0]))

    def find(number: int, exactly: bool, chosen: Positions) -> list[PartResult]:
        part, k = plan.parts[number], plan.k if exactly else FETCHED * plan.k
        return search_part(snapshot, part, forms[number][chosen], k, plan.where, columns, exactly=exactly)

    exact = [part.excluded_column is None for part in plan.parts]
    if len(exact) == 1:
        return with_numbers([result.rows for result in find(0, True, every)])
    searches = [side_by_side().submit(find, number, exactly, every) for number, exactly in enumerate(exact)]
    found = [search.result() for search in searches]
    ranked = [merged(results, plan.merge, plan.k) for results in zip(*found, strict=True)]
    # Of some queries too few rows of a part came: these are searched again by the part's condition.
    again = np.flatnonzero([not complete for _, complete in ranked])
    if len(again):
        parts = [
            [found[number][row] for row in again] if exactly else find(number, True, again)
            for number, exactly in enumerate(exact)
        ]
        for row, results in zip(again, zip(*parts, strict=True), strict=True):
            ranked[row] = merged(results, plan.merge, plan.k)
    return with_numbers([rows for rows, _ in ranked])


def require_as_many(queries: Mapping[str, FloatArray], versions: Sequence[str]) -> None:
    """Refuse different numbers of queries in the versions of one search.

    Raises:
        InvalidInput: They differ.
    """
    counts = [len(queries[name]) for name in versions]
    if len(set(counts)) > 1:
        raise InvalidInput(
            f"search the fusion of {' and '.join(versions)}",
            expected="the same queries in each version",
            found=" and ".join(map(str, counts)),
        )


@cache
def side_by_side() -> ThreadPoolExecutor:
    """Threads that search the parts of a plan: Lance works outside of Python's lock."""
    return ThreadPoolExecutor(thread_name_prefix="compatstore-search")


def query_of_part(catalog: Catalog, part: Part, queries: FloatArray) -> FloatArray:
    """The queries as a part needs them: adapted, with zeros behind if the column has them, as signs for bits.

    Raises:
        InvalidInput: An artifact makes NaN or infinite values of a query. A query has length 0, under cosine.
    """
    operation = f"search {part.version}"
    if part.artifact is not None:
        queries = catalog.artifact(part.artifact).apply(queries).vectors
        operation = f"{operation} with a query adapted by artifact {part.artifact[:12]}"
    there = np.ones(len(queries), bool)
    VectorForm("float32", part.metric).require(
        queries, there, [f"query {row}" for row in range(len(queries))], operation
    )
    if part.columns.dtype == "bits":
        return VectorForm(part.columns.dtype, part.metric).stored(queries)
    extra = part.columns.width - queries.shape[1]
    return np.pad(queries, ((0, 0), (0, extra))) if extra else queries
