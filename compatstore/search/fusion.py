"""Fused search: the nearest items of both versions, ranked by both of their vectors.

Lance searches the source's and the target's column side by side. The rows of both searches are the candidates. Each
candidate's two vectors are compared with the query's two embeddings exactly, and the fused distance ranks them: see
`evaluation/fusion.py` for its definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowTable, BoolArray, Doubles, FloatArray, Positions
from compatstore.evaluation.fusion import Fusion, Standardisation, distances_to
from compatstore.search.condition import joined
from compatstore.search.execute import query_of_part, require_as_many, side_by_side
from compatstore.search.parts import PartResult, search_part
from compatstore.search.plan import Part, SearchPlan, part_of, plan_search
from compatstore.storage.arrow_values import to_matrix
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.indexes import SearchSettings
from compatstore.storage.nearest import AT_ONCE
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm

ROW = "_rowid"  # of Lance, the same in both searches of one snapshot


@dataclass(frozen=True)
class FusionPlan:
    """How a query in two versions is answered from both columns.

    Attributes:
        k: Results wanted.
        source: Search of the source's column.
        target: Search of the target's column.
        fusion: Weight and constants.
        where: The caller's own condition, or all of them joined, or None.
        id_column: Column of the ids, by which items at one distance are ordered.
        warning: That what it gives was measured to be below the status quo, or "".
    """

    k: int
    source: Part
    target: Part
    fusion: Fusion
    where: str | None
    id_column: str
    warning: str = ""

    @property
    def version(self) -> str:
        """The version upgraded to."""
        return self.target.version

    @property
    def parts(self) -> tuple[Part, Part]:
        """Both Lance searches."""
        return self.source, self.target

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that queries are needed in."""
        return self.source.version, self.target.version

    def using(self, settings: SearchSettings) -> FusionPlan:
        """The same plan, with other settings of the indexes."""
        source, target = (replace(part, settings=settings) for part in self.parts)
        return replace(self, source=source, target=target)

    def __str__(self) -> str:
        source, target, fusion = self.source.version, self.target.version, self.fusion
        apart = ((f"native {target}", fusion.native), (f"transformed {target}", fusion.transformed))
        constants = ((source, fusion.source), *(apart if fusion.per_origin else ((target, fusion.mixture),)))
        less = fusion.transformed_weight
        lines = [
            f"query in {source} and {target}, {self.k} nearest, 2 part(s), merge: fused, "
            f"{1 - fusion.weight:.4g} {source} + {fusion.weight:.4g} {target}"
            + ("" if less is None else f", {1 - less:.4g} {source} + {less:.4g} {target} where it is transformed"),
            *(
                f"  {part.metric} on column {part.columns.vector} with the query of {part.version}: "
                f"{fusion.fetched(self.k)} candidates; {self.where or 'all rows'}{part.index}"
                for part in self.parts
            ),
            f"  standardised distances: {'; '.join(f'{name} {_shown(kind)}' for name, kind in constants)}",
            f"  an item without one of the two vectors has {fusion.correlation:.4g} of its other distance",
            f"  weight {fusion.choice or 'named by the caller'}",
            f"  price: two embeddings and two searches for a query, and the column of {source} is kept",
            *([f"  warning: {self.warning}"] if self.warning else []),
        ]
        return "\n".join(lines)


def plan_fused(
    registry: Registry, source: str, target: str, fusion: Fusion, k: int, where: str | Sequence[str] | None
) -> FusionPlan | SearchPlan:
    """Plan a fused search; read-only.

    It is the search of one version where the weight is 0 or 1, and where the other version has no vectors in the table:
    the target before its upgrade has begun, the source after it is retired.

    Raises:
        UnknownVersion: Neither version has vectors.
        InvalidInput: A condition is not one SQL expression.
    """
    left, right = registry.record(source), registry.record(target)
    if right.columns is None or fusion.weight == 0:
        return plan_search(registry, source, k, where)
    if left.columns is None or fusion.weight == 1:
        return plan_search(registry, target, k, where)
    parts = (part_of(left, left.columns), part_of(right, right.columns))
    first, second = (replace(part, settings=part.settings.fetching(fusion.fetched(k))) for part in parts)
    return FusionPlan(
        k=k,
        source=first,
        target=second,
        fusion=fusion,
        where=joined(where, f"search {source} and {target}"),
        id_column=registry.id_column,
    )


