"""A random sample of a gallery, embedded in both versions of an upgrade, and its query items; read-only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowSchema, ArrowTable, BoolArray, Digests, FloatArray, Positions
from compatstore.digests import digest_half
from compatstore.encoders import encode_readable
from compatstore.errors import UpgradeError
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.ids import among, find
from compatstore.storage.registry import bridge_to
from compatstore.upgrade.backfilling.cells import classes_of, random_scores, require_classes
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.asked import (
    MORE_QUERIES,
    SMALLEST_SAMPLE,
    AskedQueries,
    ask,
    found_first,
)
from compatstore.upgrade.progress import Monitor, Progress
from compatstore.upgrade.requests.queries import Queries, column_of
from compatstore.upgrade.transform import transformer_of

EMBED_ROWS = 64  # items that are embedded at once
CERTAIN_PARTS = 3  # of a sample for queries one part is correct for them, one is found first, and one is drawn
ESTIMATE_DRAW, REPORT_DRAW = "estimate", "report"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """n items in random order, of which some are queries.

    Args:
        ids: Arrow array.
        places: (n,) intp, where they stand among the gallery's items that have a vector in the source.
        source: Their vectors, and side-information, in the source.
        served: Their vectors in the target as the table has them now.
        native: (n, dim) float32, embedded with the target's model; rows that are not `embedded` hold anything.
        embedded: (n,) bool, items that have, or could be given, a native vector.
        asks: (n,) bool, items that are queries: embedded, with a label where there are labels, and not learned from.
        classes: (population,) intp, the class of every item of the gallery by place, -1 for none; None without labels.
        population: Items of the gallery that have a vector in the source.
        provenance: Origin of the queries, as a sentence.
        queries: Application queries, used in place of items; None if items are queries.
        drawn: (n,) bool, items that were drawn at random; the others are in every sample. None for all.
    """

    ids: ArrowArray
    places: Positions
    source: VersionValues
    served: VersionValues
    native: FloatArray
    embedded: BoolArray
    asks: BoolArray
    classes: Positions | None
    population: int
    provenance: str
    queries: AskedQueries | None = None
    drawn: BoolArray | None = None

    @property
    def source_queries(self) -> FloatArray:
        """(q, source dim) float32."""
        return self.source.vectors[self.asks] if self.queries is None else self.queries.source

    @property
    def target_queries(self) -> FloatArray:
        """(q, target dim) float32, the same queries."""
        return self.native[self.asks] if self.queries is None else self.queries.target

    @property
    def query_places(self) -> Positions:
        """(q,) intp, the place in the gallery of each query that is an item; -1 for one that is none."""
        return self.places[self.asks] if self.queries is None else self.queries.itself

    @property
    def has_ground_truth(self) -> bool:
        """True if labels or judgements define relevance."""
        return self.classes is not None if self.queries is None else self.queries.judged is not None

    def only(self, rows: BoolArray) -> Sample:
        """Some of the items, (n,) bool, drawn from the same gallery."""
        return replace(
            self,
            ids=self.ids.filter(rows),
            places=self.places[rows],
            source=self.source.take(rows),
            served=self.served.take(rows),
            native=self.native[rows],
            embedded=self.embedded[rows],
            asks=self.asks[rows],
            drawn=None if self.drawn is None else self.drawn[rows],
        )

    def asking(self, queries: BoolArray) -> Sample:
        """The same items, and some of the queries, (q,) bool."""
        if self.queries is not None:
            return replace(self, queries=self.queries.only(np.flatnonzero(queries)))
        asks = self.asks.copy()
        asks[np.flatnonzero(asks)[~queries]] = False
        return replace(self, asks=asks)


def draw_sample(
    context: UpgradeContext,
    size: int,
    *,
    labels: str | Queries | None = None,
    seed: int = 0,
    domain: str = ESTIMATE_DRAW,
    estimated: int = 0,
    embed: bool = True,
    progress: Callable[[Progress], None] | None = None,
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
    ids = everything.column(key).combine_chunks()
    order = np.argsort(-random_scores(ids, domain, seed), kind="stable")
    if isinstance(labels, Queries):
        return _sample_for_queries(context, labels, ids, order, size, seed, progress, embed=embed)
    if estimated:
        before = np.argsort(-random_scores(ids, ESTIMATE_DRAW, seed), kind="stable")[:estimated]
        order = order[~np.isin(order, before)]
    places = order[:size]
    rows = _read(context, ids.take(places))
    classes = None if column is None else classes_of(everything.column(column))
    return _sample(context, rows, places, classes, len(ids), progress)


def _sample_for_queries(
    context: UpgradeContext,
    queries: Queries,
    ids: ArrowArray,
    order: Positions,
    size: int,
    seed: int,
    progress: Callable[[Progress], None] | None,
    *,
    embed: bool,
) -> Sample:
    """Items that application queries search: their correct items, their nearest items, and others at random."""
    complete = size >= len(ids)
    most = len(ids) if complete else size // CERTAIN_PARTS
    query_set = ask(context, queries, ids, seed, most, partial(query_items, context))
    certain = np.zeros(0, np.intp) if complete else _always_sampled(context, query_set, size)
    places = np.concatenate([certain, order[~np.isin(order, certain)][: size - len(certain)]])
    provenance = _provenance_of_queries(query_set, len(places), len(certain), len(ids))
    if len(query_set) < SMALLEST_SAMPLE:
        raise UpgradeError(
            f"try the upgrade to {context.run.target}",
            expected=f"{SMALLEST_SAMPLE} queries",
            found=provenance.removesuffix("."),
            fix=MORE_QUERIES,
        )
    rows = _read(context, ids.take(places))
    usable = np.flatnonzero(_findable(context, context.source.read_items(rows)))
    rows = rows.take(usable)
    served = _served(context.target_record.columns, context.target_record.dim, rows)
    native, embedded = served.vectors.copy(), served.valid & (served.origin == NATIVE)
    if embed:
        native, embedded = _embed(context, rows, served, progress)
    return Sample(
        ids=rows.column(context.registry.id_column).combine_chunks(),
        places=places[usable],
        source=context.source.read_items(rows),
        served=served,
        native=native,
        embedded=embedded,
        asks=np.zeros(len(usable), bool),
        classes=None,
        population=len(ids),
        provenance=provenance,
        queries=query_set,
        drawn=None if complete else np.arange(len(places))[usable] >= len(certain),
    )


def _always_sampled(context: UpgradeContext, query_set: AskedQueries, size: int) -> Positions:
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
    possible = np.flatnonzero(_findable(context, source))
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


def _sample(
    context: UpgradeContext,
    rows: ArrowTable,
    places: Positions,
    classes: Positions | None,
    population: int,
    progress: Callable[[Progress], None] | None,
) -> Sample:
    """Embed the items read, and determine which ones are queries."""
    catalog, run, key = context.catalog, context.run, context.registry.id_column
    source = context.source.read_items(rows)
    usable = np.flatnonzero(_findable(context, source))
    drawn, rows, places, source = len(places), rows.take(usable), places[usable], source.take(usable)
    served = _served(context.target_record.columns, context.target_record.dim, rows)
    native, embedded = _embed(context, rows, served, progress)
    labelled = np.ones(len(places), bool) if classes is None else classes[places] >= 0
    seen, known = learned_from(context, source, rows.column(key))
    asks = embedded & labelled & ~seen
    left_out = {
        "cannot be transformed": drawn - len(places),
        "have no label": int((~labelled).sum()),
        "were learned from by the artifact": int((labelled & seen).sum()),
        "cannot be embedded": int((labelled & ~seen & ~embedded).sum()),
    }
    provenance = _provenance(int(asks.sum()), drawn, population, left_out, known=known)
    if asks.sum() < SMALLEST_SAMPLE:
        encoder = catalog.encoder(run.target)
        raise UpgradeError(
            f"try the upgrade to {run.target}",
            expected=f"{SMALLEST_SAMPLE} queries: items that the artifact was not trained on, with a native vector in "
            f"{run.target}, or an encoder and sources",
            found=provenance.removesuffix(".") + (". There is no encoder" if encoder is None else ""),
            fix=f"Give its model: {next_step.encoder(run.target)}."
            if encoder is None
            else "Take a larger sample, or train on fewer of the gallery's items.",
        )
    return Sample(
        ids=rows.column(key).combine_chunks(),
        places=places,
        source=source,
        served=served,
        native=native,
        embedded=embedded,
        asks=asks,
        classes=classes,
        population=population,
        provenance=provenance,
    )


def _findable(context: UpgradeContext, source: VersionValues) -> BoolArray:
    """(n,) bool, items that get a vector which a search can find, by the hop where there is one."""
    if not context.run.path:
        return source.valid
    transformer = transformer_of(context.catalog, context.run)
    findable = transformer.possible(source)
    findable[findable] = transformer.apply(source.take(findable)).valid
    return findable


def _embed(
    context: UpgradeContext, rows: ArrowTable, served: VersionValues, progress: Callable[[Progress], None] | None = None
) -> tuple[FloatArray, BoolArray]:
    """Native vectors of the rows that have one or can be given one, and which these are."""
    native, known = served.vectors.copy(), served.valid & (served.origin == NATIVE)
    todo = np.flatnonzero(~known)
    registry, encoder = context.registry, context.catalog.encoder(context.run.target)
    column = registry.id_column if encoder is not None and encoder.reads == "id" else registry.source_column
    if encoder is not None and column is not None and len(todo):
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


def _provenance(queries: int, drawn: int, population: int, left_out: Mapping[str, int], *, known: bool) -> str:
    """The origin of the queries, and reasons why they are fewer than the drawn items."""
    reasons = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
    text = f"{queries} queries from {drawn} items drawn of {population}" + (f" ({reasons})." if reasons else ".")
    if not known:
        text += " It is unknown what the artifact was trained on: figures are too good where that is in the sample."
    return text


def _provenance_of_queries(query_set: AskedQueries, items: int, certain: int, population: int) -> str:
    """The origin of the application queries, and the items that they search."""
    reasons = ", ".join(f"{count} {why}" for why, count in query_set.left_out.items() if count)
    text = f"{len(query_set)} application queries against {items} items of {population}"
    if certain:
        text += f", of which {certain} are correct for one or found first, and the others drawn"
    text += f" ({reasons})." if reasons else "."
    if query_set.lacking:
        text += f" {query_set.lacking} items that were judged correct are not in the gallery."
    return text


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
