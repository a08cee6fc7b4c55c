"""Management of a version's index: create, status, refresh, drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compatstore import next_step
from compatstore.boundary import checked
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.failures import answers
from compatstore.storage.index_status import IndexStatus, index_status
from compatstore.storage.indexes import VectorIndex
from compatstore.storage.nearest import HAMMING
from compatstore.storage.recall import RefreshedIndex, build_index, refresh_index
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import edit
from compatstore.upgrade.indexing import hold_index
from compatstore.upgrade.progress import Observer, OnProgress
from compatstore.upkeep.optimize import tend


@dataclass(frozen=True, kw_only=True)
class DroppedIndex:
    """The result of a drop.

    Attributes:
        version: The version.
        dropped: Names of the dropped indexes; empty if there was none.
    """

    version: str
    dropped: tuple[str, ...]


@checked
@answers
class ManagedIndex:
    """The index of one version; `Gallery.maintenance.index` gives it.

    An index makes searches of a large gallery fast, and approximate. Searches compare every vector that came after the
    build, until the index is refreshed: a gallery does that by itself when there are more than 5,000, an
    upgrade too, and `refresh` does it now.
    """

    def __init__(self, catalog: Catalog, version: str) -> None:
        self._catalog, self._version = catalog, version

    def __repr__(self) -> str:
        return f"<ManagedIndex of {self._version} in {self._catalog.store.location.name}>"

    def create(
        self,
        *,
        kind: str = "IVF_PQ",
        num_partitions: int | None = None,
        num_sub_vectors: int | None = None,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> IndexStatus:
        """Build the index, or replace the present one.

        Once it is built, its recall is measured with items of the gallery as queries, and the cheapest search settings
        that find 97 % of the 10 nearest are stored; every search uses them.

        Args:
            kind: IVF_FLAT, IVF_PQ, IVF_SQ, IVF_HNSW_FLAT, IVF_HNSW_PQ or IVF_HNSW_SQ.
            num_partitions: Cells; by default the square root of the number of vectors, 4,096 at the most, and with
                product quantisation one for 256 vectors at the most.
            num_sub_vectors: Parts of product quantisation, by which a stored vector can be divided; a part for every 8
                values by default.
            progress: Called as a stage begins.
            should_stop: Called as a stage begins; a build that has begun is finished.

        Raises:
            NotFound: The gallery keeps no vectors of that version.
            InvalidInput: There are too few vectors, the kind is unknown, or vectors cannot be divided into such parts.
            LeaseHeld: Another worker holds this index.
            Interrupted: `should_stop` returned True.

        Examples:
            >>> many = np.random.default_rng(0).standard_normal((300, 2))
            >>> gallery.add({"id": [f"more-{n}" for n in range(300)], "vector": many}).rows
            300
            >>> gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4).cells
            4
        """
        store, (record, columns) = self._catalog.store, self._found()
        wanted = _settings(record, columns, store.count(columns.present), kind, num_partitions, num_sub_vectors)
        indexes.require_enough(store, columns.vector)  # before anything is written, a lease too
        tend(self._catalog)
        with hold_index(self._catalog, record.name, "build", Observer(progress, should_stop)) as (held, report):
            build_index(held, record.name, wanted, report)
        return index_status(store, record.name)

    def status(self) -> IndexStatus:
        """The state of the index; read-only.

        Raises:
            NotFound: The gallery keeps no vectors of that version.

        Examples:
            >>> gallery.maintenance.index("v1").status().unindexed_rows
            6
        """
        return index_status(self._catalog.store, self._version)

    def refresh(self, *, progress: OnProgress = None, should_stop: Callable[[], bool] | None = None) -> RefreshedIndex:
        """Add new vectors, measure the recall, and train the index again if it is too low.

        It is trained again if its recall on a sample, with the current settings, is below 0.95, if a search
        compares 1.5 times the share of the vectors that it compared at the last measurement, or if Lance has joined
        its cells to half of them or fewer.

        Args:
            progress: Called as a stage begins.
            should_stop: Called as a stage begins; finished stages are kept.

        Raises:
            NotFound: The gallery keeps no vectors of that version.
            InvalidInput: It has no index.
            LeaseHeld: Another worker holds this index.
            Interrupted: `should_stop` returned True.

        Examples:
            >>> many = np.random.default_rng(0).standard_normal((300, 2))
            >>> gallery.add({"id": [f"more-{n}" for n in range(300)], "vector": many}).rows
            300
            >>> _ = gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
            >>> _ = gallery.add({"id": ["late"], "vector": [[0.0, 1.0]]})
            >>> gallery.maintenance.index().refresh().added
            1
        """
        store = self._catalog.store
        if not index_status(store, self._version).kind:  # before anything is written, a lease too
            return refresh_index(store, self._version)
        caller = Observer(progress, should_stop)
        with hold_index(self._catalog, self._version, "refresh", caller) as (held, report):
            return refresh_index(held, self._version, report)

    def drop(self, *, adopted: bool = False) -> DroppedIndex:
        """Drop the index and its measurements; searches compare every vector from then on, and are exact.

        Args:
            adopted: Drop it from the column of an app too, whose index it may be.

        Raises:
            NotFound: The gallery keeps no vectors of that version.
            UpgradeError: The column is an app's, and `adopted` is false.
            LeaseHeld: A worker holds this index.

        Examples:
            >>> gallery.maintenance.index("v1").drop().dropped
            ()
        """
        record, columns = self._found()
        there = bool(indexes.indexes_on(self._catalog.store.snapshot(), columns.vector))
        if there and record.adopted and not adopted:
            operation = f"drop the index of {record.name}"
            found = f"one on the column {columns.vector} of the app that owns the table"
            fix = f"Drop it nevertheless: {next_step.call('index drop', record.name, adopted=True)}"
            raise UpgradeError(operation, expected="an index of this gallery", found=found, fix=fix)
        if not there and record == record.without_index():
            return DroppedIndex(version=record.name, dropped=())
        with hold_index(self._catalog, record.name, "drop") as (store, _):
            dropped = indexes.drop(store, columns.vector)
            edit(store, lambda state: state.with_version(state.record(record.name).without_index()))
        return DroppedIndex(version=record.name, dropped=tuple(dropped))

    def _found(self) -> tuple[VersionRecord, VersionColumns]:
        registry = self._catalog.registry()
        return registry.record(self._version), registry.columns(self._version)


def _settings(
    record: VersionRecord,
    columns: VersionColumns,
    rows: int,
    kind: str,
    num_partitions: int | None,
    num_sub_vectors: int | None,
) -> VectorIndex:
    operation = f"index {record.name}"
    if columns.dtype == "bits" and kind != indexes.OF_BITS:
        fix = f"Build that: {next_step.option('kind', indexes.OF_BITS)}"
        raise InvalidInput(operation, expected=f"{indexes.OF_BITS}, for bits", found=kind, fix=fix)
    quantised, width = kind.endswith("PQ"), columns.width
    cells = indexes.cells_for(rows, quantised=quantised) if num_partitions is None else num_partitions
    parts = indexes.sub_vectors(width, width // 8) if num_sub_vectors is None else num_sub_vectors
    metric = HAMMING if columns.dtype == "bits" else record.metric
    index = VectorIndex(kind, metric, cells, parts if quantised else None)
    if quantised and width % parts:
        expected = f"num_sub_vectors that divides {width}, the values of a stored vector"
        raise InvalidInput(
            operation, expected=expected, found=f"{parts}", fix=f"{indexes.sub_vectors(width, parts)} does."
        )
    return index
