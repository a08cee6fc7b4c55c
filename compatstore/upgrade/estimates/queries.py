"""Application queries for an estimate: embedded in both versions, with their correct items in the gallery.

Judgements name few items of a gallery. So these are in every sample, and with them the items that a query finds first
by the strategies that need no more native vectors: items ranked before a correct one are mostly among those. The rest
of the gallery is drawn at random, and each drawn item stands for an equal part of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, BoolArray, FloatArray, Positions
from compatstore.digests import seed_of
from compatstore.encoders import encode_queries
from compatstore.errors import InvalidInput, UpgradeError, first_offenders
from compatstore.evaluation.distances import measure
from compatstore.evaluation.judgements import Judgements
from compatstore.evaluation.query_files import QuerySet
from compatstore.evaluation.sample import SampleQueries
from compatstore.evaluation.whole import Passing
from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.storage.shrinkage import kept_cosines
from compatstore.storage.snapshot import READ_AHEAD
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.transform import transformer_of
from compatstore.versions import Metric

SMALLEST_SAMPLE = 40
MOST_QUERIES = 2_000
DEEPEST = 20  # maximum number of nearest items of a query by one strategy that every sample contains
MORE_QUERIES = "Provide more queries, or relevance judgements for more queries."
_DRAW = "queries"
_BATCH_CELLS, _MOST_ROWS = 2**23, 8192  # of a batch of the gallery


def ask(
    context: UpgradeContext,
    request: Queries,
    ids: ArrowArray,
    seed: int,
    most_correct: int,
    items: Callable[[ArrowArray], tuple[FloatArray, FloatArray, BoolArray, BoolArray]],
) -> SampleQueries:
    """Choose queries, embed them in both versions, and find their correct items.

    Args:
        context: The upgrade.
        request: The queries.
        ids: Arrow array of the ids of the gallery's items that have a vector in the source, by place.
        seed: Seed of the choice, if there are more queries than can be used.
        most_correct: Approximate maximum number of correct items of the chosen queries; further queries are left out.
        items: By ids of m items their vectors in the source and native ones in the target, (m, dim) float32 each, which
            of them have both, and which an artifact of the upgrade has learned from, (m,) bool each.

    Raises:
        UpgradeError: There is no encoder for texts and paths.
        InvalidInput: Vectors are of other versions, or there is no query left. Vectors have another length than those
            of their version.
    """
    queries, learned = request.read, 0
    given = _given(context, queries)  # refuses vectors that do not fit before anything else is looked at
    rows, chosen = _choose(queries, request, pa.compute.cast(ids, pa.string()), seed, most_correct)
    if given is not None:
        source, target = (vectors[rows] for vectors in given)
        embedded = np.ones(len(rows), bool)
    elif queries.sources is not None:
        source, target, embedded = _embed(context, queries, rows)
    else:
        source, target, there, seen = items(ids.take(pa.array(chosen.itself)))
        embedded, learned = there & ~seen, int((there & seen).sum())
    forms = [VectorForm.of(context.registry.record(name)) for name in (context.run.source, context.run.target)]
    searching = embedded & forms[0].searchable(source) & forms[1].searchable(target)
    left_out = {
        **chosen.left_out,
        "were learned from by the artifact": learned,
        "cannot be embedded": int((~searching).sum()) - learned,
    }
    return replace(chosen, source=source, target=target, left_out=left_out).only(searching)


def require_enough(context: UpgradeContext, request: Queries) -> None:
    """Refuse queries that cannot decide anything, before anything is embedded.

    Raises:
        UpgradeError: Too few of them have a correct item in the gallery.
        InvalidInput: None has one, or their vectors are of other versions. Vectors have another length than those of
            their version.
    """
    queries, key = request.read, context.registry.id_column
    _given(context, queries)
    ids = context.snapshot.to_table(columns=[key], filter=context.source.present).column(key).combine_chunks()
    _, chosen = _choose(queries, request, pa.compute.cast(ids, pa.string()), context.run.seed, len(ids))
    if len(chosen) < SMALLEST_SAMPLE:
        raise UpgradeError(
            f"try the upgrade to {context.run.target}",
            expected=f"{SMALLEST_SAMPLE} queries",
            found=f"{len(chosen)} of {len(queries)} for which an item of the gallery is correct",
            fix=MORE_QUERIES,
        )


def found_first(context: UpgradeContext, queries: SampleQueries, room: int) -> Positions:
    """Places of items that queries find first by the ways that need no native vector; at most `room` of them.

    These ways are the status quo, and the hop where there is one. As many ranks count as fit, the same for every query
    and way.

    Args:
        context: The upgrade.
        queries: The queries.
        room: Items, >= 0.
    """
    run = context.run
    metrics = [context.registry.record(name).version().metric for name in (run.source, run.target)]
    nearest = [
        _Nearest(vectors, metric) for vectors, metric in zip((queries.source, queries.target), metrics, strict=True)
    ]
    for batch in read_gallery(context, _BATCH_CELLS // max(len(queries), 1) + 1, served=False):
        nearest[0].take(batch.source[batch.in_source], batch.places[batch.in_source])
        if run.path:
            nearest[1].take(batch.target[batch.in_target], batch.places[batch.in_target])
    chosen = np.zeros(0, np.intp)
    for depth in range(1, DEEPEST + 1):
        deeper = np.unique(np.concatenate([kept.places[:, :depth].ravel() for kept in nearest]))
        deeper = deeper[deeper >= 0]
        if len(deeper) > room:
            break
        chosen = deeper
    return chosen


class _Nearest:
    """The first items of each query among those that have passed."""

    def __init__(self, queries: FloatArray, metric: Metric) -> None:
        self._queries, self._metric = queries, metric
        self.places = np.full((len(queries), DEEPEST), -1)
        self._distances = np.full((len(queries), DEEPEST), np.inf)

    def take(self, items: FloatArray, places: Positions) -> None:
        """Look at some items."""
        if not len(items):
            return
        for start, distances in measure(self._queries, items, self._metric).blocks():
            rows = slice(start, start + len(distances))
            near = np.concatenate([self._distances[rows], distances], axis=1)
            there = np.concatenate([self.places[rows], np.broadcast_to(places, distances.shape)], axis=1)
            first = np.argsort(near, axis=1, kind="stable")[:, :DEEPEST]
            self._distances[rows] = np.take_along_axis(near, first, axis=1)
            self.places[rows] = np.take_along_axis(there, first, axis=1)


def _choose(
    queries: QuerySet, request: Queries, ids: ArrowArray, seed: int, most_correct: int
) -> tuple[Positions, SampleQueries]:
    """Rows of queries with something correct in the gallery, and these without vectors; of too many a random part."""
    itself, left_out = np.full(len(queries), -1), dict[str, int]()
    kept = np.ones(len(queries), bool)
    if queries.items is not None:
        itself = _places(queries.items, ids)
        kept &= itself >= 0
        left_out["name items that the gallery lacks"] = int((~kept).sum())
    judged, lacking = None, 0
    if request.judgements is not None:
        judged, lacking = _judged(queries, request, ids)
        own = judged.items == itself[judged.queries]
        judged = Judgements(queries=judged.queries[~own], items=judged.items[~own], gains=judged.gains[~own])
        known = judged.counts(len(queries)) > 0
        left_out["have no correct item in the gallery"] = int((kept & ~known).sum())
        left_out["are judged, but not among the queries"] = len(set(request.judgements) - set(map(str, queries.ids)))
        kept &= known
    if not kept.any():
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
        raise InvalidInput(
            "measure by queries",
            expected="queries for which an item of the gallery is correct",
            found=f"none of {len(queries)} ({reasons})",
            fix="Check that queries and qrels name the same queries, and qrels the gallery's own ids.",
        )
    order = np.random.default_rng(seed_of(_DRAW, seed)).permutation(np.flatnonzero(kept))[:MOST_QUERIES]
    if judged is not None:
        order = order[: _fitting(judged.of_queries(order), len(order), most_correct)]
    rows = np.sort(order)
    left_out["were not drawn"] = int(kept.sum()) - len(rows)
    texts = queries.sources
    return rows, SampleQueries(
        source=np.empty((len(rows), 0), np.float32),
        target=np.empty((len(rows), 0), np.float32),
        itself=itself[rows],
        judged=None if judged is None else judged.of_queries(rows),
        left_out=left_out,
        lacking=lacking,
        names=tuple(queries.ids[row] for row in rows),
        texts=() if texts is None else tuple(texts[row] for row in rows),
    )


def _fitting(judged: Judgements, queries: int, most: int) -> int:
    """Number of leading queries that have at most `most` correct items together, but enough to decide anything."""
    _, first = np.unique(judged.items[np.argsort(judged.queries, kind="stable")], return_index=True)
    new = np.bincount(np.sort(judged.queries)[first], minlength=queries)
    return max(int(np.searchsorted(new.cumsum(), most, side="right")), SMALLEST_SAMPLE)


def _judged(queries: QuerySet, request: Queries, ids: ArrowArray) -> tuple[Judgements, int]:
    """Correct items by place, and the number of items judged correct that the gallery lacks."""
    assert request.judgements is not None
    row = {name: number for number, name in enumerate(queries.ids)}
    pairs = [
        (row[query], item, gain)
        for query, items in request.judgements.items()
        if query in row
        for item, gain in items.items()
        if gain > 0
    ]
    places = _places([item for _, item, _ in pairs], ids)
    there = places >= 0
    numbers, gains = np.array([pair[0] for pair in pairs], np.intp), np.array([pair[2] for pair in pairs], np.float64)
    lacking = len({pair[1] for pair, known in zip(pairs, there, strict=True) if not known})
    return Judgements(queries=numbers[there], items=places[there], gains=gains[there]), lacking


def _places(names: list[str] | tuple[str, ...], ids: ArrowArray) -> Positions:
    """(m,) intp, places of items in the gallery, by their ids as text; -1 for unknown ids."""
    found = pc.index_in(pa.array(names, pa.string()), value_set=ids).fill_null(-1)
    places: Positions = found.to_numpy(zero_copy_only=False).astype(np.intp)
    return places


def _given(context: UpgradeContext, queries: QuerySet) -> tuple[FloatArray, FloatArray] | None:
    """Vectors that the queries came with, of the source and of the target; None if they came with none.

    Raises:
        InvalidInput: They are of other versions. Their length is not that of their version.
    """
    if not queries.vectors:
        return None
    run, found = context.run, list[FloatArray]()
    for name, otherwise in ((run.source, "source"), (run.target, "target")):
        column = name if name in queries.vectors else otherwise
        if column not in queries.vectors:
            given = " and ".join(sorted(queries.vectors))
            expected = f"vectors called {run.source} and {run.target}, or source and target"
            raise InvalidInput("measure by queries", expected=expected, found=given)
        dim, vectors = context.registry.record(name).dim, queries.vectors[column]
        if vectors.shape[1] != dim:
            operation = f"measure by queries in {name}"
            raise InvalidInput(operation, expected=f"{dim} values", found=f"{vectors.shape[1]} in {column}")
        found.append(vectors)
    return found[0], found[1]


def _embed(context: UpgradeContext, queries: QuerySet, rows: Positions) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Texts and paths in both versions, and which of them both models can embed.

    Raises:
        UpgradeError: A version has no encoder, or no query can be embedded.
    """
    assert queries.sources is not None
    made, embedded, why = [], np.ones(len(rows), bool), ""
    for name in (context.run.source, context.run.target):
        encoder = context.catalog.encoder(name)
        if encoder is None:
            raise UpgradeError(
                "measure by queries that are to be embedded",
                expected=f"encoders of {context.run.source} and {context.run.target}",
                found=f"none of {name}",
                fix=f"Give its model: {next_step.encoder(name)}; or name a file with vectors of both models.",
            )
        values = queries.ids if encoder.reads == "id" else queries.sources
        found = encode_queries(encoder, [values[row] for row in rows])
        vectors = np.zeros((len(rows), encoder.dim), np.float32)
        vectors[found.readable] = found.vectors
        embedded[list(found.failures)] = False
        why = why or first_offenders(list(found.failures.values()), limit=1)
        made.append(vectors)
    if not embedded.any():
        raise UpgradeError("measure by queries", expected="queries that both models can embed", found=f"none: {why}")
    return made[0], made[1], embedded


