"""Fused search: the nearest items of both versions, ranked by both of their vectors.

Lance searches the source's and the target's column side by side. Rows that may be among the nearest by both distances
are read, their two vectors are compared with the query's two embeddings exactly, and the fused distance ranks them: see
`evaluation/fusion.py` for its definition. If a row that neither search has found could be nearer, both go deeper
(`threshold.py`): without an index the result is that of comparing with every item, unless thousands of items are as
near as the k-th.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, BoolArray, Doubles, FloatArray, Positions
from compatstore.evaluation.fusion import Fusion, Standardisation, distances_to
from compatstore.search.condition import joined
from compatstore.search.execute import query_of_part, require_as_many, side_by_side
from compatstore.search.parts import PartResult, search_part
from compatstore.search.plan import Part, SearchPlan, part_of, plan_search
from compatstore.search.threshold import DEEPER, DEEPEST, NO_FACTORS, ListFactors, RankedLists, first_depth
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.ids import ADDRESS, rows_at
from compatstore.storage.indexes import indexes_on
from compatstore.storage.nearest import AT_ONCE, with_values
from compatstore.storage.records import NEIGHBOURS, SearchSettings
from compatstore.storage.registry import Registry
from compatstore.storage.shrinkage import ShrinkageBounds, kept_cosines
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_floats, to_matrix, to_strings

ENTRIES = 2_000_000  # rows of lists that are held at once
AS_MANY_AGAIN = 2  # rows of an index's list that are compared in any case, for each result
FEWEST_OF_INDEX, LISTED = 100, 4  # rows of that list, if nothing is refined; else one of as many that are refined
ROUNDING, ROUNDING_OF_HALVES = 1e-5, 1e-3  # of Lance's distances, at the most; it rounds a query of float16 as well


@dataclass(frozen=True)
class FusionPlan:
    """The plan of a search with a query in two versions, from both columns.

    Attributes:
        k: Results wanted.
        source: Search of the source's column.
        target: Search of the target's column.
        fusion: Weight and constants.
        where: The caller's own condition, or all of them joined, or None.
        id_column: Column of the ids, by which items at one distance are ordered.
        warning: Message if its measured quality is below the baseline, or "".
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

    @property
    def uncertainty(self) -> str | None:
        """The column of sigma^2 if the target's distances are shrunk by it, else None."""
        return self.target.columns.uncertainty if self.fusion.shrinkage else None

    def depth(self, items: int, *, exact: bool) -> int:
        """Rows of each column's list at first; of an index not more than it compares."""
        depth = max(first_depth(items, self.k), self.fusion.candidates)
        if exact:
            return depth
        refines = [part.settings.refine for part in self.parts if part.settings.refine is not None]
        listed = min(refines) * NEIGHBOURS // LISTED if refines else FEWEST_OF_INDEX
        return max(self.candidates, min(depth, listed))

    @property
    def candidates(self) -> int:
        """Rows of an index's list that are compared in any case."""
        return max(AS_MANY_AGAIN * self.k, self.fusion.candidates)

    def using(self, settings: SearchSettings) -> FusionPlan:
        """The same plan, with other settings of the indexes."""
        source, target = (replace(part, settings=settings) for part in self.parts)
        return replace(self, source=source, target=target)

    def __str__(self) -> str:
        source, target, fusion = self.source.version, self.target.version, self.fusion
        apart = ((f"native {target}", fusion.native), (f"transformed {target}", fusion.transformed))
        constants = ((source, fusion.source), *(apart if fusion.per_origin else ((target, fusion.mixture),)))
        kind = "standardised shrunk" if self.uncertainty else "standardised"
        lines = [
            f"query in {source} and {target}, {self.k} nearest, 2 part(s), merge: fused, "
            f"{1 - fusion.weight:.4g} {source} + {fusion.weight:.4g} {target}",
            *(
                f"  {part.metric} on column {part.columns.vector} with the query of {part.version}; "
                f"{self.where or 'all rows'}{part.index}"
                for part in self.parts
            ),
            "  candidates: threshold algorithm, exact; with an index, the rows that it compares",
            f"  {kind} distances: {'; '.join(f'{name} {_shown(each)}' for name, each in constants)}",
            f"  an item without one of the two vectors has {fusion.correlation:.4g} of its other distance",
            f"  weight {fusion.choice or f'{fusion.weight:.4g}'}",
            f"  price: two embeddings and two searches for a query, and the column of {source} is kept",
            *([f"  warning: {self.warning}"] if self.warning else []),
        ]
        return "\n".join(lines)


