"""A cascade: the first candidates of a search are embedded natively and ranked by the target's own vectors.

The search that serves a query finds its candidates. Of each query's first n those without a native vector are embedded
by the target's model, all in one call of the encoder, and these n are ranked by their exact distance in the target's
space. The rest stay behind them, in their order. An item that is not embedded, as its source cannot be read or the
budget is spent, keeps its place: of the candidates A B C D with B not embedded, B stays the second, and A, C and D
share the other places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowTable, Doubles, FloatArray
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation.fusion import distances_to
from compatstore.search.execute import is_vectors, query_of_part, require_as_many
from compatstore.search.plan import Part, SearchPlan, part_of
from compatstore.search.serving import plan_serving, search_planned, versions_of
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.records import RunRecord, SearchSettings
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_matrix, to_strings
from compatstore.upgrade.backfilling.searched import embed_candidates
from compatstore.upgrade.requests.cascade import Cascade
from compatstore.upkeep.optimize import tend


@dataclass(frozen=True)
class CascadePlan:
    """The plan of a cascade.

    Attributes:
        k: Results wanted.
        run: The upgrade whose target embeds the candidates.
        candidates: The search that finds them.
        target: The target's column.
        source: The source's column.
        cascade: The request.
        spent: Items that searches have embedded for the upgrade so far.
    """

    k: int
    run: RunRecord
    candidates: SearchPlan
    target: Part
    source: Part
    cascade: Cascade
    spent: int = 0

    @property
    def version(self) -> str:
        """The version upgraded to."""
        return self.target.version

    @property
    def parts(self) -> tuple[Part, ...]:
        """Columns that are read."""
        return (*self.candidates.parts, self.source, self.target)

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that queries are needed in."""
        return tuple(dict.fromkeys([*self.candidates.versions, self.target.version]))

    def using(self, settings: SearchSettings) -> CascadePlan:
        """The same plan, with other settings of the indexes."""
        return replace(self, candidates=self.candidates.using(settings))

    def __str__(self) -> str:
        limits, target = self.cascade, self.target
        return (
            f"{self.candidates}\n"
            f"  cascade: the first {limits.first} are embedded natively in {target.version} and ranked by "
            f"{target.metric} in {target.version}; {self.k} results\n"
            f"  price: at most {limits.first} encodings for a query in one call of the encoder, "
            f"{max(limits.in_all - self.spent, 0)} of {limits.in_all} left in all; written back as native vectors"
        )


QueryPlan: TypeAlias = SearchPlan | CascadePlan


def plan_cascade(
    catalog: Catalog,
    registry: Registry,
    query: Any,
    k: int,
    version: str | None,
    where: str | Sequence[str] | None,
    cascade: Cascade,
) -> QueryPlan:
    """Plan a cascade; read-only.

    If the upgrade is over (retired, rolled back, aborted), it is the search without one: nothing can be written back
    and no target serves.

    Args:
        catalog: The gallery.
        registry: Its state.
        query: A query as of `Gallery.search`; of the target, and of the source too if it finds the candidates. None
            for a source that every version can embed.
        k: Results wanted.
        version: Version of the query; the active one by default.
        where: The caller's conditions.
        cascade: The request.

    Raises:
        InvalidInput: The query is of other versions than are needed, or a condition is not one expression.
        NotFound: There is no such version, or nothing to search with its queries.
        UpgradeError: There was no upgrade, or the target has no encoder here.
    """
    names = versions_of(registry, query, version)
    name = version or (names[0] if len(names) == 1 else registry.active)
    known = names
    if not names and query is not None and is_vectors(query, registry.record(name).dim):
        known = (name,)
    run = _run_of(registry, known, name)
    if not run.open or not {run.source, run.target} <= registry.stored.keys():
        return plan_serving(catalog, registry, query, k, version, where, None)
    found = plan_serving(catalog, registry, query, max(k, cascade.first), version, where, None)
    source, target = part_of(registry, run.source), part_of(registry, run.target)
    plan = CascadePlan(k, run, found, target, source, cascade)
    missing = [each for each in plan.versions if known and each not in known]
    if missing:
        raise InvalidInput(
            f"search by a cascade in {run.target}",
            expected=f"a query of each of {', '.join(plan.versions)}, or a source that they embed",
            found=f"no query of {', '.join(missing)}",
            fix=f"Hand them over: search({{{', '.join(f'{each!r}: ...' for each in plan.versions)}}}).",
        )
    if catalog.encoder(run.target) is None:
        raise UpgradeError(
            f"search by a cascade in {run.target}",
            expected=f"an encoder for {run.target}",
            found="none: its vectors come from outside",
            fix=f"Give its model: {next_step.encoder(run.target)}; or search without a cascade.",
        )
    return plan