def search_fused(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: FusionPlan,
    queries: Mapping[str, FloatArray],
    columns: Sequence[str],
) -> ArrowTable:
    """Search both columns and rank the candidates by their fused distance.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_fused`.
        queries: Version -> (q, dim) float32, the same q queries in both versions.
        columns: Columns to return.

    Returns:
        Arrow table, nearest first, as `execute` gives it; of items at one distance the lower id is first. `_distance`
        is the fused one. `_version` and `_origin` are those of the target's vector, and of the source's where an item
        has no other.

    Raises:
        DimensionMismatch: The versions have different numbers of queries.
        InvalidInput: The condition is no valid SQL for this table, or a query has length 0, under cosine.
    """
    require_as_many(queries, plan.versions)
    forms = [query_of_part(catalog, part, queries[part.version]) for part in plan.parts]
    found = _search_both(snapshot, plan, forms, columns)
    ranked = [
        _ranked(plan, found[start : start + AT_ONCE], [form[start : start + AT_ONCE] for form in forms], columns, start)
        for start in range(0, len(found), AT_ONCE)
    ]
    rows = pa.concat_tables(ranked)
    return rows if len(found) > 1 else rows.drop_columns(["_query"])


def _search_both(
    snapshot: Snapshot, plan: FusionPlan, queries: Sequence[FloatArray], columns: Sequence[str]
) -> list[list[ArrowTable]]:
    """For each query the nearest rows of each column, with both of their vectors and origins."""
    held = [name for part in plan.parts for name in (part.columns.vector, part.columns.origin) if name]
    wanted = list(dict.fromkeys([*columns, plan.id_column, *held, ROW]))
    fetched = plan.fusion.fetched(plan.k)

    def find(number: int) -> list[PartResult]:
        part = plan.parts[number]
        return search_part(snapshot, part, queries[number], fetched, plan.where, wanted, exactly=True)

    searches = [side_by_side().submit(find, number) for number in range(len(plan.parts))]
    found = zip(*(search.result() for search in searches), strict=True)
    return [[result.rows.select(wanted) for result in results] for results in found]


def _ranked(
    plan: FusionPlan,
    found: Sequence[Sequence[ArrowTable]],
    queries: Sequence[FloatArray],
    columns: Sequence[str],
    first: int,
) -> ArrowTable:
    """The k nearest candidates of each of some queries, `first` being the number of the first one."""
    rows, asking = _candidates(found)
    compared = [_compared(part, matrix[asking], rows) for part, matrix in zip(plan.parts, queries, strict=True)]
    (in_source, near), (in_target, far) = compared
    origins = [_origins(part, rows) for part in plan.parts]
    native = pc.equal(origins[1], NATIVE).fill_null(False).to_numpy(zero_copy_only=False)
    fused = plan.fusion.distances(near, far, native, in_source, in_target)
    keys = pa.table({"query": asking, "distance": fused, "id": rows[plan.id_column]})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    starts = np.searchsorted(asking[order], np.arange(len(found)))
    order = order[np.arange(len(order)) - starts[asking[order]] < plan.k]
    there = pa.array(in_target)
    computed = {
        "_distance": pa.array(fused.astype(np.float32)),
        "_version": pc.if_else(there, plan.target.version, plan.source.version),
        "_origin": pc.if_else(there, origins[1], origins[0]),
        "_query": pa.array((first + asking).astype(np.int32)),
    }
    arrays = [*(rows[name] for name in columns), *computed.values()]
    return pa.Table.from_arrays(arrays, [*columns, *computed]).take(pa.array(order))


def _candidates(found: Sequence[Sequence[ArrowTable]]) -> tuple[ArrowTable, Positions]:
    """The rows of both searches of each query, each row once for a query, and which query asks for each."""
    tables = [table for searches in found for table in searches]
    sizes = [sum(table.num_rows for table in searches) for searches in found]
    rows, asking = pa.concat_tables(tables).combine_chunks(), np.repeat(np.arange(len(found)), sizes)
    numbers = rows[ROW].to_numpy()
    order = np.lexsort((numbers, asking))
    again = (np.diff(numbers[order]) == 0) & (np.diff(asking[order]) == 0)
    once = order[np.concatenate([[True], ~again])] if len(order) else order
    return rows.take(pa.array(once)), asking[once]


def _compared(part: Part, queries: FloatArray, rows: ArrowTable) -> tuple[BoolArray, Doubles]:
    """Which rows have a vector of a version that a search can find, and their distances to the queries that ask."""
    vectors, valid = to_matrix(rows[part.columns.vector], part.columns.dim)
    valid = valid & VectorForm(part.columns.dtype, part.metric).searchable(vectors)
    return valid, distances_to(
        queries[:, : part.columns.dim], np.where(valid[:, None], vectors, np.float32(1)), part.metric
    )


def _origins(part: Part, rows: ArrowTable) -> ArrowArray:
    """How each row's vector came about: an adopted column's vectors are all native."""
    if part.columns.origin is None:
        return pa.repeat(NATIVE, rows.num_rows)
    return rows[part.columns.origin].combine_chunks()


def _shown(kind: Standardisation) -> str:
    return f"(d - {kind.mean:.4g}) / {kind.deviation:.4g}"