def plan_fused(
    registry: Registry, source: str, target: str, fusion: Fusion, k: int, where: str | Sequence[str] | None
) -> FusionPlan | SearchPlan:
    """Plan a fused search; read-only.

    It is the search of one version if the weight is 0 or 1, or if the other version has no vectors in the table:
    the target before its upgrade has begun, the source after it is retired.

    Raises:
        NotFound: Neither version has vectors.
        InvalidInput: A condition is not one SQL expression.
    """
    left, right = registry.record(source), registry.record(target)
    if right.columns is None or fusion.weight == 0:
        return plan_search(registry, source, k, where)
    if left.columns is None or fusion.weight == 1:
        return plan_search(registry, target, k, where)
    return FusionPlan(
        k=k,
        source=part_of(registry, source),
        target=part_of(registry, target),
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
        is the fused one. `_version` and `_origin` are those of the target's vector, and of the source's if an item
        has no other.

    Raises:
        InvalidInput: The versions have different numbers of queries. The condition is no valid SQL for this table, or a
            query has length 0, under cosine.
    """
    require_as_many(queries, plan.versions)
    forms = [query_of_part(catalog, part, queries[part.version]) for part in plan.parts]
    exact = not any(indexes_on(snapshot, part.columns.vector) for part in plan.parts)
    depth = plan.depth(snapshot.count_rows(), exact=exact)
    bounds = ShrinkageBounds.of(catalog, plan.target.version) if plan.uncertainty else None
    waiting, found = np.arange(len(forms[0])), list[ArrowTable]()
    while len(waiting):
        at_once, settled = max(1, min(AT_ONCE, ENTRIES // depth)), []
        for start in range(0, len(waiting), at_once):
            asking = waiting[start : start + at_once]
            lists = _lists(snapshot, plan, [form[asking] for form in forms], depth, bounds, exact=exact)
            rows, last = _nearest(catalog, snapshot, plan, lists, [form[asking] for form in forms], columns)
            open_ended = exact and depth < DEEPEST
            final = last <= np.array([each.unseen() if open_ended else np.inf for each in lists])
            found.append(_of_queries(rows, final, asking))
            settled.append(final)
        waiting = waiting[~np.concatenate(settled)]
        depth = min(depth * DEEPER, DEEPEST)
    ranked = pa.concat_tables(found)
    if len(forms[0]) == 1:
        return ranked.drop_columns(["_query"])
    return ranked if len(found) == 1 else ranked.take(pc.sort_indices(ranked["_query"]))


def _of_queries(rows: ArrowTable, final: BoolArray, asking: Positions) -> ArrowTable:
    """The rows of queries that are settled, by the numbers that these have in the search."""
    numbers = rows["_query"].to_numpy()
    rows = with_values(rows, "_query", asking[numbers].astype(np.int32))
    return rows if final.all() else rows.filter(pa.array(final[numbers]))


def _lists(
    snapshot: Snapshot,
    plan: FusionPlan,
    queries: Sequence[FloatArray],
    depth: int,
    shrinkage: ShrinkageBounds | None,
    *,
    exact: bool,
) -> list[RankedLists]:
    """The lists of both columns for each query, without vectors; with sigma^2 if distances are shrunk by it."""
    complete = depth if exact else 0  # a shorter list holds all of its column; an index may give fewer rows than it has

    def find(number: int) -> list[PartResult]:
        part = plan.parts[number]
        alone = replace(part, settings=part.settings.fetching(depth), columns=replace(part.columns, origin=None))
        columns = [ADDRESS, *([plan.uncertainty] if plan.uncertainty and part is plan.target else [])]
        return search_part(snapshot, alone, queries[number], depth, plan.where, columns, exactly=True)

    def joined(number: int, results: Sequence[PartResult]) -> RankedLists:
        lists, ends, errors, factors = [], [], [], NO_FACTORS
        for part, result, form in zip(plan.parts, results, queries, strict=True):
            rows, distances = result.rows[ADDRESS].to_numpy(), result.rows["_distance"].to_numpy().astype(np.float64)
            held = ~np.isnan(distances)  # a vector without direction has no distance
            # From Lance's squared distance, or 1 less a cosine or product, to that of `distances_to`.
            added = float(np.square(form[number].astype(np.float64)).sum()) if part.metric == "l2" else 1.0
            rounding = ROUNDING_OF_HALVES if part.columns.dtype == "float16" else ROUNDING
            errors.append(rounding * (added + float(np.abs(distances[held]).max(initial=0.0))))
            distances -= added
            whole = len(rows) < complete or (complete and not held.all())
            ends.append(np.inf if whole else float(distances[-1]) if len(rows) else -np.inf)
            lists.append((rows[held].astype(np.int64), distances[held]))
            if shrinkage is not None and part is plan.target:
                sigma2 = to_floats(result.rows[str(plan.uncertainty)])[held]
                factors = ListFactors(part.metric, *shrinkage.bounds(sigma2), rest=shrinkage.range)
        first = 0 if exact else plan.candidates
        return RankedLists.of(plan.fusion, lists, (ends[0], ends[1]), (errors[0], errors[1]), first, factors)

    searches = [side_by_side().submit(find, number) for number in range(len(plan.parts))]
    found = zip(*(search.result() for search in searches), strict=True)
    return [joined(number, results) for number, results in enumerate(found)]


def _nearest(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: FusionPlan,
    lists: Sequence[RankedLists],
    queries: Sequence[FloatArray],
    columns: Sequence[str],
) -> tuple[ArrowTable, Doubles]:
    """The k nearest rows of each query's lists, compared by their vectors, and the fused distance of its last one.

    The distance is infinite if there are fewer than k rows.
    """
    kept = [each.rows[each.near(plan.k)] for each in lists]
    asking = np.repeat(np.arange(len(kept)), [len(rows) for rows in kept])
    numbers, places = np.unique(np.concatenate(kept), return_inverse=True)
    held = [name for part in plan.parts for name in (part.columns.vector, part.columns.origin) if name]
    held += [plan.uncertainty] if plan.uncertainty else []
    rows = rows_at(snapshot, numbers, list(dict.fromkeys([*columns, plan.id_column, *held])))
    compared = [_compared(part, matrix[asking], rows, places) for part, matrix in zip(plan.parts, queries, strict=True)]
    (in_source, near), (in_target, far) = compared
    origins = [pa.array(part.columns.origins(rows)) for part in plan.parts]
    native = pc.equal(origins[1], NATIVE).fill_null(False).to_numpy(zero_copy_only=False)[places]
    if plan.uncertainty is not None:
        factors = kept_cosines(catalog, to_strings(origins[1]), to_floats(rows[plan.uncertainty]))
        far = plan.fusion.shrunk(far, factors[places], plan.target.metric)
    fused = plan.fusion.distances(near, far, native, in_source, in_target)
    keys = pa.table({"query": asking, "distance": fused, "id": rows[plan.id_column].take(pa.array(places))})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    ranks = np.arange(len(order)) - np.searchsorted(asking[order], np.arange(len(queries[0])))[asking[order]]
    last = np.full(len(queries[0]), np.inf)
    last[asking[order][ranks == plan.k - 1]] = fused[order][ranks == plan.k - 1]
    order = order[(ranks < plan.k) & np.isfinite(fused[order])]
    chosen, there = pa.array(places[order]), pa.array(in_target[order])
    computed = {
        "_distance": pa.array(fused[order].astype(np.float32)),
        "_version": pc.if_else(there, plan.target.version, plan.source.version),
        "_origin": pc.if_else(there, origins[1].take(chosen), origins[0].take(chosen)),
        "_query": pa.array(asking[order].astype(np.int32)),
    }
    arrays = [*(rows[name].take(chosen) for name in columns), *computed.values()]
    return pa.Table.from_arrays(arrays, [*columns, *computed]), last


def _compared(part: Part, queries: FloatArray, rows: ArrowTable, places: Positions) -> tuple[BoolArray, Doubles]:
    """Mask of rows with a searchable vector of a version, and their distances to the queries."""
    vectors, valid = to_matrix(rows[part.columns.vector], part.columns.dim)
    valid = valid & VectorForm(part.columns.dtype, part.metric).searchable(vectors)
    vectors = np.where(valid[:, None], vectors, np.float32(1))
    return valid[places], distances_to(queries[:, : part.columns.dim], vectors[places], part.metric)


def _shown(kind: Standardisation) -> str:
    return f"(d - {kind.mean:.4g}) / {kind.deviation:.4g}"
