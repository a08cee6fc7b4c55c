"""The gallery: what users hold. It says what happens and delegates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from os import PathLike
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import compatstore.upgrade.views  # noqa: F401  (registers what people see of results)
from compatstore import search as searching
from compatstore.arrays import ArrowSchema, FloatArray
from compatstore.artifacts import Artifact
from compatstore.asynchronous import awaited
from compatstore.boundary import checked, shown
from compatstore.encoders import Encoder
from compatstore.errors import CompatStoreError, InvalidInput, UnknownId, first_offenders
from compatstore.evaluation import DecisionTable
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge
from compatstore.in_memory.graph import CacheSettings
from compatstore.ingest import metadata as metadata_columns
from compatstore.ingest import write
from compatstore.ingest.complete import Unembedded
from compatstore.ingest.items import Repeated
from compatstore.ingest.metadata import declared_fields
from compatstore.ingest.write import Added
from compatstore.search import Cascade
from compatstore.search.cache import Cache
from compatstore.search.cache_size import CacheSize, cache_size
from compatstore.search.scan import Scan
from compatstore.storage import registry as registry_module
from compatstore.storage.app_columns import refuse_distance
from compatstore.storage.arrow_values import to_matrix
from compatstore.storage.catalog import LEASE_TERM, Catalog, id_arrow_type, require_unregistered
from compatstore.storage.create import adopt_table, create_table
from compatstore.storage.derived import derivation_artifact, derive_version, require_derived, require_unit, source_of
from compatstore.storage.failures import answering, answers
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import find, read_ids
from compatstore.storage.indexes import SearchSettings, VectorIndex
from compatstore.storage.location import locate
from compatstore.storage.recall import measure_index
from compatstore.storage.records import ArtifactRecord, VersionRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.store import Store
from compatstore.trainers.pairs.learn import Learn
from compatstore.upgrade.abort import abort
from compatstore.upgrade.backfilling.account import unbackfillable
from compatstore.upgrade.backfilling.search_account import read_spent
from compatstore.upgrade.backfilling.searched import SearchBudget, SearchedItems
from compatstore.upgrade.backfilling.write_back import WrittenBack
from compatstore.upgrade.cutover import check_cutover, cut_over
from compatstore.upgrade.estimates.below import warning_of
from compatstore.upgrade.estimates.details import details_of, require_columns
from compatstore.upgrade.estimates.estimate import (
    agree,
    estimate_upgrade,
    gate_of_reach,
    require_within_reach,
    save_estimate,
)
from compatstore.upgrade.estimates.fusing import choose_fusion, fusable, fuse_as_asked, save_fusion
from compatstore.upgrade.estimates.merging import choose_merge, follow_parts, save_merge
from compatstore.upgrade.estimates.reporting import UpgradeReport, report_upgrade
from compatstore.upgrade.estimates.trial import SampleSettings, try_upgrade
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.stop_request import Paused, pause
from compatstore.upgrade.plan import Plan, make_plan
from compatstore.upgrade.progress import Progress
from compatstore.upgrade.refit import Refitter
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Criterion, Gates
from compatstore.upgrade.requests.queries import Queries, column_of
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.retire import retire
from compatstore.upgrade.rollback import roll_back
from compatstore.upgrade.run import Controls, UpgradeResult, require_startable, run_upgrade
from compatstore.upgrade.states import VersionChange
from compatstore.upgrade.status import Status, read_status
from compatstore.upkeep.index import ManagedIndex
from compatstore.upkeep.optimize import Optimized, optimize
from compatstore.upkeep.removal import unlink, unregister
from compatstore.upkeep.tend import tend
from compatstore.verification import Verification, verify
from compatstore.versions import DType, EmbeddingVersion, Metric

LEARN = Learn()
Result = TypeVar("Result")
Ids: TypeAlias = Sequence[Any] | str | int  # one id, or a list or array of them
Missing = Literal["raise", "skip"]


@checked
@answers
class Gallery:
    """A live retrieval gallery on one Lance table.

    Make one with `Gallery.create`, `Gallery.open` or `Gallery.adopt`. Every read sees the table as of now, whoever
    wrote it; every write is one commit that fully happens or does not.

    Examples:
        >>> gallery = cs.Gallery.open("letters.lance")
        >>> gallery.active, len(gallery)
        ('v1', 6)
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._searched = SearchedItems(catalog)
        self._writing: Future[None] | None = None

    # ---- making and opening

    @classmethod
    def create(
        cls,
        gallery: Any,
        version: EmbeddingVersion,
        *,
        id_type: str = "string",
        metadata: Mapping[str, str] | ArrowSchema | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> Gallery:
        """Make an empty gallery.

        Args:
            gallery: A path, `s3://...`, `gs://...` or `DATABASE#TABLE`, where there is nothing yet.
            version: Its first and active version.
            id_type: "string" or "int64".
            metadata: Metadata columns that it has from the start: an Arrow schema, or names with types, of "string",
                "int64", "double", "bool", "timestamp", "date" and "json". Others come with the first items that have
                them. A column of JSON holds any JSON value as a text; conditions read it by Lance's functions
                (`json_extract(json_get(about, 'year'), '$') = '2024'`).
            storage_options: What the object store needs.

        Raises:
            AlreadyExists: Something is there.
            InvalidName: A column has a name that means something else to the gallery, or that Lance cannot handle.
            InvalidInput: A column has a type that Lance cannot keep.
            StorageError: The place cannot be written.

        Examples:
            >>> clip = cs.EmbeddingVersion("v1", dim=512, model="clip@2021")
            >>> cs.Gallery.create("photos.lance", clip, metadata={"label": "string", "year": "int64"}).active
            'v1'
        """
        location = locate(gallery, storage_options)
        with answering("create", location):
            fields = declared_fields(metadata, version, f"create a gallery at {location.uri}")
            opened = cls(Catalog(create_table(location, version, id_type, fields)))
            opened._catalog.keep_models(version)
        return opened

    @classmethod
    def open(
        cls,
        gallery: Any,
        *,
        encoders: Mapping[str, Encoder] | None = None,
        side_encoders: Mapping[str, Encoder] | None = None,
        trust_code: bool = False,
        storage_options: dict[str, str] | None = None,
        lease_term: float = LEASE_TERM,
    ) -> Gallery:
        """Open a gallery.

        Args:
            gallery: A path, a URI, `DATABASE#TABLE` or a LanceDB table.
            encoders: Encoders by version name, where only this program can make them.
            side_encoders: The same for side-information.
            trust_code: Build encoders that the gallery names as Python code or as an address.
            storage_options: What the object store needs.
            lease_term: Seconds without a sign of life after which another manager may take an upgrade over from one
                that works through this gallery.

        Raises:
            GalleryNotFound: There is none.
            StorageError: It is a plain Lance table that was not adopted.
            InvalidInput: `lease_term` is no number above 0.
            FingerprintMismatch: An encoder is another model than its version was registered with.

        Examples:
            >>> len(cs.Gallery.open("letters.lance"))
            6
        """
        location = locate(gallery, storage_options)
        with answering("open", location):
            store = Store.open(location)
            return cls(Catalog(store, encoders, side_encoders, trust_code=trust_code, lease_term=lease_term))

    @classmethod
    def adopt(
        cls,
        gallery: Any,
        version: EmbeddingVersion,
        *,
        vector: str,
        id: str,
        source: str | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> Gallery:
        """Take over an existing Lance or LanceDB table in place.

        No data file is rewritten and no column renamed; the app that owns the table goes on using it as before.
        Like the app's own, the table's ids are not declared as its key, so of two concurrent `add` calls with one new
        id both can succeed.

        Args:
            gallery: The table: a path, a URI, `DATABASE#TABLE` or a LanceDB table object.
            version: The version that the vectors in the table belong to.
            vector: Column of the vectors. Where LanceDB's metadata name the function that embeds it, that function is
                the version's model, unless the version names one; it is built only by a gallery whose code is trusted.
            id: Column of the ids, text or whole numbers.
            source: Column to re-embed from, or None: the column that LanceDB's metadata name, if any.
            storage_options: What the object store needs.

        Raises:
            GalleryNotFound: There is no table.
            InvalidInput: A column is missing or of another type, or the table is a gallery already.
            InvalidName: A column has a name that Lance or a gallery cannot handle.
            DimensionMismatch: The vectors have another length.
            DuplicateIds: An id occurs twice.

        Examples:
            >>> import lancedb
            >>> table = lancedb.connect("app-db").create_table("notes", [{"key": "n1", "embedding": [0.0, 1.0]}])
            >>> len(cs.Gallery.adopt(table, v1, vector="embedding", id="key"))
            1
        """
        location = locate(gallery, storage_options)
        with answering("adopt", location):
            store = adopt_table(location, version, vector=vector, id_column=id, source=source)
            opened = cls(Catalog(store))
            opened._catalog.keep_models(version)
            measure_index(store, version.name)
        return opened

    # ---- items

    def add(
        self,
        data: Any,
        version: str | None = None,
        *,
        upsert: bool = False,
        repeated: Repeated = "refuse",
        unembedded: Unembedded = "refuse",
    ) -> Added:
        """Write items, in one commit.

        Vectors of the other live versions are filled in the same commit: given under the version's own name,
        transformed while an upgrade is open, or embedded where an encoder and a source are there.

        Args:
            data: Arrow table, pandas or polars frame, mapping of columns or list of rows with `id`, `vector` and/or
                `source`, `side`, and any metadata. Of a frame, vectors are a column of lists or arrays.
            version: Version of `vector` and `side`; the active one by default.
            upsert: Replace items whose id is there: their vectors in all versions are replaced or cleared, metadata
                columns that are not given stay.
            repeated: What happens where an id occurs twice in the data: "refuse" all, or take the "last" of them.
            unembedded: What happens to items that have no vector and cannot be embedded: "refuse" them, or "keep"
                them without a vector. No search finds such items; conditions and ids do, and an upgrade embeds them
                where it can.

        Returns:
            How many were written, and which sources could not be embedded.

        Raises:
            InvalidInput: Something is missing or of the wrong type.
            DuplicateIds: An id occurs twice and `repeated` is "refuse", or is in the gallery and `upsert` is false.
            DimensionMismatch: Vectors have another length.
            NonFiniteVectors: NaN or infinite values.
            SourceError: No source at all could be embedded.

        Examples:
            >>> gallery.add({"id": ["g"], "vector": [[4.0, 4.0]], "label": [3]}).rows
            1
            >>> gallery.add({"id": ["g"], "vector": [[5.0, 5.0]]}, upsert=True).rows
            1
        """
        return write.add(self._catalog, data, version, upsert=upsert, repeated=repeated, unembedded=unembedded)

    def update(self, data: Any) -> int:
        """Change metadata of items, in one commit; vectors, sources and columns that are not given stay.

        Args:
            data: Arrow table, mapping of columns or list of rows with `id` and any metadata.

        Returns:
            How many items were changed.

        Raises:
            UnknownId: Some are not there; nothing was changed.
            InvalidInput: A vector or a source is given, or something is missing or of the wrong type.
            DuplicateIds: An id occurs twice.

        Examples:
            >>> gallery.update({"id": ["a", "b"], "label": [7, 8]})
            2
            >>> gallery.get(["b", "c"], ["label"])["label"].to_pylist()
            [8, 1]
        """
        return write.update(self._catalog, data)

    def delete(self, ids: Ids) -> int:
        """Remove items, in one commit; ids that are not there are ignored. Returns how many were removed.

        Raises:
            InvalidInput: Ids are of another type than the gallery's.

        Examples:
            >>> gallery.delete(["a", "not there"])
            1
        """
        return write.delete(self._catalog, ids)

    def drop_columns(self, names: Sequence[str]) -> list[str]:
        """Drop metadata columns, of all items, for good; columns of the same names can be added again.

        Args:
            names: Columns that `add` made. Ids, sources and the columns of versions are refused, as is a column that
                orders the backfill of an open upgrade, and every column of an adopted table.

        Returns:
            The metadata columns that are left.

        Raises:
            InvalidInput: One of them is not there, or is not to be dropped; none was.

        Examples:
            >>> gallery.drop_columns(["label"])
            []
        """
        return metadata_columns.drop(self._catalog, names)

    def get(self, ids: Ids, columns: Sequence[str] | None = None, *, missing: Missing = "raise") -> Any:
        """Read items.

        Args:
            ids: Ids, in the order wanted.
            columns: Columns, all by default.
            missing: What happens to ids that are not there: "raise" an error, or "skip" them.

        Returns:
            Arrow table with one row an id, in order.

        Raises:
            UnknownId: Some are not there, and `missing` is "raise".
            InvalidInput: A column is not there, or ids are of another type than the gallery's.

        Examples:
            >>> gallery.get(["c", "a"], ["id", "label"]).to_pylist()
            [{'id': 'c', 'label': 1}, {'id': 'a', 'label': 0}]
            >>> gallery.get(["c", "lost"], ["id", "label"], missing="skip").to_pylist()
            [{'id': 'c', 'label': 1}]
        """
        snapshot = self._catalog.store.snapshot()
        self._catalog.require(snapshot)
        schema = snapshot.schema.names
        names = schema if columns is None else searching.require_columns(columns, schema)
        return self._read(snapshot, ids, names, missing)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        *,
        limit: int | None = None,
    ) -> Scan:
        """Rows for other libraries, as of now: a pandas or polars frame, or an Arrow stream that is read in batches.

        Args:
            columns: Columns, in this order; by default the user's own: id, source and metadata, without vectors.
            where: A condition in SQL, several that must all hold, or None.
            limit: Rows at most, >= 0; None for all.

        Returns:
            The rows; nothing is read before they are asked for.

        Raises:
            InvalidInput: A column is not there, a condition is no valid SQL, or the limit is below 0.

        Examples:
            >>> gallery.scan(["id"], limit=2).to_arrow().to_pydict()
            {'id': ['a', 'b']}
        """
        snapshot = self._catalog.store.snapshot()
        self._catalog.require(snapshot)
        if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
            raise InvalidInput("scan the gallery", expected="a limit that is a whole number >= 0", found=shown(limit))
        wanted = searching.result_columns(self._catalog.recorded(snapshot), snapshot.schema.names, columns)
        condition = searching.joined(where, "scan the gallery")
        return Scan(snapshot, self._catalog.store.location, wanted, condition, limit)

    def count(self, where: str | Sequence[str] | None = None) -> int:
        """Number of the items that fulfil a condition as in `search`; of all without one; read-only.

        Raises:
            InvalidInput: A condition is no valid SQL.

        Examples:
            >>> gallery.count("label = 1")
            2
        """
        return len(self.scan([self.id_column], where))

    @property
    def metadata_schema(self) -> ArrowSchema:
        """Arrow schema of the metadata columns: all but id, source and what belongs to versions.

        Examples:
            >>> gallery.metadata_schema.names
            ['label']
        """
        snapshot = self._catalog.store.snapshot()
        names = metadata_columns.own_columns(self._catalog.recorded(snapshot), snapshot.schema.names)
        return pa.schema([snapshot.schema.field(name) for name in names])

    def _read(self, snapshot: Any, ids: Ids, names: Sequence[str], missing: Missing = "raise") -> Any:
        """Read columns that a snapshot has, from that snapshot: meanwhile an upgrade may end that drops some."""
        registry = self._catalog.recorded(snapshot)
        wanted = read_ids(ids, id_arrow_type(registry), f"get items of {self._catalog.store.location.name}")
        columns = list(dict.fromkeys([*names, registry.id_column]))
        found = find(self._catalog.store, registry.id_column, wanted, columns, snapshot)
        keys = found.column(registry.id_column)
        positions = pc.index_in(pa.array(wanted, id_arrow_type(registry)), value_set=keys.combine_chunks())
        if positions.null_count and missing == "raise":
            unknown = [item for item, position in zip(wanted, positions.to_pylist(), strict=True) if position is None]
            raise UnknownId(
                f"get {len(wanted)} items of {self._catalog.store.location.name}",
                expected="ids that are in the gallery",
                found=f"no item {first_offenders(unknown)}",
            )
        return found.take(positions.drop_null()).select(names)

    def vector_column(self, version: str | None = None) -> str:
        """Column of a version's vectors, of the active one by default.

        Raises:
            UnknownVersion: The gallery keeps no vectors of that version.

        Examples:
            >>> gallery.vector_column()
            'v1'
        """
        registry = self._registry_with(version)
        return registry.columns(version or registry.active).vector

    def vectors(self, ids: Ids, version: str | None = None) -> FloatArray:
        """Read vectors of items: (n, dim) float32, in the order of `ids`, NaN where an item has none.

        Raises:
            UnknownId: Some items are not there.
            UnknownVersion: The gallery keeps no vectors of that version.

        Examples:
            >>> gallery.vectors(["b", "c"]).tolist()
            [[1.0, 0.0], [2.0, 1.0]]
        """
        snapshot = self._catalog.store.snapshot()
        registry = self._registry_with(version, snapshot)
        columns = registry.columns(version or registry.active)
        matrix, valid = to_matrix(self._read(snapshot, ids, [columns.vector]).column(columns.vector), columns.dim)
        matrix = matrix.copy()
        matrix[~valid] = float("nan")
        return matrix

    def side_information(self, ids: Ids, version: str | None = None) -> FloatArray:
        """Read side-information of items: (n, side_dim) float32, in the order of `ids`, NaN where an item has none.

        Of a version that stores bits it is -1 and 1, as transforms read it.

        Raises:
            UnknownId: Some items are not there.
            UnknownVersion: The gallery keeps no vectors of that version.
            InvalidInput: The version has no side-information.

        Examples:
            >>> sided = cs.Gallery.create("sided.lance", cs.EmbeddingVersion("v1", dim=2, side_dim=1))
            >>> sided.add({"id": ["a"], "vector": [[0.0, 1.0]], "side": [[0.5]]}).rows
            1
            >>> sided.side_information(["a"]).tolist()
            [[0.5]]
        """
        snapshot = self._catalog.store.snapshot()
        registry = self._registry_with(version, snapshot)
        name = version or registry.active
        columns = registry.columns(name)
        if columns.side is None or columns.side_dim is None:
            raise InvalidInput(f"read side-information of {name}", expected="a version with side_dim", found="none")
        matrix, valid = to_matrix(self._read(snapshot, ids, [columns.side]).column(columns.side), columns.side_dim)
        return np.where(valid[:, None], matrix, np.float32("nan"))

    def __len__(self) -> int:
        return self._catalog.store.count()

    def _repr_html_(self) -> str:
        """The status, for notebooks."""
        return self.status()._repr_html_()

    def __repr__(self) -> str:
        return (
            f"<Gallery {self._catalog.store.location.uri} active={self._catalog.recorded().active} items={len(self)}>"
        )

    # ---- searching

    def search(
        self,
        query: Any,
        k: int = 10,
        version: str | None = None,
        where: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        fingerprint: str | Mapping[str, str] | None = None,
        serving: searching.Serving | Cascade | None = None,
        settings: SearchSettings | None = None,
    ) -> Any:
        """Find the nearest items.

        Args:
            query: (d,) or (q, d) vectors of `version`, or one source to embed (path, text, image). For a fused search
                such vectors of both versions, by the version's name, or one source that both embed.
            k: Results per query.
            version: Version of the query; the active one by default.
            where: Condition on the gallery's columns, in SQL, or several that must all hold. Each is checked to be one
                expression, so that a tenant's condition holds whatever the next one, from outside, says. A name with
                blanks or capitals stands in backticks; single and double quotes make a text.
            columns: Columns to return; id, source and metadata by default. What is computed comes in any case.
            fingerprint: Fingerprint of the model that made the query, or of both models by their versions' names;
                refused unless it is the version's.
            serving: "fused" ranks by the source's and the target's vectors of an upgrade as one, "single" by those of
                one version. None does as `fuse` has chosen where both queries are there, or a source that this program
                can embed by both; vectors of one version are served by that version. A `Cascade` embeds the first
                candidates of an upgrade natively, within its budget, and ranks them by these vectors.
            settings: How indexes are used, as `SearchSettings(nprobes=8, refine=10)`; by default as was measured when
                they were built, with items of the gallery as queries: `status` says the recall.

        Returns:
            Arrow table, nearest first, with `_distance`, `_version`, `_origin`; `_query` too for several queries. In a
            fused search `_distance` is a mean of standardised distances, which may be below 0.

        Raises:
            DimensionMismatch: The query has another length, or the two versions have different numbers of queries.
            FingerprintMismatch: The query is another model's.
            NonFiniteVectors: NaN or infinite values.
            InvalidInput: k < 1, or a condition is no valid SQL, or more than one expression.
            UnknownVersion: There is no such version, or nothing to search with its queries.
            UpgradeError: `serving` is "fused" and no fusion was chosen, or a cascade has no upgrade or no encoder.

        Examples:
            >>> gallery.search([0.0, 1.0], k=1, columns=["id"])["id"].to_pylist()
            ['a']
            >>> gallery.search([0.0, 1.0], k=2, where="label = 1")["id"].to_pylist()
            ['d', 'c']
            >>> gallery.search([0.0, 1.0], k=1, settings=cs.SearchSettings(nprobes=8, refine=10))["id"].to_pylist()
            ['a']
        """
        snapshot = self._catalog.store.snapshot()
        registry = self._catalog.recorded(snapshot)
        plan = self._plan_search(registry, query, k, version, where, serving, settings)
        self._catalog.require(snapshot, *(part.version for part in plan.parts))
        refuse_distance(snapshot.schema.names, self._catalog.store.location)
        searching.require_fingerprints(registry, plan.versions, fingerprint)
        queries = searching.read_served(self._catalog, registry, plan.versions, query)
        wanted = searching.result_columns(registry, snapshot.schema.names, columns)
        if isinstance(plan, searching.CascadePlan):
            return self._search_cascade(registry, snapshot, plan, queries, wanted)
        if isinstance(plan, searching.FusionPlan):
            return searching.search_fused(self._catalog, snapshot, plan, queries, wanted)
        return searching.execute(self._catalog, snapshot, plan, queries, wanted)

    def explain(
        self,
        query: Any = None,
        k: int = 10,
        version: str | None = None,
        where: str | Sequence[str] | None = None,
        *,
        serving: searching.Serving | Cascade | None = None,
        settings: SearchSettings | None = None,
    ) -> searching.QueryPlan:
        """How `search` with the same arguments would go about it; print it. Nothing is searched.

        Without a query it says how a source is served that every version can embed. It warns where what would be served
        was measured to be below the status quo.

        Examples:
            >>> gallery.explain(k=5).version
            'v1'
        """
        registry = self._catalog.registry()
        plan = self._plan_search(registry, query, k, version, where, serving, settings)
        served = plan.candidates if isinstance(plan, searching.CascadePlan) else plan
        way = searching.way_of(served)
        warned = replace(served, warning=warning_of(self._catalog, registry, served.version, way))
        if isinstance(plan, searching.CascadePlan):
            return replace(plan, candidates=warned, spent=read_spent(self._catalog.store.location, plan.run).rows)
        return warned

    def write_back(self) -> WrittenBack:
        """Write the native vectors that cascades of this process have made into the gallery.

        Searches do so by themselves, beside the search, once many vectors wait; before a process ends it writes the
        last ones by this call. Where columns are rewritten and no row moves, as in an adopted table, the vectors are
        staged beside the table, and the next `upgrade` brings them in.

        Returns:
            How many vectors were written, and how many wait yet.

        Raises:
            LeaseHeld: Somebody works on the upgrade; the vectors wait until that is over.
            StorageError: The table cannot be written; the vectors wait.

        Examples:
            >>> gallery.write_back()
            WrittenBack(rows=0, waiting=0)
        """
        return self._tended(self._searched.write_back())

    def index(self, version: str | None = None) -> ManagedIndex:
        """The index of a version's vectors: create it, look at it, refresh it, drop it.

        Args:
            version: The active one by default.

        Raises:
            UnknownVersion: There is no such version.

        Examples:
            >>> gallery.index().status().kind
            ''
        """
        registry = self._catalog.registry()
        return ManagedIndex(self._catalog, registry.record(version or registry.active).name)

    def create_index(
        self,
        version: str | None = None,
        *,
        kind: str = "IVF_PQ",
        num_partitions: int | None = None,
        num_sub_vectors: int | None = None,
    ) -> VectorIndex:
        """Index a version's vectors: `index(version).create(...)`, which says more, without its progress.

        Args:
            version: The active one by default.
            kind: IVF_FLAT, IVF_PQ, IVF_SQ, IVF_HNSW_FLAT, IVF_HNSW_PQ or IVF_HNSW_SQ.
            num_partitions: Cells; by default the square root of the number of vectors, 4,096 at the most, and with
                product quantisation one for 256 vectors at the most.
            num_sub_vectors: Parts of product quantisation; a part for every 8 values by default.

        Raises:
            InvalidInput: There are too few vectors, or the kind is unknown.
            LeaseHeld: Somebody else works on this index.

        Examples:
            >>> many = np.random.default_rng(0).standard_normal((300, 2))
            >>> gallery.add({"id": [f"more-{n}" for n in range(300)], "vector": many}).rows
            300
            >>> gallery.create_index(kind="IVF_FLAT", num_partitions=4).kind
            'IVF_FLAT'
        """
        built = self.index(version).create(kind=kind, num_partitions=num_partitions, num_sub_vectors=num_sub_vectors)
        return VectorIndex(built.kind, built.metric, built.cells, built.sub_vectors)

    def cache(
        self, version: str | None = None, *, max_bytes: int | None = None, settings: CacheSettings | None = None
    ) -> Cache:
        """Keep a version's vectors in memory, in a graph (HNSW) that finds nearly all of the nearest items fast.

        It follows the table: each search sees what was committed before, by whatever process. Needs `faiss-cpu`:
        `pip install "compatstore[faiss]"`. `cache_size` says beforehand what it takes.

        Args:
            version: The active one by default.
            max_bytes: Memory that it may take, now and as the gallery grows; None for any.
            settings: How the graph is built and searched.

        Returns:
            The cache; a context manager that gives the memory back.

        Raises:
            UnknownVersion: There is no such version, or nothing to search with its queries.
            InvalidInput: It would take more than `max_bytes`; nothing was built.
            MissingExtra: FAISS is not installed.

        Examples:
            >>> with gallery.cache("v1", max_bytes=10**6) as cache:
            ...     cache.search([0.1, 1.2], k=2, columns=["id"])["id"].to_pylist()
            ['a', 'd']
        """
        name = version or self._catalog.recorded().active
        return Cache(self._catalog, name, max_bytes, settings or CacheSettings())

    def cache_size(self, version: str | None = None, *, settings: CacheSettings | None = None) -> CacheSize:
        """What `cache` with the same arguments would take in memory; read-only, no vector is read.

        Raises:
            UnknownVersion: There is no such version, or nothing to search with its queries.

        Examples:
            >>> gallery.cache_size().rows
            6
        """
        return cache_size(self._catalog, version or self._catalog.recorded().active, settings or CacheSettings())

    # ---- versions and artifacts

    def encoder(self, version: str | None = None) -> Encoder | None:
        """The encoder of a version: handed over, stored beside the table, or built from its spec; None without one.

        Args:
            version: The active one by default.

        Raises:
            UnknownVersion: There is no such version.
            Incompatible: The gallery names Python code or an address, and code is not trusted.
            FingerprintMismatch: What the spec builds is not what the version was registered with.

        Examples:
            >>> gallery.encoder("v1") is None, gallery.encoder("v2").dim
            (True, 2)
        """
        return self._catalog.encoder(version or self._catalog.recorded().active)

    def register(self, version: EmbeddingVersion) -> None:
        """Make a version known; its vectors come with an upgrade.

        A version of a model whose vectors the gallery has, stored as another type or of another metric on unit vectors,
        is recognised: the upgrade copies vectors and calls no encoder, as after `derive`.

        Raises:
            AlreadyExists: There is a version of that name.
            InvalidInput: A column of that name is the user's own.

        Examples:
            >>> gallery.register(cs.EmbeddingVersion("v3", dim=4, model="model-3"))
            >>> gallery.versions()
            ('v1', 'v2', 'v3')
        """
        self._catalog.require_new(version.name)
        record = self._catalog.add_version(version)
        snapshot = self._catalog.store.snapshot()
        source = source_of(self._catalog.registry(snapshot), record)
        if source is not None:
            with suppress(InvalidInput):  # vectors of other lengths are embedded again, as another model's
                require_unit(snapshot, source, record)
                self._register_derived(source, record)
                return

        def change(registry: Registry) -> Registry:
            require_unregistered(registry, version.name)
            return registry.with_version(record)

        edit(self._catalog.store, change, HistoryEntry("register", version.name, note=f"dim {version.dim}"))

    def derive(
        self,
        name: str,
        *,
        of: str | None = None,
        dim: int | None = None,
        metric: Metric | None = None,
        normalised: bool | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Register a version whose vectors are computed of another version's, without a model and without learning.

        `upgrade` then makes all its vectors from what the table holds. What is derived of a native vector is native.
        The version's encoder is that of `of`, followed by the same steps, with the same bits.

        Args:
            name: The new version's name.
            of: The version that it is derived of; the active one by default.
            dim: Values to keep, the first ones: what a Matryoshka model was trained for.
            metric: Another metric. Unless vectors are scaled to unit length, all must have unit length by themselves:
                there l2, cosine and dot rank alike.
            normalised: Scale vectors to unit length. What is cut off a normalised version is scaled by default.
            dtype: How vectors are stored: "float32", "float16", or "bits", of each value the sign.

        Raises:
            UnknownVersion: There is no such version to derive of, or the table has no vectors of it.
            AlreadyExists: There is a version of that name.
            DimensionMismatch: It is to be longer than the version that it is derived of.
            InvalidInput: Nothing would change, or vectors are not of unit length and are to be compared by another
                metric.

        Examples:
            >>> gallery.derive("v1_unit", metric="cosine", normalised=True)
            >>> gallery.upgrade("v1_unit").state
            'ready'
            >>> gallery.vectors(["f"], "v1_unit").tolist()
            [[0.0, 1.0]]
        """
        self._catalog.require_new(name)
        snapshot = self._catalog.store.snapshot()
        registry = self._registry_with(of, snapshot)
        source = registry.record(of or registry.active)
        registry.columns(source.name)
        record = derive_version(source, name, dim=dim, metric=metric, normalised=normalised, dtype=dtype)
        require_unit(snapshot, source, record)
        self._register_derived(source, record)

    def _register_derived(self, source: VersionRecord, record: VersionRecord) -> None:
        """Record a version and the artifact that derives it, in one commit."""
        artifact = derivation_artifact(source, record)
        linked = self._catalog.add_artifact(artifact, source.name, record.name)

        def change(registry: Registry) -> Registry:
            require_unregistered(registry, record.name)
            return registry.with_version(record).with_artifact(linked)

        note = f"dim {record.dim}, derived of {source.name}: {artifact.manifest.method}"
        edit(self._catalog.store, change, HistoryEntry("register", record.name, artifact=artifact.id, note=note))

    def link(self, artifact: Artifact | Any, source: str | None = None, target: str | None = None) -> str:
        """Attach an artifact to two versions, after checking that it is made for them.

        Args:
            artifact: An artifact, or the path of one.
            source: Version upgraded from; by default the one whose fingerprint the artifact carries.
            target: Version upgraded to; by default the one whose fingerprint the artifact carries.

        Returns:
            The artifact's id.

        Raises:
            WrongDirection: It was made for the other direction.
            FingerprintMismatch: It belongs to another model.
            DimensionMismatch: Its dimensions are not the versions'.
            CorruptArtifact: Its files are truncated or edited.

        Examples:
            >>> gallery.link(h) == h.id
            True
        """
        if not isinstance(artifact, Artifact | str | PathLike):
            raise InvalidInput("link an artifact", expected="an artifact, or the path of one", found=shown(artifact))
        loaded = artifact if isinstance(artifact, Artifact) else Artifact.load(artifact)
        source = source or self._catalog.version_of(loaded.manifest.source, "source")
        target = target or self._catalog.version_of(loaded.manifest.target, "target")
        loaded.check(self._catalog.version(source), self._catalog.version(target))
        if loaded.behaviour.exact:
            require_derived(self._catalog.recorded().record(source), self._catalog.recorded().record(target))
        record = self._catalog.add_artifact(loaded, source, target)  # puts lost files of a linked one back, too
        if loaded.id in self._catalog.registry().artifacts:
            return loaded.id
        note = f"{loaded.manifest.method or loaded.kind} {source} -> {target}"
        figures = {name: float(x) for name, x in loaded.manifest.figures.items() if isinstance(x, int | float)}
        entry = HistoryEntry("link", target, artifact=loaded.id, note=note, source=source, figures=figures)
        edit(self._catalog.store, lambda registry: registry.with_artifact(record), entry)
        return loaded.id

    def version(self, name: str | None = None, *, encoders: bool = True) -> EmbeddingVersion:
        """A version of the gallery (the active one by default), with its encoders where they can be had.

        Args:
            name: The active one by default.
            encoders: Whether to build its encoders; without them nothing is loaded, and code is not asked for.

        Examples:
            >>> gallery.version("v2").dim
            2
            >>> gallery.version("v1", encoders=False).identity
            'model-1'
        """
        registry = self._catalog.registry()
        record = registry.record(name or registry.active)
        if not encoders:
            return record.version()
        return record.version(self._catalog.encoder(record.name), self._catalog.side_encoder(record.name))

    def versions(self) -> tuple[str, ...]:
        """Names of all versions, in order of registration.

        Examples:
            >>> gallery.versions()
            ('v1', 'v2')
        """
        return tuple(self._catalog.recorded().versions)

    @property
    def active(self) -> str:
        """Name of the version that searches use.

        Examples:
            >>> gallery.active
            'v1'
        """
        return self._catalog.recorded().active

    def artifacts(self) -> tuple[ArtifactRecord, ...]:
        """All linked artifacts, in order of linking.

        Examples:
            >>> [artifact.target for artifact in gallery.artifacts()]
            ['v2']
        """
        return tuple(self._catalog.recorded().artifacts.values())

    @property
    def id_column(self) -> str:
        """Column of the ids: "id", or what it is called in an adopted table.

        Examples:
            >>> gallery.id_column
            'id'
        """
        return self._catalog.recorded().id_column

    @property
    def source_column(self) -> str | None:
        """Column of the sources: "source", or what it is called in an adopted table; None where that has none.

        Examples:
            >>> gallery.source_column
            'source'
        """
        return self._catalog.recorded().source_column

    @property
    def id_type(self) -> str:
        """Type of the ids, "string" or "int64".

        Examples:
            >>> gallery.id_type
            'string'
        """
        return self._catalog.recorded().id_type

    def native_ids(self, *versions: str) -> list[Any]:
        """Ids of the items whose vectors are native in all of these versions; of all items where none is named.

        Raises:
            UnknownVersion: The gallery keeps no vectors of one of them.

        Examples:
            >>> gallery.native_ids("v1")
            ['a', 'b', 'c', 'd', 'e', 'f']
        """
        registry = self._catalog.registry()
        condition = " AND ".join(f"({registry.columns(version).native})" for version in versions)
        found = self._catalog.store.scan([registry.id_column], condition or None)
        return list(found.column(registry.id_column).to_pylist())

    # ---- upgrades

    def plan(
        self,
        target: str,
        *,
        via: str | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | Refitter | None = LEARN,
        run: RunSettings | None = None,
    ) -> Plan:
        """What `upgrade` with the same arguments would do and cost, and what it is expected to give; read-only.

        Gates ask for an estimate: a sample is embedded natively and not kept. Whether the gates are passed is said by
        the plan's `estimate.passed`; `upgrade` refuses to run where they are not.

        Args:
            target: A registered version.
            via: Id of the artifact to use (its first digits do), where several lead there.
            backfill: Share of the gallery to embed natively, from 0 to 1, or a whole request.
            gates: What the upgrade must be sure to reach, and the sample that tells.
            learn: What is learned from what the backfill embeds.
            run: Of it the plan uses the precision.

        Raises:
            UnknownVersion: There is no such version.
            UnknownArtifact: No artifact leads there.
            InvalidInput: A setting is out of its range.

        Examples:
            >>> [(step.name, step.rows) for step in gallery.plan("v2", backfill=0.5).steps]
            [('expand', 0), ('hop', 6), ('backfill', 3), ('catch-up', 0), ('cutover', 0)]
        """
        request, asked = _requested(backfill, gates)
        precision = (run or RunSettings()).precision
        learner, refit = _learning(learn)
        holdout = None if refit is None else refit.holdout
        context = resolve_run(self._catalog, target, via=via, backfill=request, holdout=holdout, learner=learner)
        if not asked.asked or context.run.teaches:  # nothing is known before there is something to learn from
            return make_plan(context, precision)
        estimate = estimate_upgrade(context, asked)
        if asked.target_quality is not None:
            context = context.with_run(replace(context.run, backfill=estimate.share))
            estimate = replace(estimate, gates=(*estimate.gates, *gate_of_reach(context, estimate)))
        return replace(make_plan(context, precision), estimate=estimate)

    def evaluate(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        sample: int = 2000,
        criterion: Criterion = "map",
        shares: Sequence[float] = (0.1, 0.25, 0.5),
        via: str | None = None,
        order: str | None = None,
        seed: int = 0,
    ) -> DecisionTable:
        """Measure on a sample what an upgrade gains, with intervals; read-only.

        The ways that are measured: status quo, naive swap, merges, hop alone, backfills, full backfill.

        Args:
            target: A registered version.
            labels: Column that says which items are correct for each other; or `Queries`: the app's own queries ask in
                place of items. Without either, what the target itself finds is taken as correct.
            sample: Items to look at; those that are not native in the target yet are embedded, and not kept.
            criterion: The figure that decides: "map", or "cmc@1" or "cmc@5" of the ways that need no backfill; with
                judgements also "recall@10", "ndcg@10" or "mrr@10".
            shares: Budgets of the backfill to show, in (0, 1), beside the one that is advised: more are compared.
            via: Id of the artifact to use.
            order: Order of the backfill, as in `Backfill`.
            seed: Of the sample and of the bootstrap.

        Raises:
            UnknownVersion: There is no such version.
            UnknownArtifact: No artifact leads there.
            UpgradeError: Too few items can be embedded natively.
            InvalidInput: A setting is out of its range.

        Examples:
            >>> many = {f"more-{n}": row for n, row in enumerate(np.random.default_rng(0).standard_normal((100, 2)))}
            >>> lookup = cs.encoders.Precomputed({name: row[::-1] for name, row in many.items()})
            >>> sampled = cs.Gallery.create("many.lance", v1)
            >>> sampled.add({"id": list(many), "vector": list(many.values())}).rows
            100
            >>> sampled.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=lookup))
            >>> vectors = np.array(list(many.values()), np.float32)
            >>> pairs = Pairs(vectors, vectors[:, ::-1], source_version=v1, target_version=sampled.version("v2"))
            >>> _ = sampled.link(Procrustes().fit(pairs).having_seen(np.array([], np.uint64)))
            >>> sampled.evaluate("v2", sample=100).rows[0].name
            'status quo'
        """
        context = resolve_run(self._catalog, target, via=via, backfill=Backfill(order=order))
        settings = SampleSettings(sample=sample, labels=labels, criterion=criterion, shares=tuple(shares), seed=seed)
        return try_upgrade(context, settings).showing(settings.shares)

    def upgrade(
        self,
        target: str,
        *,
        via: str | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | Refitter | None = LEARN,
        run: RunSettings | None = None,
        progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> UpgradeResult:
        """Give every item a vector in the target version, without touching the source's.

        Hop by the linked artifact, embed a share natively, and wait for `cutover`. The same call again continues a
        stopped or killed one; when all is done it does nothing.

        Args:
            target: A registered version.
            via: Id of the artifact to use (its first digits do), where several lead there.
            backfill: Share of the gallery to embed natively, from 0 to 1, or `Backfill` with other limits, the order
                and the write mode. What a call does not name stays as an earlier call of the upgrade named it.
            gates: What the upgrade must be sure to reach: `Gates(target_quality=0.98)` takes the smallest backfill that
                does. The estimate is made from a sample before anything is written. `Gates(serving="fused")` estimates
                both versions searched as one, and serves the upgrade so when it is ready.
            learn: What is learned from what the backfill embeds. `Learn()`: where no artifact leads to the target and
                the target has an encoder, the upgrade teaches itself. It embeds a random sample, learns from it, judges
                what would be served, hops, and goes on in waves until the budget or the target quality is reached;
                without any limit it embeds the first sample alone. Searches use both versions as one once that is sure
                to be better. `trainers.Refit()`: where there is an artifact, it is corrected; where held-out rows come
                nearer to their natives, the remaining rows are hopped again. None: nothing, and an upgrade without an
                artifact is refused.
            run: Device and precision of the hop; batches, retries and pace of the backfill.
            progress: Called after each batch.
            should_stop: Asked before each batch.

        Raises:
            UnknownVersion: There is no such version.
            UnknownArtifact: No artifact leads there.
            InvalidInput: A setting is out of its range, or both a share and a target quality are named.
            UpgradeError: The target has no encoder for the backfill.
            GateFailed: The estimate does not pass, or nothing beats the status quo; nothing was written.
            EncoderFailed: The encoder hangs, or embeds nothing at all.
            LeaseHeld: Somebody else works on this upgrade.
            LeaseLost: Somebody else took it over, because this process was suspended or cut off for long.
            Interrupted: `should_stop` said so, or somebody asked for a pause.

        Examples:
            >>> report = gallery.upgrade("v2", backfill=0.5)
            >>> report.state, report.transformed, report.backfilled
            ('ready', 6, 3)
        """
        request, asked = _requested(backfill, gates)
        learner, refit = _learning(learn)
        holdout = None if refit is None else refit.holdout
        resolved = partial(resolve_run, target=target, via=via, holdout=holdout, learner=learner)
        planned = resolved(self._catalog, backfill=request)  # refuses what cannot be before anything is written
        require_startable(planned, asked)
        estimate = agree(planned, asked) if asked.asked and not planned.run.teaches else None
        if estimate is not None and asked.target_quality is not None:
            require_within_reach(planned, estimate)
            request = replace(request, share=estimate.share)
        with hold_lease(self._catalog, target, "upgrade", progress, should_stop) as work:
            controls = Controls(work.progress, work.should_stop, run or RunSettings(), refit, learner, asked)
            if estimate is not None:
                save_estimate(work.catalog, target, estimate)
            report = run_upgrade(resolved(work.catalog, backfill=request), controls)
            if not planned.run.teaches:
                fuse_as_asked(work.catalog, target, asked)
            follow_parts(work.catalog, target)
        return self._tended(report)

    def cutover(
        self,
        target: str,
        *,
        force: bool = False,
        serving: searching.Serving | None = None,
        progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> VersionChange:
        """Make an upgrade's target the active version; atomic. See `check_cutover` for the question alone.

        Args:
            target: The upgrade's target.
            force: Do so while rows have no vector in it; searches will not find them.
            serving: "fused": searches use both versions as one, as `fuse` has chosen. "single": they use the target
                alone. By default they go on as before the cutover.
            progress: Called after each batch of what is caught up with.
            should_stop: Asked before each batch, until the switch.

        Raises:
            UpgradeError: The upgrade is not ready, or it is to be fused and no fusion was chosen.
            LeaseHeld: Somebody works on it.
            RowsMissing: Rows have no vector in the target, and `force` is false.
            Interrupted: `should_stop` said so, or somebody asked for a pause; nothing was switched.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> gallery.cutover("v2").active
            'v2'
        """
        controls = Controls(progress, should_stop)
        return self._tended(cut_over(self._catalog, target, force=force, serving=serving, controls=controls))

    def check_cutover(self, target: str) -> int:
        """How many rows stand in the way of a cutover; read-only.

        Raises:
            UpgradeError: The upgrade is not ready.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> gallery.check_cutover("v2")
            0
        """
        return check_cutover(self._catalog, target)

    def pause(self, target: str, *, wait: float = 60.0) -> Paused:
        """Ask whoever works on an upgrade, in whatever process, to finish the batch and stop; `upgrade` goes on.

        Args:
            target: The upgrade's target.
            wait: Seconds to wait until they have stopped; what was asked for stands after that too.

        Raises:
            UnknownVersion: There is no such version.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> gallery.pause("v2", wait=0).stopped
            True
        """
        return pause(self._catalog, target, wait=wait)

    def abort(self, target: str, *, wait: float = 60.0) -> VersionChange:
        """End an upgrade that has not cut over and drop the target's vectors; the version stays registered.

        Args:
            target: The upgrade's target.
            wait: Seconds to give whoever works on it for finishing their batch.

        Raises:
            UpgradeError: There is none, it has cut over, or items have a vector in the target only.
            LeaseHeld: Whoever works on it did not stop in time.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> "v2" in gallery.abort("v2").dropped
            True
        """
        return self._tended(abort(self._catalog, target, wait=wait))

    def rollback(self, target: str | None = None) -> VersionChange:
        """Go back to the version before an upgrade; atomic, nothing is dropped, rows written since stay.

        Raises:
            UpgradeError: There is nothing to roll back.

        Examples:
            >>> _ = gallery.upgrade("v2"), gallery.cutover("v2")
            >>> gallery.rollback().active
            'v1'
        """
        return self._tended(roll_back(self._catalog, target))

    def retire(self, version: str, *, drop_adopted: bool = False, force: bool = False) -> VersionChange:
        """Drop a version's vectors for good; with an upgrade's target before its cutover, abandon that upgrade.

        What came or changed since the cutover is caught up with first. Apps that still write this version's vectors
        behind the gallery's back must stop before: from here on nothing would notice.

        Raises:
            UpgradeError: The version is active, or an upgrade reads it.
            RowsMissing: Items have a vector in this version only, and `force` is false.

        Examples:
            >>> _ = gallery.upgrade("v2"), gallery.cutover("v2")
            >>> "v1" in gallery.retire("v1").dropped
            True
        """
        return self._tended(retire(self._catalog, version, drop_adopted=drop_adopted, force=force))

    def fuse(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        criterion: Criterion = "map",
        sample: int = 1000,
        weight: float | None = None,
        seed: int = 0,
    ) -> Fusion | Merge:
        """Choose how an upgrade is served by both of its versions as one, on a sample, and store it.

        From then on `search` serves a source, and queries in both versions, by the fusion, before and after the
        cutover, until the source is retired. Where no weight is surely better than the status quo, the weight is 0 and
        searches go on as before. Weights for larger native shares are chosen too: a later `upgrade` that backfills
        takes the one for the share that it has reached. It costs two embeddings and two searches for a query.

        In an upgrade without a hop each item is searched in one space, native ones in the target's. Then a merge of the
        two lists is chosen, by distance, by calibrated distance or by reciprocal rank, and every search of both spaces
        uses it. Where an artifact adapts the target's queries to the source, a query of the target is enough.

        Args:
            target: The target of an upgrade under way.
            labels: Column that says which items are correct for each other; or `Queries`: the app's own queries ask in
                place of items. Without either, what the target itself finds is taken as correct.
            criterion: The figure that decides: "map"; or of a sample that is the whole gallery "cmc@1" or "cmc@5", and
                with judgements "recall@10", "ndcg@10" or "mrr@10".
            sample: Items to look at; those that are not native in the target yet are embedded, and not kept.
            weight: Weight of the target's distances, from 0 to 1: the sample gives what makes the distances comparable,
                and what that weight gains. Not without a hop.
            seed: Of the sample and of the bootstrap.

        Returns:
            The fusion that is stored, with its choices, or without a hop the merge.

        Raises:
            UnknownVersion: There is no such version.
            UpgradeError: No upgrade to it is under way, or too few items can be embedded natively.
            InvalidInput: A setting is out of its range, or there is no such column of labels.

        Examples:
            >>> many = {f"more-{n}": row for n, row in enumerate(np.random.default_rng(0).standard_normal((100, 2)))}
            >>> lookup = cs.encoders.Precomputed({name: row[::-1] for name, row in many.items()})
            >>> sampled = cs.Gallery.create("fused.lance", v1)
            >>> sampled.add({"id": list(many), "vector": list(many.values())}).rows
            100
            >>> sampled.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=lookup))
            >>> vectors = np.array(list(many.values()), np.float32)
            >>> pairs = Pairs(vectors, vectors[:, ::-1], source_version=v1, target_version=sampled.version("v2"))
            >>> _ = sampled.link(Procrustes().fit(pairs).having_seen(np.array([], np.uint64)))
            >>> _ = sampled.upgrade("v2")
            >>> sampled.fuse("v2", weight=0.5, sample=100).weight
            0.5
            >>> sampled.search({"v1": [0.0, 1.0], "v2": [1.0, 0.0]}, k=3).num_rows
            3
        """
        context = fusable(self._catalog, target)
        settings = SampleSettings(sample=sample, labels=labels, criterion=criterion, seed=seed)
        if context.run.path:
            fusion = choose_fusion(context, settings, weight)
            save_fusion(self._catalog, context.run, fusion, column_of(labels))
            return fusion
        if weight is not None:
            asked = f"weigh {context.run.source} and {target}"
            raise InvalidInput(asked, expected="an upgrade with a hop", found="one that transforms nothing")
        merge = choose_merge(context, settings)
        save_merge(self._catalog, context.run, merge, column_of(labels))
        return merge

    def unbackfillable(self, target: str) -> Any:
        """Items that the upgrade to a target could not embed natively: Arrow table with `id` and `reason`; read-only.

        An item leaves the list when it is embedded, deleted or given another source.

        Raises:
            UnknownVersion: There is no such version.

        Examples:
            >>> _ = gallery.add({"id": ["g"], "vector": [[4.0, 4.0]]})  # the encoder of v2 has no vector of it
            >>> _ = gallery.upgrade("v2", backfill=1.0)
            >>> gallery.unbackfillable("v2")["id"].to_pylist()
            ['g']
        """
        return unbackfillable(self._catalog, target)

    def status(self) -> Status:
        """Versions with their native, transformed and missing rows, and upgrades with their states; read-only.

        Examples:
            >>> [(version.name, version.native, version.missing) for version in gallery.status().versions]
            [('v1', 6, 0), ('v2', 0, 6)]
        """
        return read_status(self._catalog)

    def history(self) -> list[HistoryEntry]:
        """All steps so far, oldest first; read-only.

        Examples:
            >>> [entry.step for entry in gallery.history()]
            ['create', 'register', 'link']
        """
        return registry_module.history(self._catalog.store)

    def optimize(self, *, adopted: bool = False, grace: float | None = None, dry_run: bool = False) -> Optimized:
        """Merge fragments and parts of indexes, and remove what nothing needs.

        That is: old table versions but for those that tags pin, deleted rows, the data of dropped columns, files that
        killed writes left, and blobs, accounts and staged natives of versions that are gone. A gallery of our own does
        a part of this by itself after a write. Apps may search and write meanwhile.

        Args:
            adopted: Do it to the table of an app too; else only what lies beside it is looked after.
            grace: Seconds that a table version stays for its readers after it was superseded: 5 by default, which the
                call waits, and 7 days in an adopted table. A handle of Lance or LanceDB that stays on an older version
                does not find its files any more.
            dry_run: Say what there is to do, and do nothing.

        Returns:
            Fragments, parts of indexes, versions, files and bytes before and after, and what was removed.

        Raises:
            InvalidInput: The grace is negative or no number.
            LeaseHeld: Somebody works on an upgrade or an index, or optimises; what is finished by then stays.
            StorageError: The table cannot be written.
            CorruptArtifact: A page of the history is gone, so it is not known which files are needed.

        Examples:
            >>> gallery.optimize(dry_run=True).dry_run
            True
        """
        return optimize(self._catalog, adopted=adopted, grace=grace, dry_run=dry_run)

    def unregister(self, version: str) -> None:
        """Forget a version that nothing uses; its files go with the next `optimize`.

        Raises:
            UnknownVersion: There is no such version.
            UpgradeError: It is active or has vectors, or an upgrade under way or an artifact names it.

        Examples:
            >>> _ = gallery.unlink(h.id)
            >>> gallery.unregister("v2")
            >>> gallery.versions()
            ('v1',)
        """
        unregister(self._catalog, version)

    def unlink(self, artifact: str) -> str:
        """Forget an artifact that nothing uses; its files go with the next `optimize`.

        Args:
            artifact: Its id, or the first digits of it.

        Returns:
            Its id.

        Raises:
            UnknownArtifact: None is linked that has this id.
            UpgradeError: An upgrade under way applies it, vectors were made by it, or searches use it.

        Examples:
            >>> gallery.unlink(h.short_id) == h.id
            True
        """
        return unlink(self._catalog, artifact)

    def verify(self) -> Verification:
        """Check table, registry, artifacts, tags and indexes against each other; read-only, in bounded memory.

        Returns:
            What was found, each with its repair; `clean` where there is nothing but notes.

        Examples:
            >>> gallery.verify().clean
            True
        """
        return verify(self._catalog)

    def report(
        self,
        target: str | None = None,
        *,
        sample: int | None = None,
        labels: str | Queries | None = None,
        criterion: Criterion = "map",
        measure: bool = True,
        details: Details | None = None,
    ) -> UpgradeReport:
        """All there is to say of an upgrade, with what was estimated beside what is measured; read-only.

        The measurement is made on items that the estimate has not seen; those that are not native are embedded, and
        not kept.

        Args:
            target: The upgrade's target; of the last upgrade by default.
            sample: Items to measure with; by default as many as the estimate had, and none where there was none.
            labels: Column of labels, where `sample` is named; or `Queries`: the app's own queries ask in place of
                items.
            criterion: The figure that decides, where `sample` or queries are named.
            measure: Whether to measure at all.
            details: What to tell query by query, such as the queries that lose most; nothing where it is None.

        Raises:
            UnknownVersion: There was no such upgrade.
            UpgradeError: Too few items can be measured with.
            InvalidInput: There is no such column.

        Examples:
            >>> _ = gallery.upgrade("v2")
            >>> gallery.report("v2", measure=False).target
            'v2'
        """
        asked = Gates(sample=sample, labels=labels, criterion=criterion)
        if details is not None:
            require_columns(details, self._catalog.store.snapshot().schema.names)
        seen = None if details is None else partial(details_of, details=details, search=self.search)
        return report_upgrade(self._catalog, target, asked, measure=measure, details=seen)

    # ---- for async apps, each in a thread: see `asynchronous.py`

    add_async = awaited(add)
    update_async = awaited(update)
    delete_async = awaited(delete)
    drop_columns_async = awaited(drop_columns)
    get_async = awaited(get)
    scan_async = awaited(scan)
    count_async = awaited(count)
    vector_column_async = awaited(vector_column)
    vectors_async = awaited(vectors)
    side_information_async = awaited(side_information)
    search_async = awaited(search)
    explain_async = awaited(explain)
    write_back_async = awaited(write_back)
    index_async = awaited(index)
    create_index_async = awaited(create_index)
    cache_async = awaited(cache)
    cache_size_async = awaited(cache_size)
    encoder_async = awaited(encoder)
    register_async = awaited(register)
    derive_async = awaited(derive)
    link_async = awaited(link)
    version_async = awaited(version)
    versions_async = awaited(versions)
    artifacts_async = awaited(artifacts)
    native_ids_async = awaited(native_ids)
    plan_async = awaited(plan)
    evaluate_async = awaited(evaluate)
    upgrade_async = awaited(upgrade)
    cutover_async = awaited(cutover)
    check_cutover_async = awaited(check_cutover)
    pause_async = awaited(pause)
    abort_async = awaited(abort)
    rollback_async = awaited(rollback)
    retire_async = awaited(retire)
    fuse_async = awaited(fuse)
    unbackfillable_async = awaited(unbackfillable)
    status_async = awaited(status)
    history_async = awaited(history)
    optimize_async = awaited(optimize)
    unregister_async = awaited(unregister)
    unlink_async = awaited(unlink)
    verify_async = awaited(verify)
    report_async = awaited(report)

    # ---- inside

    def _search_cascade(
        self,
        registry: Registry,
        snapshot: Any,
        plan: searching.CascadePlan,
        queries: Mapping[str, FloatArray],
        columns: Sequence[str],
    ) -> Any:
        """Search by a cascade, and have what it embedded written beside the searches once it is worth a commit."""
        asked = plan.cascade
        budget = SearchBudget(per_query=asked.per_query, in_all=asked.in_all, write_back=asked.write_back)

        def embed(found: searching.Candidates) -> FloatArray:
            return self._searched.embed(registry, plan.run, found.rows, found.queries, found.native, budget)

        result = searching.search_cascade(self._catalog, snapshot, plan, queries, columns, embed)
        if self._searched.due and (self._writing is None or self._writing.done()):
            self._writing = _beside().submit(self._write_back_quietly)
        return result

    def _write_back_quietly(self) -> None:
        """Write what waits; where it cannot be written now, it waits for a later search."""
        with suppress(CompatStoreError):
            self.write_back()

    def _tended(self, result: Result) -> Result:
        """What a call that writes gives, after the upkeep that it brings about."""
        tend(self._catalog, count=True)
        return result

    def _registry_with(self, version: str | None, snapshot: Any = None) -> Registry:
        """The registry of a table that has the columns of the items and of a version, the active one by default."""
        snapshot = snapshot or self._catalog.store.snapshot()
        registry = self._catalog.recorded(snapshot)
        self._catalog.require(snapshot, version or registry.active)
        return registry

    def _plan_search(
        self,
        registry: Registry,
        query: Any,
        k: int,
        version: str | None,
        where: str | Sequence[str] | None,
        serving: searching.Serving | Cascade | None,
        settings: SearchSettings | None,
    ) -> searching.QueryPlan:
        searching.require_count(k)
        plan: searching.QueryPlan
        if isinstance(serving, Cascade):
            plan = searching.plan_cascade(self._catalog, registry, query, k, version, where, serving)
        else:
            plan = searching.plan_serving(self._catalog, registry, query, k, version, where, serving)
        return plan if settings is None else plan.using(settings)


@cache
def _beside() -> ThreadPoolExecutor:
    """The thread that writes what searches embedded; a process that ends waits for it."""
    return ThreadPoolExecutor(1, thread_name_prefix="compatstore-write-back")


def _learning(learn: Learn | Refitter | None) -> tuple[Learn | None, Refitter | None]:
    """What teaches an upgrade without an artifact, and what corrects an artifact."""
    return (learn, None) if isinstance(learn, Learn) else (None, learn)


def _requested(backfill: float | Backfill | None, gates: Gates | None) -> tuple[Backfill, Gates]:
    """The requests of a call, whole.

    Raises:
        InvalidInput: Both a share and a target quality are named.
    """
    request = backfill if isinstance(backfill, Backfill) else Backfill(share=backfill)
    asked = gates or Gates()
    if asked.target_quality is not None and request.share is not None:
        raise InvalidInput(
            "choose a backfill",
            expected="a share or a target quality",
            found=f"backfill={request.share:g} and target_quality={asked.target_quality:g}",
        )
    return request, asked