def _run_of(registry: Registry, known: Sequence[str], name: str) -> RunRecord:
    """The upgrade that a query belongs to: between its two versions, to its one version, or of a source.

    Raises:
        UpgradeError: There was none.
    """
    runs = list(registry.runs.values())
    if len(known) == 2:
        runs = [run for run in runs if {run.source, run.target} == set(known)]
    else:
        leading = [run for run in runs if run.target == name]
        leaving = [run for run in runs if run.source == name]
        runs = leading or leaving if known else leading + leaving
    if not runs:
        raise UpgradeError(
            f"search by a cascade with a query of {' and '.join(known) or name}",
            expected="an upgrade from or to that version",
            found="none",
            fix=f"Begin one: {next_step.call('upgrade', 'VERSION')}",
        )
    return max(runs, key=lambda run: (run.open, run.started_at))


def search_cascade(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: CascadePlan,
    queries: Mapping[str, FloatArray],
    columns: Sequence[str],
) -> ArrowTable:
    """Search by a cascade, and write the new native vectors into the gallery.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_cascade`.
        queries: Version -> (q, dim) float32, the same q queries in each version.
        columns: Columns to return.

    Returns:
        Arrow table as `execute` gives it. Items that are ranked by native vectors have the target as `_version`,
        "native" as `_origin` and the target's `_distance`; the others keep these columns of the search that found them.

    Raises:
        InvalidInput: The versions have different numbers of queries, the condition is no valid SQL for this table, or a
            query has length 0, under cosine.
    """
    registry, target = catalog.recorded(snapshot), plan.target
    require_as_many(queries, plan.versions)
    native_queries = query_of_part(catalog, target, queries[target.version])[:, : target.columns.dim]
    read = [registry.id_column, *plan.source.columns.hashed_names(registry.source_column), target.columns.vector]
    read += [target.columns.origin] if target.columns.origin else []
    rows = search_planned(catalog, snapshot, plan.candidates, queries, list(dict.fromkeys([*columns, *read])))
    n = rows.num_rows
    numbers = rows["_query"].to_numpy().astype(np.int64) if "_query" in rows.column_names else np.zeros(n, np.int64)
    ranks = np.arange(n) - np.searchsorted(numbers, numbers)  # of each row for its query, from 0
    first = np.flatnonzero(ranks < plan.cascade.first)
    vectors = _native_vectors(catalog, snapshot, plan, rows.take(pa.array(first)))
    distances = np.full(n, np.nan)
    searchable = VectorForm(target.columns.dtype, target.metric).searchable(vectors)
    for number in np.unique(numbers[first]):
        mine, query = np.flatnonzero(searchable & (numbers[first] == number)), native_queries[number]
        constant = np.float64(1.0) if target.metric != "l2" else query.astype(np.float64) @ query
        distances[first[mine]] = distances_to(query, vectors[mine], target.metric) + constant
    order, known = np.arange(n), np.flatnonzero(~np.isnan(distances))
    order[known] = known[np.lexsort((ranks[known], distances[known], numbers[known]))]
    order = order[ranks < plan.k]
    return _results(rows.take(pa.array(order)), target.version, columns, distances[order])


def _native_vectors(catalog: Catalog, snapshot: Snapshot, plan: CascadePlan, rows: ArrowTable) -> FloatArray:
    """Native vectors of candidates, those of the table and those that are made now: (n, dim), NaN if there is none."""
    columns = plan.target.columns
    vectors, native = to_matrix(rows[columns.vector], columns.dim)
    if columns.origin:
        native = native & (to_strings(rows[columns.origin]) == NATIVE)
    made = embed_candidates(catalog, snapshot, plan.run, rows, native, plan.cascade.in_all)
    if np.isfinite(made).any():
        tend(catalog)
    return np.where(native[:, None], vectors, made)


def _results(rows: ArrowTable, version: str, columns: Sequence[str], distances: Doubles) -> ArrowTable:
    """The rows in order, with the computed columns of the vectors that ranked them."""
    mine = pa.array(~np.isnan(distances))
    computed = {
        "_distance": pc.if_else(mine, pa.array(distances.astype(np.float32)), rows["_distance"]),
        "_version": pc.if_else(mine, version, rows["_version"]),
        "_origin": pc.if_else(mine, NATIVE, rows["_origin"]),
    }
    if "_query" in rows.column_names:
        computed["_query"] = rows["_query"]
    return pa.Table.from_arrays([*(rows[name] for name in columns), *computed.values()], [*columns, *computed])
