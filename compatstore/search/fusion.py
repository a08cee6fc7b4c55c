"""Fused search: the nearest items of both versions, ranked by both of their vectors.

Lance searches the source's and the target's column side by side. Rows that may be among the nearest by both distances
are read, their two vectors are compared with the query's two embeddings exactly, and the fused distance ranks them: see
`evaluation/fusion.py` for its definition. If a row that neither search has found could be nearer, both go deeper
(`threshold.py`): without an index the result is that of comparing with every item, unless thousands of items are as
near as the k-th. The rows of many queries come from one pass over both columns instead (`fused_scan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, BoolArray, Doubles, FloatArray, Positions, RowNumbers
from compatstore.evaluation.fusion import Fusion, distances_to
from compatstore.search.execute import query_of_part, require_as_many, side_by_side
from compatstore.search.fused_scan import SCANNED_AT_ONCE, scan_both
from compatstore.search.parts import PartResult, search_part
from compatstore.search.plan import Part, SearchPlan
from compatstore.search.shrinkage import added_by
from compatstore.search.threshold import DEEPER, DEEPEST, NO_FACTORS, ListFactors, RankedLists, first_depth
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.ids import ADDRESS, rows_at
from compatstore.storage.indexes import indexes_on
from compatstore.storage.nearest import AT_ONCE, with_values
from compatstore.storage.records import NEIGHBOURS
from compatstore.storage.shrinkage import ShrinkageBounds, kept_cosines
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_floats, to_matrix, to_strings

MANY = 4  # queries that one pass over both columns finds the rows of
ENTRIES = 2_000_000  # rows of lists that are held at once
_COMPARED = 8_192  # rows whose vectors are beside those of their queries at once: 100 MB at 512 values
AS_MANY_AGAIN = 2  # rows of an index's list that are compared in any case, for each result
FEWEST_OF_INDEX, LISTED = 100, 4  # rows of that list, if nothing is refined; else one of as many that are refined
ROUNDING, ROUNDING_OF_HALVES = 1e-5, 1e-3  # of Lance's distances, at the most; it rounds a query of float16 as well


def search_fused(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: SearchPlan,
    queries: Mapping[str, FloatArray],
    columns: Sequence[str],
) -> ArrowTable:
    """Search both columns and rank the candidates by their fused distance.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: Of a fused search.
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
    search = _FusedSearch(catalog, snapshot, plan)
    found = search.by_scan(forms, columns) if search.exact and len(forms[0]) >= MANY else None
    ranked = search.by_lists(forms, columns) if found is None else found
    return ranked if len(forms[0]) > 1 else ranked.drop_columns(["_query"])


def depth_of(plan: SearchPlan, items: int, *, exact: bool) -> int:
    """Rows of each column's list at first; of an index not more than it compares."""
    assert plan.fusion is not None
    depth = max(first_depth(items, plan.k), plan.fusion.candidates)
    if exact:
        return depth
    refines = [part.settings.refine for part in plan.parts if part.settings.refine is not None]
    listed = min(refines) * NEIGHBOURS // LISTED if refines else FEWEST_OF_INDEX
    return max(_candidates(plan.k, plan.fusion), min(depth, listed))


def _candidates(k: int, fusion: Fusion) -> int:
    """Rows of an index's list that are compared in any case."""
    return max(AS_MANY_AGAIN * k, fusion.candidates)


