"""Recall of an index against exact search, and the cheapest search settings with sufficient recall.

Items of the gallery are the queries: each should find the 10 others that exact search finds. The settings are the
cheapest of a grid whose recall reaches `GOAL`: first the smallest refine factor, because its rows are read from the
table, then the smallest nprobes. They are kept in the version's record, and every search uses them.

Few cells are tried first: a search of all cells reads the whole index for each query. One search without vectors gives
the recall of every refine factor. More cells add no more neighbours than the largest refine factor lacks, which rules
out most values of nprobes too.

An index that an upgrade builds must reach the source's recall: its goal is the measured recall of the source's index.

A refresh adds the rows that came after the build. They are assigned to the same cells and codes, and if they are
distributed otherwise, as native vectors among transformed ones, searches find fewer of them, or compare more. So two
figures decide if the index is trained again, both measured with the settings that were chosen before: the recall on a
sample, and the share of the vectors that a search compares. An index also gets back the cells that Lance has joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, RowNumbers
from compatstore.errors import InvalidInput
from compatstore.storage import indexes
from compatstore.storage.columns import VersionColumns
from compatstore.storage.index_status import IndexStatus, compared_share, index_status
from compatstore.storage.indexes import Report, VectorIndex, names_on, silent, update_index
from compatstore.storage.nearest import find_nearest
from compatstore.storage.records import NEIGHBOURS, SearchSettings, VersionRecord
from compatstore.storage.registry import Registry, edit, edit_version, read
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store
from compatstore.storage.vector_form import to_matrix

FLOOR = 0.95  # guaranteed recall of searches; a build leaves 0.97 at least
CROWDED = 1.5  # times the share of the vectors that a search compared when that was measured
JOINED = 2  # times fewer cells than it was built with: Lance joins them if it merges deltas of few rows
CHANGED = 0.05  # of the rows: a change of less cannot lower the recall by more


@dataclass(frozen=True, kw_only=True)
class RefreshedIndex:
    """The result of a refresh.

    Attributes:
        added: Vectors that came into the index.
        retrained: Reason why it was trained again, "" if it was not.
        status: The current index.
    """

    added: int
    retrained: str
    status: IndexStatus


def build_index(store: Store, version: str, index: VectorIndex, report: Report = silent) -> None:
    """Build the index of a version, or replace the one that it has, and measure its recall.

    Args:
        store: The table.
        version: The version.
        index: The index to build.
        report: Called as a stage begins; an exception of it ends the call.

    Raises:
        InvalidInput: There are too few rows to train it.
    """
    column = read(store.snapshot(), store.location.uri).columns(version).vector
    indexes.build(store, column, index, report)
    built = indexes.describe(store, column)
    cells = None if built is None else built.num_partitions  # product quantisation has one for 256 rows at the most
    edit_version(store, version, cells=cells)
    measure_index(store, version, report)


def refresh_index(store: Store, version: str, report: Report = silent, *, always: bool = True) -> RefreshedIndex:
    """Bring a version's index up to date.

    Args:
        store: The table.
        version: The version.
        report: Called as a stage begins; an exception of it ends the call, and keeps the finished stages.
        always: True to measure even if few vectors came since the last measurement.

    Raises:
        NotFound: The gallery keeps no vectors of that version.
        InvalidInput: It has no index.
    """
    before, registry = index_status(store, version), read(store.snapshot(), store.location.uri)
    if not before.kind:
        fix = f"Build one: {next_step.call('index create', version)}"
        raise InvalidInput(f"refresh the index of {version}", expected="a version with an index", found="none", fix=fix)
    record, column = registry.record(version), registry.columns(version).vector
    if before.unindexed_rows:
        report("add rows")
        update_index(store, names_on(store, column))
    status = index_status(store, version)
    if not always and status.changed <= CHANGED:
        return RefreshedIndex(added=before.unindexed_rows, retrained="", status=status)
    report("measure recall")
    why, index = _why_train(store, record, status), indexes.describe(store, column)
    if why and index is not None and status.indexed_rows >= indexes.MINIMUM_ROWS:
        build_index(store, version, replace(index, num_partitions=record.cells or index.num_partitions), report)
    else:
        why = ""
        measure_index(store, version, report)
    return RefreshedIndex(added=before.unindexed_rows, retrained=why, status=index_status(store, version))


def _why_train(store: Store, record: VersionRecord, status: IndexStatus) -> str:
    """The reason to train an index again; "" for none."""
    if record.cells is not None and JOINED * status.cells <= record.cells:
        return f"its {record.cells} cells were joined to {status.cells}"
    compared = record.compared
    if compared is not None and status.compared is not None and status.compared > CROWDED * compared:
        return f"a search compared {status.compared:.1%} of the vectors, {compared:.1%} when that was measured"
    recall = recall_now(store, status.version)
    if recall is not None and recall < FLOOR:
        return f"the recall was {recall:.3f}"
    return ""


QUERIES = 200
GOAL = 0.97  # of the sample, so that 0.95 holds beyond it: 2,000 neighbours have a standard error of 0.004
APART = 0.005  # recalls of two such samples that differ by less count as equal
REFINES = (None, 2, 5, 10, 20, 50, 100)
SEED = 0
FEWEST_CELLS = 4  # with 1 or 2 cells builds were seen that gave items 0.975 and queries from outside 0.946


@dataclass(frozen=True, kw_only=True)
class MeasuredRecall:
    """The recall of an index.

    Attributes:
        settings: The cheapest of the grid that reach the goal, or else the best.
        recall: Share of the 10 nearest neighbours that a search with these settings finds, in [0, 1].
    """

    settings: SearchSettings
    recall: float


def measure_index(store: Store, version: str, report: Report = silent) -> MeasuredRecall | None:
    """Choose the search settings of a version's index and keep them in its record.

    Args:
        store: The table.
        version: The version.
        report: Called before it is measured.

    Returns:
        The measurement; None if the version has no index, or fewer than two vectors.
    """
    report("measure recall")
    snapshot = store.snapshot()
    registry = read(snapshot, store.location.uri)
    columns, metric = registry.columns(version), registry.record(version).metric
    index, goal = indexes.describe(store, columns.vector), goal_of(registry, version)
    measured = None if index is None else choose_settings(snapshot, columns, metric, index.num_partitions, goal)
    if measured is None:
        edit(store, lambda state: state.with_version(state.record(version).without_index()))
        return None
    edit_version(
        store,
        version,
        search=measured.settings,
        recall=round(measured.recall, 4),
        recall_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        compared=_compared(snapshot, columns, measured.settings),
    )
    return measured


def recall_now(store: Store, version: str) -> float | None:
    """Measure the present recall of a version's index with its settings; read-only.

    Returns:
        Share of the 10 nearest neighbours, in [0, 1]; None if no settings were chosen, or there are fewer than two
        vectors.
    """
    snapshot = store.snapshot()
    registry = read(snapshot, store.location.uri)
    record = registry.record(version)
    sample = None if record.search is None else _Sample.of(snapshot, registry.columns(version), record.metric)
    return None if sample is None or record.search is None else sample.measure(record.search).recall


def goal_of(registry: Registry, version: str) -> float:
    """The recall that a version's index is to reach: `GOAL`, or that of the source's index if it is higher."""
    run = registry.runs.get(version)
    source = None if run is None or not run.open else registry.versions.get(run.source)
    known = 0.0 if source is None or source.recall is None else source.recall
    return max(GOAL, known - APART)


def _compared(snapshot: Snapshot, columns: VersionColumns, settings: SearchSettings) -> float | None:
    found = next(iter(indexes.indexes_on(snapshot, columns.vector)), None)
    return None if found is None else compared_share(snapshot.stats.index_stats(found.name)["indices"], settings)


def choose_settings(
    snapshot: Snapshot, columns: VersionColumns, metric: str, cells: int, goal: float = GOAL
) -> MeasuredRecall | None:
    """Find the cheapest settings by which a column's index reaches a recall; read-only.

    Args:
        snapshot: The table version.
        columns: Columns of the version.
        metric: Distance of the version.
        cells: Cells of the index.
        goal: Recall to reach, in [0, 1].

    Returns:
        None if the column holds fewer than two vectors.
    """
    sample = _Sample.of(snapshot, columns, metric)
    return None if sample is None else _cheapest(sample, cells, goal)


def _cheapest(sample: _Sample, cells: int, goal: float) -> MeasuredRecall:
    """The least refine by which some number of cells reaches the goal, and the fewest such cells.

    If twice as many cells hold hardly more of the neighbours, and too few: the best with these.
    """
    reached: MeasuredRecall | None = None
    possible, before = list(REFINES), -1.0
    for probes in _cells_to_search(cells):
        held = sample.held(probes)
        most, gained = max(held.values()), max(held.values()) - before
        before = most
        left = list[int | None]()
        for refine in possible:
            if held[refine] >= goal:
                found = sample.measure(SearchSettings(nprobes=probes, refine=refine))
                if found.recall >= goal:
                    reached = found
                    break
            if held[refine] + 1 - most >= goal:
                left.append(refine)
        if reached is not None and not left:
            return reached
        if reached is None and (probes == cells or (most < goal and gained < APART)):
            return sample.measure(SearchSettings(nprobes=probes, refine=max(held, key=lambda refine: held[refine])))
        possible = left
    assert reached is not None  # else the last round has returned
    return reached


def _cells_to_search(cells: int) -> Iterator[int]:
    """4, 8, 16, ...; then all of them.

    Never fewer: items find their neighbours in their own cell, and the next, more often than queries from outside do.
    """
    probes = FEWEST_CELLS
    while probes < cells:
        yield probes
        probes *= 2
    yield cells


@dataclass(frozen=True)
class Found:
    """The neighbours of an item, nearest first without the item itself, and their distances."""

    rows: tuple[int, ...]
    distances: tuple[float, ...]

    @classmethod
    def of(cls, own: int, found: ArrowTable) -> Found:
        """The nearest rows of an Arrow table with `_rowid` and `_distance`, without a row of one's own."""
        near = zip(found["_rowid"].to_pylist(), found["_distance"].to_pylist(), strict=True)
        others = [(row, distance) for row, distance in near if row != own][:NEIGHBOURS]
        return cls(tuple(row for row, _ in others), tuple(distance for _, distance in others))

    def hits(self, truth: Found, *, ties: bool) -> int:
        """The number of these that are among the nearest.

        Args:
            truth: Results of exact search.
            ties: True if another row that is as near as one of the nearest counts as one: of bits many are.
        """
        if not ties:
            return len(set(self.rows) & set(truth.rows))
        return sum(distance <= truth.distances[-1] for distance in self.distances) if truth.distances else 0