def read_gallery(context: UpgradeContext, rows: int, *, served: bool, shrinkage: bool = False) -> Iterator[Passing]:
    """Read all items that have a vector in the source, in bounded memory, from the first to the last.

    Args:
        context: The upgrade; without an artifact no item is transformed.
        rows: Items of a batch, at most.
        served: Vectors of the target as the table has them, else as a hop makes them.
        shrinkage: With the shrinkage factors of transformed vectors; otherwise all are 1.
    """
    source, target, start = context.source, context.target if served else None, 0
    transformer = transformer_of(context.catalog, context.run)
    columns = [*source.item_names, *(target.names if target else [])]
    for batch in context.snapshot.to_batches(
        columns=list(dict.fromkeys(columns)), filter=source.present, batch_size=min(rows, _MOST_ROWS), **READ_AHEAD
    ):
        stored = source.read_items(batch)
        if target is not None:
            made = target.decode(batch)
        else:
            made = VersionValues.absent(len(stored.valid), context.target_record.dim)
            if transformer.artifacts and (possible := transformer.possible(stored)).any():
                made.put(possible, transformer.apply(stored.take(possible)))
        there, factors = made.valid, np.ones(len(made.valid))
        if shrinkage:
            factors[there] = kept_cosines(context.catalog, made.origin[there], made.uncertainty[there])
        yield Passing(
            places=np.arange(start, start + len(there)),
            source=_findable(stored.vectors, stored.valid),
            target=_findable(made.vectors, there),
            in_source=stored.valid,
            in_target=there,
            native=there & (made.origin == NATIVE),
            factors=factors,
        )
        start += len(there)


def _findable(vectors: FloatArray, there: BoolArray) -> FloatArray:
    """The vectors, with something that has a direction where there are none."""
    return vectors if there.all() else np.where(there[:, None], vectors, np.float32(1))
