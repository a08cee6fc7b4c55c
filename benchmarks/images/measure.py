"""Measure one target in a real gallery: before the upgrade, after a hop, and over a backfill."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.images.models import embed
from benchmarks.images.trial import Trial
from benchmarks.record import Row
from benchmarks.sets.embedded import unit
from compatstore.arrays import FloatArray, Positions
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.encoders import Encoder
from compatstore.evaluation import Ranking, backfill_curve, rank_queries, summarise
from compatstore.trainers import TrainedModel
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

PROBES = 50  # queries whose results are compared with a matrix product's


def points(share: float) -> float:
    """A share in percent, to two decimals."""
    return round(100 * float(share), 2)


def own(trial: Trial, model: TrainedModel, name: str) -> Row:
    """Search a model's own gallery: s/s or t/t."""
    return figures(trial, embed(model.encoder, trial.queries), embed(model.encoder, trial.gallery), name)


def figures(trial: Trial, queries: FloatArray, gallery: FloatArray, name: str, metric: Any = "cosine") -> Row:
    """CMC-1 and mAP of queries (q, d) on a gallery (n, d); and the gap between subgroups, if any."""
    ranking = rank_queries(queries, gallery, trial.queries.labels, trial.gallery.labels, metric=metric)
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
        gallery = gallery_of(folder, source.version("v1"), stored)
        gallery.register(target.version("v2"))
        gallery.artifacts.link(artifact, "v1", "v2")
        check(gallery, queries, compared, stored)
    native = artifact.apply(embed(target.encoder, trial.gallery)).vectors
    curve = backfill(trial, *(unit(part) for part in (compared, stored, native)), "compared")
    return figures(trial, compared, stored, "t/s") | curve


def transformed(
    trial: Trial,
    source: TrainedModel,
    target: TrainedModel,
    artifact: cs.Artifact,
    side: Encoder | None = None,
    orders: Sequence[str] = ("random",),
    *,
    expected: bool = False,
) -> Row:
    """Hop the gallery by a ForwardTransform, and backfill it in one order after the other.

    With `expected` it is also searched by shrunk distances, if the transform has measured its errors.
    """
    queries, native = (embed(target.encoder, images) for images in (trial.queries, trial.gallery))
    of_items, of_queries = (None if side is None else embed(side, each) for each in (trial.gallery, trial.queries))
    ids = list(range(len(trial.gallery)))
    with tempfile.TemporaryDirectory() as folder:
        version = source.version("v1")
        if side is not None:
            version = replace(version, side_dim=side.dim, side_encoder=side)
        gallery = gallery_of(folder, version, embed(source.encoder, trial.gallery), of_items)
        gallery.register(target.version("v2"))
        gallery.artifacts.link(artifact, "v1", "v2")
        gallery.upgrade("v2")
        gallery.cutover("v2")
        rows, stored = gallery.get(ids, ["v2", "v2__uncertainty"]), gallery.vectors(ids, "v1")
        hopped = np.stack(rows.column("v2").to_numpy()).astype(np.float32)[:, : target.encoder.dim]
        sigma2 = rows.column("v2__uncertainty").to_numpy(zero_copy_only=False).astype(np.float32)
        shrinkage = Shrinkage.of(artifact.manifest.figures)
        factors = 1 if shrinkage is None else shrinkage.at(sigma2)[:, None].astype(np.float32)
        shrunk = unit(hopped) * factors
        check(gallery, queries, queries, shrunk)
    asked = artifact.apply(embed(source.encoder, trial.queries), of_queries).vectors
    found = figures(trial, queries, hopped, "t/h") | figures(trial, asked, hopped, "h/h")
    items = ArrayRows(ids=ids, sigma2=None if np.isnan(sigma2).any() else sigma2, source=stored)
    for name in orders:
        urgent = order(name, items, trial.seed)
        found |= backfill(trial, unit(queries), unit(hopped), unit(native), name, urgent)
        if expected:
            found |= backfill(trial, unit(queries), shrunk, unit(native), f"{name}, expected", urgent)
    if expected:
        found |= figures(trial, unit(queries), shrunk, "t/h, expected", "dot")
    return found


def backfill(
    trial: Trial, queries: FloatArray, before: FloatArray, after: FloatArray, name: str, urgent: Positions | None = None
) -> Row:
    """Area under the curve from `before` to `after`, and mAP with a tenth native; in random order by default."""
    urgent = np.random.default_rng(trial.seed).permutation(len(before)) if urgent is None else urgent
    labels, alphas = (trial.queries.labels, trial.gallery.labels), [*np.linspace(0, 1, 11)]
    curve = backfill_curve(queries, before, after, *labels, urgent, alphas=alphas, ks=(1,), metric="dot")
    found = {f"area {name} {key}": points(curve.area[figure]) for key, figure in AREAS.items()}
    found |= {f"10% {name} map": points(curve.map[1])}
    if trial.groups is not None:
        quarters = backfill_curve(queries, before, after, *labels, urgent, alphas=[0, 0.25, 1], ks=(1,), metric="dot")
        gaps = zip(("0%", "25%", "100%"), quarters.rankings, strict=True)
        found |= {f"gap {name} {share} cmc1": gap(trial, ranking) for share, ranking in gaps}
    return found


AREAS = {"cmc1": "cmc@1", "map": "map"}


def check(gallery: cs.Gallery, queries: FloatArray, compared: FloatArray, stored: FloatArray) -> None:
    """Raise AssertionError unless the gallery finds for some queries what a matrix product finds."""
    # A search ranks its first candidates by shrunk distances: all items are read.
    found = gallery.search(queries[:PROBES], k=len(stored), version="v2", columns=["id"]).column("id").to_numpy()
    found = found[:: len(stored)]
    cosines = unit(compared[:PROBES]) @ stored.T
    np.testing.assert_allclose(cosines[np.arange(len(found)), found], cosines.max(axis=1), atol=1e-5)


def gallery_of(
    folder: str, version: cs.EmbeddingVersion, vectors: FloatArray, side: FloatArray | None = None
) -> cs.Gallery:
    """A gallery with vectors (n, d) of a version, and side-information (n, e) if any."""
    gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), version, id_type="int64")
    items: dict[str, Any] = {"id": list(range(len(vectors))), "vector": vectors}
    gallery.add(items if side is None else items | {"side": side})
    return gallery