@dataclass(frozen=True, eq=False)
class _Sample:
    """Query items, and their exact neighbours."""

    snapshot: Snapshot
    columns: VersionColumns
    metric: str
    rows: RowNumbers
    queries: FloatArray
    exact: tuple[Found, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, columns: VersionColumns, metric: str) -> _Sample | None:
        """Draw items at random among those that have a vector."""
        rows = snapshot.to_table(columns=[], filter=columns.present, with_row_id=True)["_rowid"].to_numpy()
        if len(rows) < 2:
            return None
        picked = np.random.default_rng(SEED).choice(len(rows), min(QUERIES, len(rows)), replace=False)
        among = ",".join(map(str, sorted(rows[picked].tolist())))
        table = snapshot.to_table(columns=[columns.vector], filter=f"_rowid IN ({among})", with_row_id=True)
        queries, _ = to_matrix(table[columns.vector], columns.width)
        sample = cls(snapshot, columns, metric, table["_rowid"].to_numpy(), queries)
        return replace(sample, exact=sample._search(use_index=False))

    def measure(self, settings: SearchSettings) -> MeasuredRecall:
        """Recall of a search with these settings."""
        found = self._search(**settings.options)
        ties = self.columns.dtype == "bits"
        hits = sum(mine.hits(truth, ties=ties) for mine, truth in zip(found, self.exact, strict=True))
        return MeasuredRecall(settings=settings, recall=hits / max(sum(len(truth.rows) for truth in self.exact), 1))

    def held(self, probes: int) -> dict[int | None, float]:
        """Share of the exact neighbours that are among the rows which each refine compares; no vector is read."""
        if self.columns.dtype == "bits":  # the index holds exact codes, and equally near rows count as found
            return dict.fromkeys(REFINES, self.measure(SearchSettings(nprobes=probes)).recall)
        depths = {refine: (refine or 1) * (NEIGHBOURS + 1) for refine in REFINES}
        found = self._tables(k=max(depths.values()), nprobes=probes)
        hits = dict.fromkeys(REFINES, 0)
        for table, truth in zip(found, self.exact, strict=True):
            rows = table["_rowid"].to_numpy()
            for refine, depth in depths.items():
                hits[refine] += len(set(rows[:depth].tolist()) & set(truth.rows))
        wanted = max(sum(len(truth.rows) for truth in self.exact), 1)
        return {refine: count / wanted for refine, count in hits.items()}

    def _search(self, **options: int) -> tuple[Found, ...]:
        """The neighbours of each query but itself."""
        found = self._tables(**options)
        return tuple(Found.of(own, table) for own, table in zip(self.rows.tolist(), found, strict=True))

    def _tables(self, **options: int) -> list[ArrowTable]:
        """The nearest rows of each query, itself among them."""
        nearest: dict[str, str | int] = {"column": self.columns.vector, "metric": self.metric, "k": NEIGHBOURS + 1}
        return find_nearest(self.snapshot, nearest | options, self.queries, ["_distance"], with_row_id=True)
