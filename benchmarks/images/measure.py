"""Measure one target in a real gallery: before the upgrade, after a hop, and over a backfill."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.images.models import Models, embed
from benchmarks.images.trial import Trial
from benchmarks.record import Row
from benchmarks.sets.embedded import unit
from compatstore.arrays import FloatArray, Positions
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.encoders import Encoder
from compatstore.evaluation import Ranking, backfill_curve, flips, rank_queries, summarise
from compatstore.trainers import TrainedModel
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.versions import Metric, SideDType

PROBES = 50  # queries whose results are compared with a matrix product's


def points(share: float) -> float:
    """A share in percent, to two decimals."""
    return round(100 * float(share), 2)


def own(trial: Trial, model: TrainedModel, name: str) -> Row:
    """Search a model's own gallery: s/s or t/t."""
    return figures(trial, embed(model.encoder, trial.queries), embed(model.encoder, trial.gallery), name)


def figures(trial: Trial, queries: FloatArray, gallery: FloatArray, name: str, metric: Metric | None = None) -> Row:
    """CMC-1 and mAP of queries (q, d) on a gallery (n, d); and the gap between subgroups, if any."""
    labels = trial.queries.labels, trial.gallery.labels
    ranking = rank_queries(queries, gallery, *labels, metric=metric or trial.metric)
    found = summarise(ranking, (1,))
    row = {f"{name} cmc1": points(found.cmc[1]), f"{name} map": points(found.map)}
    return row if trial.groups is None else row | {f"{name} gap cmc1": gap(trial, ranking)}


def gap(trial: Trial, ranking: Ranking) -> float:
    """CMC-1 of the majority's queries less that of the minority's (FastFill, section 5.3)."""
    first = ranking.first_match == 1
    means = [first[ranking.counted & (trial.groups == name)].mean() for name in ("majority", "minority")]
    return points(means[0] - means[1])


def searched_as_is(trial: Trial, source: TrainedModel, target: TrainedModel, artifact: cs.Artifact) -> Row:
    """Search the source's vectors with target queries through Identity or Prefix, then backfill the gallery."""
    stored, queries = embed(source.encoder, trial.gallery), embed(target.encoder, trial.queries)
    compared = artifact.apply(queries).vectors
    with tempfile.TemporaryDirectory() as folder:
        gallery = gallery_of(folder, source.version("v1", metric=trial.metric), stored)
        gallery.register(target.version("v2", metric=trial.metric))
        gallery.artifacts.link(artifact, "v1", "v2")
        check(trial, gallery, queries, scaled(trial, compared), scaled(trial, stored))
    native = artifact.apply(embed(target.encoder, trial.gallery)).vectors
    curve = backfill(trial, *(scaled(trial, part) for part in (compared, stored, native)), "compared")
    return figures(trial, compared, stored, "t/s") | curve


def transformed(
    models: Models,
    target: TrainedModel,
    artifact: cs.Artifact,
    side: Encoder | None = None,
    orders: Sequence[str] = ("random",),
    *,
    dtype: SideDType = "float32",
    expected: bool = False,
) -> Row:
    """Hop the gallery by a ForwardTransform, and backfill it in one order after the other.

    With `expected` it is also searched by shrunk distances, if the transform has measured its errors. The order
    "oracle" is by the true distance to the native vectors.
    """
    trial, source = models.trial, models.source
    queries, native = (embed(target.encoder, images) for images in (trial.queries, trial.gallery))
    of_items, of_queries = (None if side is None else embed(side, each) for each in (trial.gallery, trial.queries))
    ids = list(range(len(trial.gallery)))
    with tempfile.TemporaryDirectory() as folder:
        gallery = gallery_of(folder, models.version(side, dtype), embed(source.encoder, trial.gallery), of_items)
        gallery.register(target.version("v2", metric=trial.metric))
        gallery.artifacts.link(artifact, "v1", "v2")
        gallery.upgrade("v2")
        gallery.cutover("v2")
        rows, stored = gallery.get(ids, ["v2", "v2__uncertainty"]), gallery.vectors(ids, "v1")
        hopped = np.stack(rows.column("v2").to_numpy()).astype(np.float32)[:, : target.encoder.dim]
        sigma2 = rows.column("v2__uncertainty").to_numpy(zero_copy_only=False).astype(np.float32)
        shrinkage = Shrinkage.of(artifact.manifest.figures)
        factors = 1 if shrinkage is None else shrinkage.at(sigma2)[:, None].astype(np.float32)
        shrunk = scaled(trial, hopped) * factors
        check(trial, gallery, queries, scaled(trial, queries), shrunk)
    asked = artifact.apply(embed(source.encoder, trial.queries), of_queries).vectors
    found = figures(trial, queries, hopped, "t/h") | figures(trial, asked, hopped, "h/h")
    items = ArrayRows(ids=ids, sigma2=None if np.isnan(sigma2).any() else sigma2, source=stored)
    sides = [scaled(trial, vectors) for vectors in (queries, hopped, native)]
    for name in (each for each in orders if each != "sigma" or items.sigma2 is not None):
        apart = np.square(sides[1] - sides[2]).sum(axis=1)
        urgent = np.argsort(-apart) if name == "oracle" else order(name, items, trial.seed)
        found |= backfill(trial, *sides, name, urgent)
        if expected:
            found |= backfill(trial, unit(queries), shrunk, unit(native), f"{name}, expected", urgent)
    if expected:
        found |= figures(trial, unit(queries), shrunk, "t/h, expected", "dot")
    return found


