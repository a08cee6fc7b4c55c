"""Refresh an index: take in the rows that came after it, measure what it finds, and train it again where that fell.

An index is trained on the vectors of its build. Vectors that come later are assigned to the same cells and codes, and
where they lie elsewhere, as native vectors do among transformed ones, searches find fewer of them, or compare more. So
two figures decide, both measured with the search settings that were chosen before: the recall on a sample, and the
share of the vectors that a search compares. Where neither has become worse, no more than the settings is chosen again.
Besides, an index gets back the cells that Lance has joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore import next_step
from compatstore.errors import InvalidInput
from compatstore.storage import indexes
from compatstore.storage.deltas import names_on, update_index
from compatstore.storage.index_status import IndexStatus, index_status
from compatstore.storage.indexes import Report, VectorIndex, tell
from compatstore.storage.recall import measure_index, recall_now
from compatstore.storage.registry import edit, read
from compatstore.storage.store import Store

FLOOR = 0.95  # what searches are promised to find; a build leaves 0.97 at least
CROWDED = 1.5  # times the share of the vectors that a search compared when that was measured
JOINED = 2  # times fewer cells than it was built with: Lance joins them where it merges deltas of few rows
CHANGED = 0.05  # of the rows: a change of less cannot lower the recall by more


@dataclass(frozen=True, kw_only=True)
class RefreshedIndex:
    """What a refresh did.

    Attributes:
        added: Vectors that came into the index.
        retrained: Why it was trained again, "" where it was not.
        status: The index as it is now.
    """

    added: int
    retrained: str
    status: IndexStatus


def build_index(store: Store, version: str, index: VectorIndex, report: Report | None = None) -> None:
    """Build the index of a version, or replace the one that it has, and measure what it finds.

    Args:
        store: The table.
        version: The version.
        index: What to build.
        report: Called as a stage goes on; what it raises ends the call.

    Raises:
        InvalidInput: There are too few rows to train it.
    """
    column = read(store.snapshot(), store.location.uri).columns(version).vector
    indexes.build(store, column, index, report)
    built = indexes.describe(store, column)
    cells = None if built is None else built.num_partitions  # product quantisation has one for 256 rows at the most
    edit(store, lambda state: state.with_version(replace(state.record(version), cells=cells)))
    measure_index(store, version, report)


def refresh_index(store: Store, version: str, report: Report | None = None, *, always: bool = True) -> RefreshedIndex:
    """Bring a version's index up to date.

    Args:
        store: The table.
        version: The version.
        report: Called as a stage goes on; what it raises ends the call, and what is done by then stays.
        always: Whether to measure where few vectors came since the last measurement too.

    Raises:
        NotFound: The gallery keeps no vectors of that version.
        InvalidInput: It has no index.
    """
    before = index_status(store, version)
    if not before.kind:
        raise InvalidInput(
            f"refresh the index of {version}",
            expected="a version with an index",
            found="none",
            fix=f"Build one: {next_step.call('index create', version)}",
        )
    column = read(store.snapshot(), store.location.uri).columns(version).vector
    if before.unindexed_rows:
        tell(report, "add rows", 0, before.unindexed_rows)
        update_index(store, names_on(store, column))
        tell(report, "add rows", before.unindexed_rows, before.unindexed_rows)
    status = index_status(store, version)
    if not always and status.changed <= CHANGED:
        return RefreshedIndex(added=before.unindexed_rows, retrained="", status=status)
    tell(report, "measure recall", 0)
    why, index = _why_train(store, status), indexes.describe(store, column)
    if why and index is not None and status.indexed_rows >= indexes.MINIMUM_ROWS:
        cells = read(store.snapshot(), store.location.uri).record(version).cells
        build_index(store, version, replace(index, num_partitions=cells or index.num_partitions), report)
    else:
        why = ""
        measure_index(store, version, report)
    return RefreshedIndex(added=before.unindexed_rows, retrained=why, status=index_status(store, version))


def _why_train(store: Store, status: IndexStatus) -> str:
    """Why an index is to be trained again, "" where it is not."""
    record = read(store.snapshot(), store.location.uri).record(status.version)
    if record.cells is not None and JOINED * status.cells <= record.cells:
        return f"its {record.cells} cells were joined to {status.cells}"
    compared = record.compared
    if compared is not None and status.compared is not None and status.compared > CROWDED * compared:
        return f"a search compared {status.compared:.1%} of the vectors, {compared:.1%} when that was measured"
    recall = recall_now(store, status.version)
    if recall is not None and recall < FLOOR:
        return f"the recall was {recall:.3f}"
    return ""
