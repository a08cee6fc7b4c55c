"""A random sample of a gallery, embedded in both versions of an upgrade, and its query items; read-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowSchema, ArrowTable, BoolArray, Digests, FloatArray, Id, Positions
from compatstore.digests import digest_half
from compatstore.encoders import encode_readable
from compatstore.errors import UpgradeError
from compatstore.evaluation.judgements import places_among
from compatstore.evaluation.sample import SampleQueries
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.ids import among, find
from compatstore.storage.registry import bridge_to
from compatstore.upgrade.backfilling.cells import classes_of, random_scores, require_classes
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.queries import MORE_QUERIES, SMALLEST_SAMPLE, ask, found_first
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.requests.queries import Queries, column_of
from compatstore.upgrade.states import run_of
from compatstore.upgrade.transform import transformer_of

EMBED_ROWS = 64  # items that are embedded at once
CERTAIN_PARTS = 3  # of a sample for queries one part is correct for them, one is found first, and one is drawn
UNKNOWN = " It is unknown what the artifact was trained on: figures are too good where that is in the sample."
ESTIMATE_DRAW, REPORT_DRAW = "estimate", "report"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """n items in random order, and the queries that search them.

    Args:
        ids: Arrow array.
        places: (n,) intp, where they stand among the gallery's items that have a vector in the source.
        source: Their vectors, and side-information, in the source.
        served: Their vectors in the target as the table has them now.
        made: Their vectors in the target without a backfill: by the hop, or natives where there is none.
        native: (n, dim) float32, embedded with the target's model; rows that are not `embedded` hold anything.
        embedded: (n,) bool, items that have, or could be given, a native vector.
        queries: Items that are embedded, have a label where there are labels, and were not learned from; or application
            queries.
        classes: (population,) intp, the class of every item of the gallery by place, -1 for none; None without labels.
        population: Items of the gallery that have a vector in the source.
        provenance: Origin of the queries, as a sentence.
        drawn: (n,) bool, items that were drawn at random; the others are in every sample. None for all.
    """

    ids: ArrowArray
    places: Positions
    source: VersionValues
    served: VersionValues
    made: VersionValues
    native: FloatArray
    embedded: BoolArray
    queries: SampleQueries
    classes: Positions | None
    population: int
    provenance: str
    drawn: BoolArray | None = None

    @property
    def has_ground_truth(self) -> bool:
        """True if labels or judgements define relevance."""
        return self.classes is not None or self.queries.judged is not None

    @property
    def is_native(self) -> BoolArray:
        """(n,) bool, items that are native in the table."""
        native: BoolArray = self.served.valid & (self.served.origin == NATIVE)
        return native

    def query_ids(self, rows: Positions) -> list[Id]:
        """Ids of some queries, which are items."""
        return list(self.ids.take(places_among(self.queries.itself[rows], self.places)).to_pylist())

    def only(self, rows: BoolArray) -> Sample:
        """Some of the items, (n,) bool, drawn from the same gallery."""
        places, queries = self.places[rows], self.queries
        return replace(
            self,
            ids=self.ids.filter(rows),
            places=places,
            source=self.source.take(rows),
            served=self.served.take(rows),
            made=self.made.take(rows),
            native=self.native[rows],
            embedded=self.embedded[rows],
            queries=queries if queries.names else queries.only(np.isin(queries.itself, places)),
            drawn=None if self.drawn is None else self.drawn[rows],
        )


def draw_sample(
    context: UpgradeContext,
    size: int,
    *,
    labels: str | Queries | None = None,
    seed: int = 0,
    domain: str = ESTIMATE_DRAW,
    estimated: int = 0,
    embed: bool = True,
    progress: OnProgress = None,
) -> Sample:
    """Draw items at random and embed them natively; the vectors of items that are native in the table are reused.

    The order of the draw depends on ids, domain and seed alone, and is independent of the order of a backfill. So the
    share of native rows in a sample is about that of the gallery, such as 25 %.

    Args:
        context: The upgrade, resolved.
        size: Number of items to draw.
        labels: Column of labels, application queries, or None. Queries replace query items, so those that the
            estimate has drawn may be drawn again.
        seed: Seed of the draw.
        domain: Name of the draw, `ESTIMATE_DRAW` or `REPORT_DRAW`: two names give independent orders.
        estimated: Items that the estimate with the same seed has drawn, such as 2000; these are left out.
        embed: Whether items are embedded for application queries; otherwise items that are not native stay without
            a native vector.
        progress: Called after each batch that is embedded.

    Raises:
        UpgradeError: Too few items can be queries.
        InvalidInput: There is no such column of labels.
    """
    snapshot, key, source = context.snapshot, context.registry.id_column, context.source
    column = column_of(labels)
    require_labels(snapshot.schema, context.run.target, column)
    everything = snapshot.to_table(columns=[key, *([column] if column else [])], filter=source.present)
    ids, queries, certain, provenance = everything.column(key).combine_chunks(), None, np.zeros(0, np.intp), ""
    order, complete = np.argsort(-random_scores(ids, domain, seed), kind="stable"), size >= len(ids)
    if isinstance(labels, Queries):
        most = len(ids) if complete else size // CERTAIN_PARTS
        queries = ask(context, labels, ids, seed, most, partial(query_items, context))
        certain = certain if complete else _always_sampled(context, queries, size)
        among = f", of which {len(certain)} are correct for one or found first, and the others drawn"
        provenance = f"{len(queries)} application queries against {min(size, len(ids))} items of {len(ids)}"
        provenance = _require_enough(context, queries, provenance + among * (len(certain) > 0))
    elif estimated:
        before = np.argsort(-random_scores(ids, ESTIMATE_DRAW, seed), kind="stable")[:estimated]
        order = order[~np.isin(order, before)]
    places = np.concatenate([certain, order[~np.isin(order, certain)][: size - len(certain)]])
    rows = _read(context, ids.take(places))
    values = context.source.read_items(rows)
    made = _made(context, values)
    usable = np.flatnonzero(made.valid)
    rows, values, made = rows.take(usable), values.take(usable), made.take(usable)
    served = _served(context.target_record.columns, context.target_record.dim, rows)
    native, embedded = _embed(context, rows, served, progress, embed=embed or queries is None)
    if not context.run.path:
        made = replace(made, vectors=native, valid=embedded, origin=np.full(len(usable), NATIVE, object))
    classes = None if column is None else classes_of(everything.column(column))
    if queries is None:
        seen, known = learned_from(context, values, rows.column(key))
        every = SampleQueries(source=values.vectors, target=native, itself=places[usable])
        queries = _item_queries(every, classes, seen, embedded, len(places))
        provenance = f"{len(queries)} queries from {len(places)} items drawn of {len(ids)}"
        provenance = _require_enough(context, queries, provenance) + UNKNOWN * (not known)
    return Sample(
        ids=rows.column(key).combine_chunks(),
        places=places[usable],
        source=values,
        served=served,
        made=made,
        native=native,
        embedded=embedded,
        queries=queries,
        classes=classes,
        population=len(ids),
        provenance=provenance,
        drawn=None if complete or not queries.names else usable >= len(certain),
    )


def _item_queries(
    items: SampleQueries, classes: Positions | None, seen: BoolArray, embedded: BoolArray, drawn: int
) -> SampleQueries:
    """Those of some items, of as many as were drawn, that are queries; `seen` are the ones that were learned from."""
    labelled = np.ones(len(items), bool) if classes is None else classes[items.itself] >= 0
    left_out = {
        "cannot be transformed": drawn - len(items),
        "have no label": int((~labelled).sum()),
        "were learned from by the artifact": int((labelled & seen).sum()),
        "cannot be embedded": int((labelled & ~seen & ~embedded).sum()),
    }
    return replace(items, left_out=left_out).only(embedded & labelled & ~seen)


def _require_enough(context: UpgradeContext, queries: SampleQueries, provenance: str) -> str:
    """The whole sentence on the origin of queries; too few are refused.

    Raises:
        UpgradeError: There are too few.
    """
    provenance, run = provenance + queries.provenance, context.run
    if len(queries) >= SMALLEST_SAMPLE:
        return provenance
    expected, found, fix = f"{SMALLEST_SAMPLE} queries", provenance.removesuffix("."), MORE_QUERIES
    if not queries.names:
        expected += f": items that the artifact was not trained on, with a native vector in {run.target}, or an "
        expected += "encoder and sources"
        fix = "Take a larger sample, or train on fewer of the gallery's items."
        if context.catalog.encoder(run.target) is None:
            found, fix = f"{found}. There is no encoder", f"Give its model: {next_step.encoder(run.target)}."
    raise UpgradeError(f"try the upgrade to {run.target}", expected=expected, found=found, fix=fix)


def _always_sampled(context: UpgradeContext, query_set: SampleQueries, size: int) -> Positions:
    """Places that are in every sample of `size`: the correct items of the queries, and their nearest ones.

    Raises:
        UpgradeError: There is no room for others.
    """
    if query_set.judged is None:
        return np.zeros(0, np.intp)
    correct = np.unique(query_set.judged.items)
    if len(correct) > size - SMALLEST_SAMPLE:
        raise UpgradeError(
            f"try the upgrade to {context.run.target}",
            expected=f"a sample of {len(correct) + SMALLEST_SAMPLE} or more: {len(correct)} items are correct for "
            f"{len(query_set)} queries, and others are searched too",
            found=f"{size}",
            fix=f"Take a larger sample: {next_step.option('sample')}.",
        )
    room = min(size // CERTAIN_PARTS, size - len(correct) - SMALLEST_SAMPLE)
    return np.union1d(correct, found_first(context, query_set, room))


def query_items(context: UpgradeContext, ids: ArrowArray) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """Query items in both versions by their ids, which of them have both, and which were learned from."""
    rows = _read(context, ids)
    source, seen = context.source.read_items(rows), np.zeros(rows.num_rows, bool)
    served = _served(context.target_record.columns, context.target_record.dim, rows)
    native, embedded = _embed(context, rows, served)
    possible = np.flatnonzero(_made(context, source).valid)
    seen[possible], _ = learned_from(context, source.take(possible), ids.take(pa.array(possible)))
    return source.vectors, native, embedded, seen


def _read(context: UpgradeContext, ids: ArrowArray) -> ArrowTable:
    """All that is read of chosen items, in their order."""
    snapshot, key, source = context.snapshot, context.registry.id_column, context.source
    target = context.target_record.columns
    extra = [name for name in (context.registry.source_column, source.side) if name]
    columns = list(dict.fromkeys([key, source.vector, *extra, *(target.names if target else [])]))
    parts = [snapshot.to_table(columns=columns, filter=condition) for condition in among(key, ids.to_pylist())]
    rows = pa.concat_tables(parts) if parts else snapshot.to_table(columns=columns, limit=0)
    return rows.take(pc.index_in(ids, value_set=rows.column(key).combine_chunks())).combine_chunks()


def _made(context: UpgradeContext, source: VersionValues) -> VersionValues:
    """Vectors in the target by the hop; valid are the items that a search can find, all of the source without a hop."""
    made = VersionValues.absent(len(source.valid), context.target_record.dim)
    if context.run.path:
        transformer_of(context.catalog, context.run).fill(made, source, source.valid)
        return made
    return replace(made, valid=source.valid)


def _embed(
    context: UpgradeContext,
    rows: ArrowTable,
    served: VersionValues,
    progress: OnProgress = None,
    *,
    embed: bool = True,
) -> tuple[FloatArray, BoolArray]:
    """Native vectors of the rows that have one or can be given one, and which these are."""
    native, known = served.vectors.copy(), served.valid & (served.origin == NATIVE)
    todo = np.flatnonzero(~known)
    registry, encoder = context.registry, context.catalog.encoder(context.run.target)
    column = registry.id_column if encoder is not None and encoder.reads == "id" else registry.source_column
    if embed and encoder is not None and column is not None and len(todo):
        inputs = rows.column(column).take(todo).to_pylist()
        there = [i for i, value in enumerate(inputs) if value is not None]
        monitor = Monitor("sample", len(there), progress)
        monitor.begin()  # the first batch may load the model
        for start in range(0, len(there), EMBED_ROWS):
            batch = there[start : start + EMBED_ROWS]
            encoded = encode_readable(encoder, [inputs[i] for i in batch])
            good = todo[[batch[i] for i in encoded.readable]]
            native[good], known[good] = encoded.vectors, True
            monitor.advance(len(batch))
    return native, known


def _served(columns: VersionColumns | None, dim: int, rows: ArrowTable) -> VersionValues:
    """The target's values as the table has them; none before the upgrade began."""
    if columns is not None:
        return columns.decode(rows)
    return VersionValues.absent(rows.num_rows, dim)