class _FusedSearch:
    """A plan on one table version.

    Attributes:
        exact: True if no column has an index.
        uncertainty: The column of sigma^2 if the target's distances are shrunk by it, else None.
    """

    def __init__(self, catalog: Catalog, snapshot: Snapshot, plan: SearchPlan) -> None:
        assert plan.fusion is not None
        self._catalog, self._snapshot, self._plan, self._fusion = catalog, snapshot, plan, plan.fusion
        target = plan.parts[1]
        self.exact = not any(indexes_on(snapshot, part.columns.vector) for part in plan.parts)
        self.uncertainty = target.columns.uncertainty if plan.fusion.shrinkage else None
        self._bounds = ShrinkageBounds.of(catalog, target.version) if self.uncertainty else None

    def lists(self, queries: Sequence[FloatArray], depth: int) -> list[RankedLists]:
        """The lists of both columns for each query, without vectors; with sigma^2 if distances are shrunk by it."""

        def find(part: Part, forms: FloatArray) -> list[PartResult]:
            alone = replace(part, settings=part.settings.fetching(depth), columns=replace(part.columns, origin=None))
            columns = [ADDRESS, *([self.uncertainty] if self.uncertainty and not part.query else [])]
            return search_part(self._snapshot, alone, forms, depth, self._plan.where, columns, exactly=True)

        searches = [side_by_side().submit(find, *each) for each in zip(self._plan.parts, queries, strict=True)]
        found = zip(*(search.result() for search in searches), strict=True)
        return [self._joined(lists, [form[row] for form in queries], depth) for row, lists in enumerate(found)]

    def _joined(self, results: Sequence[PartResult], query: Sequence[FloatArray], depth: int) -> RankedLists:
        lists, ends, errors, factors = [], [], [], NO_FACTORS
        for part, result, form in zip(self._plan.parts, results, query, strict=True):
            rows, distances = result.rows[ADDRESS].to_numpy(), result.rows["_distance"].to_numpy().astype(np.float64)
            held = ~np.isnan(distances)  # a vector without direction has no distance
            added = float(added_by(form[None], part.metric)[0])
            rounding = ROUNDING_OF_HALVES if part.columns.dtype == "float16" else ROUNDING
            errors.append(rounding * (added + float(np.abs(distances[held]).max(initial=0.0))))
            distances -= added
            # A shorter list holds all of its column, but an index may give fewer rows than it has.
            whole = self.exact and (len(rows) < depth or not held.all())
            ends.append(np.inf if whole else float(distances[-1]) if len(rows) else -np.inf)
            lists.append((rows[held].astype(np.int64), distances[held]))
            if self._bounds is not None and not part.query:
                sigma2 = to_floats(result.rows[str(self.uncertainty)])[held]
                factors = ListFactors(part.metric, *self._bounds.bounds(sigma2), rest=self._bounds.range)
        first = 0 if self.exact else _candidates(self._plan.k, self._fusion)
        return RankedLists.of(self._fusion, lists, (ends[0], ends[1]), (errors[0], errors[1]), first, factors)

    def by_lists(self, queries: Sequence[FloatArray], columns: Sequence[str]) -> ArrowTable:
        """The k nearest rows of each query, from lists of both columns that go as deep as it takes."""
        depth = depth_of(self._plan, self._snapshot.count_rows(), exact=self.exact)
        waiting, parts = np.arange(len(queries[0])), list[ArrowTable]()
        while len(waiting):
            at_once, settled = max(1, min(AT_ONCE, ENTRIES // depth)), []
            for start in range(0, len(waiting), at_once):
                asking = waiting[start : start + at_once]
                lists = self.lists([form[asking] for form in queries], depth)
                near = [each.rows[each.near(self._plan.k)] for each in lists]
                rows, last = self.nearest([form[asking] for form in queries], near, columns)
                open_ended = self.exact and depth < DEEPEST
                final = last <= np.array([each.unseen() if open_ended else np.inf for each in lists])
                numbers = rows["_query"].to_numpy()
                rows = with_values(rows, "_query", asking[numbers].astype(np.int32))
                parts.append(rows if final.all() else rows.filter(pa.array(final[numbers])))
                settled.append(final)
            waiting = waiting[~np.concatenate(settled)]
            depth = min(depth * DEEPER, DEEPEST)
        ranked = pa.concat_tables(parts)
        return ranked if len(parts) == 1 else ranked.take(pc.sort_indices(ranked["_query"]))

    def by_scan(self, queries: Sequence[FloatArray], columns: Sequence[str]) -> ArrowTable | None:
        """The k nearest rows of each query, by one pass over both columns; None if too many are as near as the k-th."""
        found = list[ArrowTable]()
        for start in range(0, len(queries[0]), SCANNED_AT_ONCE):
            block = [form[start : start + SCANNED_AT_ONCE] for form in queries]
            kept = scan_both(self._catalog, self._snapshot, self._plan, block, self.uncertainty)
            if kept is None:
                return None
            for first in range(0, len(kept), AT_ONCE):
                some = slice(first, first + AT_ONCE)
                rows, _ = self.nearest([form[some] for form in block], kept[some], columns)
                numbers = start + first + rows["_query"].to_numpy()
                found.append(with_values(rows, "_query", numbers.astype(np.int32)))
        return pa.concat_tables(found)

    def nearest(
        self, queries: Sequence[FloatArray], kept: Sequence[RowNumbers], columns: Sequence[str]
    ) -> tuple[ArrowTable, Doubles]:
        """The k nearest of the rows of each query, compared by their vectors, and the fused distance of its last one.

        The distance is infinite if there are fewer than k rows.
        """
        (source, target), k = self._plan.parts, self._plan.k
        asking = np.repeat(np.arange(len(kept)), [len(rows) for rows in kept])
        numbers, places = np.unique(np.concatenate(kept), return_inverse=True)
        own = [source.columns.vector, source.columns.origin, target.columns.vector, target.columns.origin]
        id_column = self._catalog.recorded(self._snapshot).id_column
        read = dict.fromkeys([*columns, id_column, *filter(None, own), *filter(None, [self.uncertainty])])
        rows = rows_at(self._snapshot, numbers, list(read))
        in_source, near = _compared(source, queries[0], asking, rows, places)
        in_target, far = _compared(target, queries[1], asking, rows, places)
        origins = [pa.array(part.columns.origins(rows)) for part in (source, target)]
        native = pc.equal(origins[1], NATIVE).fill_null(False).to_numpy(zero_copy_only=False)[places]
        if self.uncertainty is not None:
            factors = kept_cosines(self._catalog, to_strings(origins[1]), to_floats(rows[self.uncertainty]))
            far = self._fusion.shrunk(far, factors[places], target.metric)
        fused = self._fusion.distances(near, far, native, in_source, in_target)
        keys = pa.table({"query": asking, "distance": fused, "id": rows[id_column].take(pa.array(places))})
        order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
        ranks = np.arange(len(order)) - np.searchsorted(asking[order], np.arange(len(kept)))[asking[order]]
        last = np.full(len(kept), np.inf)
        last[asking[order][ranks == k - 1]] = fused[order][ranks == k - 1]
        order = order[(ranks < k) & np.isfinite(fused[order])]
        chosen, there = pa.array(places[order]), pa.array(in_target[order])
        computed = {
            "_distance": pa.array(fused[order].astype(np.float32)),
            "_version": pc.if_else(there, target.version, source.version),
            "_origin": pc.if_else(there, origins[1].take(chosen), origins[0].take(chosen)),
            "_query": pa.array(asking[order].astype(np.int32)),
        }
        arrays = [*(rows[name].take(chosen) for name in columns), *computed.values()]
        return pa.Table.from_arrays(arrays, [*columns, *computed]), last


def _compared(
    part: Part, queries: FloatArray, asking: Positions, rows: ArrowTable, places: Positions
) -> tuple[BoolArray, Doubles]:
    """Mask of rows with a searchable vector of a version, and their distances to queries.

    Args:
        part: The version's part of the plan.
        queries: (q, d) float32.
        asking: (n,) numbers of the queries.
        rows: With the version's vectors.
        places: (n,) rows that are compared with them.
    """
    vectors, valid = to_matrix(rows[part.columns.vector], part.columns.dim)
    valid = valid & VectorForm(part.columns.dtype, part.metric).searchable(vectors)
    vectors = np.where(valid[:, None], vectors, np.float32(1))
    own, distances = queries[:, : part.columns.dim], np.empty(len(places))
    for start in range(0, len(places), _COMPARED):
        some = slice(start, start + _COMPARED)
        distances[some] = distances_to(own[asking[some]], vectors[places[some]], part.metric)
    return valid[places], distances