def backfill(
    trial: Trial, queries: FloatArray, before: FloatArray, after: FloatArray, name: str, urgent: Positions | None = None
) -> Row:
    """Areas under the curve from `before` to `after`, mean shares of queries that flip on it, and a tenth native's mAP.

    In random order by default. A positive flip is a query that is wrong with nothing backfilled, and right with a part.
    """
    urgent = np.random.default_rng(trial.seed).permutation(len(before)) if urgent is None else urgent
    labels, alphas = (trial.queries.labels, trial.gallery.labels), np.linspace(0, 1, 21)
    metric: Metric = "l2" if trial.metric == "l2" else "dot"
    curve = backfill_curve(queries, before, after, *labels, urgent, alphas=list(alphas), ks=(1, 5), metric=metric)
    found = {f"area {name} {key}": points(curve.area[figure]) for key, figure in AREAS.items()}
    found |= {f"10% {name} map": points(curve.map[2])}
    flipped = [flips(curve.rankings[0], ranking) for ranking in curve.rankings]
    for sign in ("positive", "negative"):
        found[f"{sign} {name} cmc1"] = points(np.mean([getattr(one, sign) for one in flipped]))
    if trial.groups is not None:
        gaps = {f"{step / 20:.0%}": curve.rankings[step] for step in (0, 5, 20)}
        found |= {f"gap {name} {share} cmc1": gap(trial, ranking) for share, ranking in gaps.items()}
    return found


AREAS = {"cmc1": "cmc@1", "cmc5": "cmc@5", "map": "map"}


def scaled(trial: Trial, vectors: FloatArray) -> FloatArray:
    """Vectors as they are compared: of unit length, but by l2 as they are."""
    return vectors if trial.metric == "l2" else unit(vectors)


def check(trial: Trial, gallery: cs.Gallery, queries: FloatArray, compared: FloatArray, stored: FloatArray) -> None:
    """Raise AssertionError unless the gallery finds for some queries what a matrix product finds."""
    # A search ranks its first candidates by shrunk distances: all items are read.
    found = gallery.search(queries[:PROBES], k=len(stored), version="v2", columns=["id"]).column("id").to_numpy()
    near = compared[:PROBES] @ stored.T
    if trial.metric == "l2":
        near -= np.square(stored).sum(axis=1) / 2
    best = near[np.arange(len(near)), found[:: len(stored)]]
    np.testing.assert_allclose(best, near.max(axis=1), rtol=1e-5, atol=1e-5)


def gallery_of(
    folder: str, version: cs.EmbeddingVersion, vectors: FloatArray, side: FloatArray | None = None
) -> cs.Gallery:
    """A gallery with vectors (n, d) of a version, and side-information (n, e) if any."""
    gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), version, id_type="int64")
    items: dict[str, Any] = {"id": list(range(len(vectors))), "vector": vectors}
    gallery.add(items if side is None else items | {"side": side})
    return gallery