def require_labels(schema: ArrowSchema, target: str, labels: str | None) -> None:
    """Refuse a column that cannot define relevance.

    Raises:
        InvalidInput: There is no such column, or it holds neither text nor whole numbers.
    """
    if labels is None:
        return
    require_classes(f"try the upgrade to {target}", schema, labels)


def learned_from(context: UpgradeContext, source: VersionValues, ids: ArrowArray) -> tuple[BoolArray, bool]:
    """Find the items that the artifacts of a run's path were trained on, by the digests that the artifacts keep.

    The first artifact of a chain has learned from vectors of the source. A later one has from native vectors of the
    version that it reads, or from outputs of the artifacts before it, if it was refitted. Without a path the artifact
    that adapts the target's queries is checked.

    Args:
        context: The upgrade.
        source: The source's values of n items, all of which can be transformed.
        ids: Arrow array of their ids.

    Returns:
        (n,) bool, items that some artifact has learned from, and True if every artifact records what it was trained on.
    """
    seen, known = np.zeros(len(source.valid), bool), True
    transformer = transformer_of(context.catalog, context.run)
    for number, artifact in enumerate(transformer.artifacts):
        if artifact.seen is None:
            known = False
            continue
        read = replace(transformer, artifacts=transformer.artifacts[:number]).apply(source) if number else source
        seen |= np.isin(digest_half(read.vectors), artifact.seen)
        if number:
            natives = _native_seen(context, context.run.path[number], artifact.seen, ids)
            known &= natives is not None
            seen |= False if natives is None else natives
    bridge = bridge_to(context.registry, context.run.target) if not context.run.path else None
    if bridge is not None and bridge.source == context.run.source:
        learned = context.catalog.artifact(bridge.id).seen
        known = learned is not None
        seen |= False if learned is None else np.isin(digest_half(source.vectors), learned)
    return seen, known


