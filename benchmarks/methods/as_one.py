"""Measure a gallery that is searched by both versions as one: after a hop, and while it is backfilled."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

import compatstore as cs
from benchmarks.methods.lesson import Lesson
from benchmarks.methods.measure import PROBES, curve_record, figures_of
from benchmarks.methods.models import embed
from benchmarks.pairs.journal import Record
from benchmarks.taught import factors_of, served_by
from compatstore.arrays import BoolArray, Doubles, FloatArray
from compatstore.encoders import Encoder
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, fused_blocks
from compatstore.evaluation.ranking import Ranking, rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.storage.vector_form import to_matrix
from compatstore.trainers import Images, TrainedModel

AS_ONE = "as one"  # the curve of what is served
# The curves of what a cutover would serve: of the target's vectors as they are, and by shrunk distances.
ALONE = {"alone": False, "alone, expected": True}
BLOCK = 64  # queries
Order = Literal["random", "sigma"]  # of a backfill


@dataclass(frozen=True, kw_only=True)
class OfItems:
    """A model that embeds the items of a gallery, whose ids are the rows of `images`."""

    model: Encoder
    images: Images
    reads: Literal["source", "id"] = "id"
    spec: str = ""

    @property
    def dim(self) -> int:
        """Of the model's vectors."""
        return self.model.dim

    @property
    def fingerprint(self) -> str:
        """Of the model."""
        return self.model.fingerprint

    def encode(self, sources: Sequence[int]) -> FloatArray:
        """Embed n items: (n, dim) float32."""
        return self.model.encode([self.images.images[int(row)] for row in sources])


def as_one(
    lesson: Lesson,
    source: TrainedModel,
    target: TrainedModel,
    artifact: cs.Artifact | None = None,
    *,
    alone: bool = False,
    order: Order = "random",
) -> Record:
    """What is served by the versions of both models, share by share of a backfill in one order; nothing is told.

    After a hop by an artifact `evaluate` chooses how the two are weighed. Without an artifact an upgrade teaches
    itself from what it embeds; what it serves before it has embedded anything is the status quo. With `alone` the
    target is searched by itself too, by its vectors as they are and by shrunk distances; before it has any, the
    source is.
    """
    ids, shares = list(range(len(lesson.gallery))), np.linspace(0, 1, lesson.size.alphas)
    stored = embed(source.encoder, lesson.gallery)
    with tempfile.TemporaryDirectory() as folder:
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), source.version("v1"), id_type="int64")
        gallery.add({"id": ids, "vector": stored})
        embedding = OfItems(model=target.encoder, images=lesson.gallery)
        gallery.register(replace(target.version("v2"), encoder=embedding))
        if artifact is not None:
            gallery.artifacts.link(artifact, "v1", "v2")
            gallery.upgrade("v2")
            gallery.evaluate("v2", sample=min(len(ids), 1000), backfill=cs.Backfill(seed=lesson.seed), weight="best")
        asking = _Asking(lesson, source, target, stored)
        found, weights, by_itself = [], [], dict[str, list[Ranking]]()
        for share in shares:
            if native_count(share, len(ids)):
                gallery.upgrade("v2", backfill=cs.Backfill(share=float(share), order=order, seed=lesson.seed))
            fusion = served_by(gallery, "v2")
            found.append(asking.ranked(gallery, fusion))
            weights.append(fusion.weight)
            for way, shrunk in ALONE.items() if alone else ():
                ranked = asking.alone(gallery, shrunk=shrunk) if share else found[-1]
                by_itself.setdefault(way, []).append(ranked)
    hop = {} if artifact is None else {"t/h": figures_of(lesson, found[0])}
    curves = {way: curve_record(lesson, shares, each) for way, each in {AS_ONE: found, **by_itself}.items()}
    return {**hop, "weights": weights, "curves": curves}


class _Asking:
    """The queries of a trial, by both models, and the items that they search."""

    def __init__(self, lesson: Lesson, source: TrainedModel, target: TrainedModel, stored: FloatArray) -> None:
        self._queries = {"v1": embed(source.encoder, lesson.queries), "v2": embed(target.encoder, lesson.queries)}
        self._stored, self._dim = stored, target.encoder.dim
        self._relevance = relevance_from_labels(lesson.queries.labels, lesson.gallery.labels)

    def ranked(self, gallery: cs.Gallery, fusion: Fusion) -> Ranking:
        """Rank all items as a fusion of both versions does; its weight is 0 where the source alone is searched."""
        ids, native = list(range(len(self._stored))), np.zeros(len(self._stored), bool)
        column, factors = np.zeros((len(ids), self._dim), np.float32), None  # what has no vector is found last
        if fusion.weight:
            native[gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()] = True
            vectors, there, kept = self._target(gallery, ids)
            column, factors = np.where(there[:, None], vectors, 0), kept
        source = measure(self._queries["v1"], self._stored, "cosine", block=BLOCK)
        target = measure(self._queries["v2"], column, "cosine", block=BLOCK, undirected="lose")
        blocks = list(fused_blocks(source, target, native, self._relevance, [fusion], factors))
        self._check(gallery, fusion, np.concatenate([block for _, block in blocks]))
        return rank_blocks(blocks, len(self._queries["v1"]), self._relevance, [np.arange(len(ids))])[0]

    def alone(self, gallery: cs.Gallery, *, shrunk: bool) -> Ranking:
        """Rank all items by the target alone, as searches do by shrunk distances, or by its vectors as they are."""
        order, queries = self._relevance.order, self._queries["v2"]
        vectors, there, factors = self._target(gallery, order.tolist())
        products = queries.astype(np.float64) @ vectors.T.astype(np.float64)
        distances = 1 - products * (factors if shrunk else 1.0)
        distances[:, ~there] = np.inf
        if shrunk:
            asked, every = queries[:PROBES], int(there.sum())
            found = gallery.search(asked, k=every, version="v2", columns=["id"]).column("id").to_numpy()[::every]
            first, places = distances[: len(found)], np.argsort(order)[found]
            np.testing.assert_allclose(first[np.arange(len(found)), places], first.min(axis=1), atol=1e-5)
        return rank_blocks([(0, distances)], len(queries), self._relevance, [np.arange(len(order))])[0]

    def _target(self, gallery: cs.Gallery, ids: list[int]) -> tuple[FloatArray, BoolArray, Doubles]:
        """What items have in the target: (n, dim) vectors, (n,) whether they have one, (n,) the factors of cosines."""
        vectors, there = to_matrix(gallery.get(ids, ["v2"])["v2"], self._dim)
        return vectors, there, factors_of(gallery, "v2", ids)

    def _check(self, gallery: cs.Gallery, fusion: Fusion, distances: Doubles) -> None:
        """The gallery must find for some queries what these distances rank first, or all figures are worthless."""
        some = {version: queries[:PROBES] for version, queries in self._queries.items()}
        asked, version = (some, None) if fusion.weight else (some["v1"], "v1")
        found = gallery.search(asked, k=1, version=version, columns=["id"]).column("id").to_numpy()
        places = np.argsort(self._relevance.order)[found]
        first = distances[: len(found)]
        np.testing.assert_allclose(first[np.arange(len(found)), places], first.min(axis=1), atol=1e-5)
