"""Search by a cascade: find candidates, have the first ones embedded, and rank these by their native vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, BoolArray, Doubles, FloatArray, RowNumbers
from compatstore.errors import InvalidInput
from compatstore.evaluation.fusion import distances_to
from compatstore.search.cascade import CascadePlan
from compatstore.search.execute import execute, query_of_part
from compatstore.search.expected import ExpectedPlan, search_expected
from compatstore.search.fusion import FusionPlan, search_fused
from compatstore.search.plan import Part
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_matrix, to_strings


@dataclass(frozen=True, eq=False)
class Candidates:
    """The first candidates of all queries.

    Attributes:
        rows: Arrow table of n rows with the columns that items are embedded from; a query's rows are in their order.
        queries: (n,) int64, number of the query that each was found for.
        native: (n,) bool, whether the target's vector is native already.
    """

    rows: ArrowTable
    queries: RowNumbers
    native: BoolArray


Embed = Callable[[Candidates], FloatArray]


def search_cascade(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: CascadePlan,
    queries: Mapping[str, FloatArray],
    columns: Sequence[str],
    embed: Embed,
) -> ArrowTable:
    """Search by a cascade.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_cascade`.
        queries: Version -> (q, dim) float32, the same q queries in each version.
        columns: Columns to return.
        embed: Gives native vectors of candidates: (n, dim) float32, NaN where there is none, anything for those that
            are native.

    Returns:
        Arrow table as `execute` gives it. Items that are ranked by native vectors have the target as `_version`,
        "native" as `_origin` and as `_distance` that of the target, or the fused one; the others what the search gave
        that found them.

    Raises:
        InvalidInput: The versions have different numbers of queries. The condition is no valid SQL for this table, or a
            query has length 0, under cosine.
    """
    registry = catalog.recorded(snapshot)
    if len({len(queries[name]) for name in plan.versions}) > 1:
        found = ", ".join(f"{len(queries[name])} of {name}" for name in plan.versions)
        raise InvalidInput("search by a cascade", expected="the same queries in each version", found=found)
    ranking = (plan.target,) if plan.fusion is None else (plan.source, plan.target)
    asked = [query_of_part(catalog, part, queries[part.version]) for part in ranking]
    wanted = list(dict.fromkeys([*columns, *_read_columns(registry, plan)]))
    found = _candidates(catalog, snapshot, plan, queries, wanted)
    numbers, ranks = _places(found)
    first = np.flatnonzero(ranks < plan.cascade.first)
    vectors, known = _native(plan, found.take(pa.array(first)), numbers[first], embed)
    distances = np.full(found.num_rows, np.nan)
    for number in np.unique(numbers[first]):
        mine = np.flatnonzero(known & (numbers[first] == number))
        rows = found.take(pa.array(first[mine]))
        distances[first[mine]] = _distances(plan, [matrix[number] for matrix in asked], vectors[mine], rows)
    order = _order(numbers, ranks, distances)
    return _results(found, plan, columns, order[ranks < plan.k], distances)


def _read_columns(registry: Registry, plan: CascadePlan) -> list[str]:
    """Columns that items are embedded from, ranked by and known by."""
    source, target = plan.source.columns, plan.target.columns
    read = [registry.id_column, *source.hashed_names(registry.source_column), source.vector, target.vector]
    return [*read, *([target.origin] if target.origin else [])]


def _candidates(
    catalog: Catalog, snapshot: Snapshot, plan: CascadePlan, queries: Mapping[str, FloatArray], columns: Sequence[str]
) -> ArrowTable:
    """The candidates of all queries, each query's nearest first."""
    if isinstance(plan.candidates, FusionPlan):
        return search_fused(catalog, snapshot, plan.candidates, queries, columns)
    if isinstance(plan.candidates, ExpectedPlan):
        return search_expected(catalog, snapshot, plan.candidates, queries, columns)
    return execute(catalog, snapshot, plan.candidates, queries, columns)


def _places(found: ArrowTable) -> tuple[RowNumbers, RowNumbers]:
    """For each row the number of its query, and its rank for that query, from 0."""
    n = found.num_rows
    if "_query" not in found.column_names:
        return np.zeros(n, np.int64), np.arange(n)
    numbers = found["_query"].to_numpy().astype(np.int64)
    return numbers, np.arange(n) - np.searchsorted(numbers, numbers)


def _native(plan: CascadePlan, rows: ArrowTable, numbers: RowNumbers, embed: Embed) -> tuple[FloatArray, BoolArray]:
    """Native vectors of rows, those of the table and those that were made, and which rows have one."""
    columns = plan.target.columns
    vectors, known = to_matrix(rows[columns.vector], columns.dim)
    if columns.origin:
        known = known & (to_strings(rows[columns.origin]) == NATIVE)
    made = embed(Candidates(rows, numbers, known))
    vectors = np.where(known[:, None], vectors, made)
    return vectors, VectorForm(columns.dtype, plan.target.metric).searchable(vectors)


def _distances(plan: CascadePlan, queries: Sequence[FloatArray], vectors: FloatArray, rows: ArrowTable) -> Doubles:
    """Distances by which the first candidates of one query are ranked: as Lance measures them, or fused ones."""
    target = plan.target
    query = queries[-1][: target.columns.dim]
    far = distances_to(query, vectors, target.metric)
    if plan.fusion is None:
        asked = query.astype(np.float64)
        return far + (asked @ asked if target.metric == "l2" else 1.0)
    near, there = _source_distances(plan.source, queries[0], rows)
    everywhere = np.ones(len(vectors), bool)
    return plan.fusion.distances(near, far, everywhere, there, everywhere)


def _source_distances(part: Part, query: FloatArray, rows: ArrowTable) -> tuple[Doubles, BoolArray]:
    """Distances to the source's vectors, and which rows have one that a search can find."""
    vectors, there = to_matrix(rows[part.columns.vector], part.columns.dim)
    there = there & VectorForm(part.columns.dtype, part.metric).searchable(vectors)
    compared = np.where(there[:, None], vectors, np.float32(1))
    return distances_to(query[: part.columns.dim], compared, part.metric), there


def _order(numbers: RowNumbers, ranks: RowNumbers, distances: Doubles) -> RowNumbers:
    """Rows in the order of the results: those with a distance share the places that they hold in the candidates."""
    order = np.arange(len(numbers))
    known = np.flatnonzero(~np.isnan(distances))
    order[known] = known[np.lexsort((ranks[known], distances[known], numbers[known]))]
    return order


def _results(
    found: ArrowTable, plan: CascadePlan, columns: Sequence[str], order: RowNumbers, distances: Doubles
) -> ArrowTable:
    """The rows in order, with what is computed as of the vectors that ranked them."""
    rows, ranked = found.take(pa.array(order)), distances[order]
    mine = pa.array(~np.isnan(ranked))
    computed = {
        "_distance": pc.if_else(mine, pa.array(ranked.astype(np.float32)), rows["_distance"]),
        "_version": pc.if_else(mine, plan.target.version, rows["_version"]),
        "_origin": pc.if_else(mine, NATIVE, rows["_origin"]),
    }
    if "_query" in rows.column_names:
        computed["_query"] = rows["_query"]
    return pa.Table.from_arrays([*(rows[name] for name in columns), *computed.values()], [*columns, *computed])