def _native_seen(context: UpgradeContext, artifact_id: str, digests: Digests, ids: ArrowArray) -> BoolArray | None:
    """Items whose stored vector in the version that an artifact reads is among digests; None if it is retired."""
    registry, source = context.registry, context.catalog.artifact_record(artifact_id).source
    columns, key = registry.record(source).columns, registry.id_column
    wanted = ids.to_pylist()
    if columns is None:
        return None
    rows = find(context.store, key, wanted, list(dict.fromkeys([key, *columns.names])), context.snapshot)
    values = columns.decode(rows)
    learned = values.valid & np.isin(digest_half(values.vectors), digests)
    found = {item for item, hit in zip(rows.column(key).to_pylist(), learned, strict=True) if hit}
    return np.array([item in found for item in wanted], bool)


def with_vectors(catalog: Catalog, target: str, operation: str, *, filled: bool = False) -> UpgradeContext:
    """The upgrade to a target, whose versions have both columns of vectors; if `filled`, with vectors in them.

    Raises:
        NotFound: There is no such version.
        UpgradeError: No upgrade to it is under way, or one of its versions has no vectors.
    """
    snapshot = catalog.store.snapshot()
    registry = catalog.registry(snapshot)
    registry.record(target)
    run, fix = run_of(registry, target), f"Begin it: {next_step.call('upgrade', target)}"
    if run is None:
        raise UpgradeError(operation, expected="an upgrade under way", found="none", fix=fix)
    context = UpgradeContext.of(catalog, run, snapshot)
    for name in (run.source, target):
        columns = registry.record(name).columns
        if columns is None or (filled and not context.count(columns.present)):
            raise UpgradeError(operation, expected=f"items with a vector in {name}", found="none", fix=fix)
    return context
