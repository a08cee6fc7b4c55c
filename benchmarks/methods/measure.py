"""Measure one target in a real gallery: before the upgrade, after a hop, while it is backfilled and when it is full."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import compatstore as cs
from benchmarks.methods.lesson import Lesson
from benchmarks.methods.models import embed
from benchmarks.orders import order
from benchmarks.pairs.journal import Record
from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.encoders import Encoder
from compatstore.evaluation import Ranking, backfill_curve, flips, rank_queries, summarise
from compatstore.trainers import TrainedModel
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

PROBES = 50
QUARTER = 0.25  # of a backfill, where subgroups are compared


def own(lesson: Lesson, model: TrainedModel) -> Record:
    """Search a model's own gallery: s/s or t/t."""
    return figures(lesson, embed(model.encoder, lesson.queries), embed(model.encoder, lesson.gallery))


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of unit length: (n, d) floats -> (n, d); those of length 0 stay."""
    unit: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def figures(lesson: Lesson, queries: FloatArray, gallery: FloatArray) -> Record:
    """CMC-1, CMC-5 and mAP of queries (q, d) on a gallery (n, d), by cosine; and the gap between subgroups, if any."""
    return figures_of(
        lesson, rank_queries(queries, gallery, lesson.queries.labels, lesson.gallery.labels, metric="cosine")
    )


def figures_of(lesson: Lesson, ranking: Ranking) -> Record:
    """The same of what queries have found."""
    found = summarise(ranking, (1, 5))
    record: Record = {"cmc1": found.cmc[1], "cmc5": found.cmc[5], "map": found.map}
    return record if lesson.groups is None else record | {"gap": _gap(lesson.groups, ranking)}


def _gap(groups: npt.NDArray[np.str_], ranking: Ranking) -> Record:
    """What the queries of the majority have above those of the minority (FastFill, section 5.3)."""
    parts = [ranking.counted & (groups == name) for name in ("majority", "minority")]
    right, precision = ranking.first_match == 1, ranking.average_precision
    return {
        name: float(values[parts[0]].mean() - values[parts[1]].mean())
        for name, values in (("cmc1", right), ("map", precision))
    }


def searched_as_is(
    lesson: Lesson, source: cs.EmbeddingVersion, stored: FloatArray, target: TrainedModel, artifact: cs.Artifact
) -> Record:
    """Search the source's vectors (n, d) with target queries through Identity or Prefix, then backfill the gallery.

    The curve is of the mixed gallery that the search plan ranks: source rows by the compared values, native rows by
    the same ("compared") or by the whole embedding ("whole"), all of unit length.
    """
    queries, native = embed(target.encoder, lesson.queries), embed(target.encoder, lesson.gallery)
    compared = artifact.apply(queries).vectors
    with tempfile.TemporaryDirectory() as folder:
        gallery = _gallery(folder, source, stored)
        gallery.register(target.version("v2"))
        gallery.artifacts.link(artifact, "v1", "v2")
        _check_search(gallery, queries, compared, stored)
    parts = (unit(vectors) for vectors in (compared, stored, artifact.apply(native).vectors))
    curves = {"compared": _curve(lesson, *parts)}
    if queries.shape != compared.shape:
        both = [np.concatenate(parts, axis=1) for parts in _side_by_side(compared, queries, stored, native)]
        curves["whole"] = _curve(lesson, *both)
    return {"t/s": figures(lesson, compared, stored), "curves": curves}


def transformed(
    lesson: Lesson,
    source: TrainedModel,
    target: TrainedModel,
    artifact: cs.Artifact,
    side: Encoder | None = None,
    orders: Sequence[str] = ("random",),
    expected: bool = False,
) -> Record:
    """Hop the gallery by a ForwardTransform, and backfill it in one order after the other.

    With `expected`, it is searched by shrunk distances too, where the transform was measured on 40 pairs or more.
    """
    queries, native = embed(target.encoder, lesson.queries), embed(target.encoder, lesson.gallery)
    with tempfile.TemporaryDirectory() as folder:
        version = source.version("v1")
        if side is not None:
            version = replace(version, side_dim=side.dim, side_encoder=side)
        of_side = None if side is None else embed(side, lesson.gallery)
        gallery = _gallery(folder, version, embed(source.encoder, lesson.gallery), of_side)
        gallery.register(target.version("v2"))
        gallery.artifacts.link(artifact, "v1", "v2")
        gallery.upgrade("v2")
        gallery.cutover("v2")
        ids = list(range(len(lesson.gallery)))
        rows, stored = gallery.get(ids, ["v2", "v2__uncertainty"]), gallery.vectors(ids, "v1")
        hopped = np.stack(rows.column("v2").to_numpy()).astype(np.float32)[:, : target.encoder.dim]
        sigma2 = rows.column("v2__uncertainty").to_numpy(zero_copy_only=False).astype(np.float32)
        doubted = _doubted(artifact, hopped, sigma2)
        _check_search(gallery, queries, queries, unit(hopped) if doubted is None else doubted)
    known = None if np.isnan(sigma2).any() else sigma2
    items = ArrayRows(ids=ids, sigma2=known, source=stored)
    asking, full = unit(queries), unit(native)
    ranked = {one: order(one, items, lesson.seed) for one in orders}
    found = {
        "t/h": figures(lesson, queries, hopped),
        "h/h": figures(lesson, _hopped_queries(lesson, source, artifact, side), hopped),
        "curves": {one: _curve(lesson, asking, unit(hopped), full, ranked[one]) for one in orders},
    }
    if doubted is not None and expected:
        labels = lesson.queries.labels, lesson.gallery.labels
        found["t/h, expected"] = figures_of(lesson, rank_queries(asking, doubted, *labels, metric="dot"))
        found["curves"] |= {f"{one}, expected": _curve(lesson, asking, doubted, full, ranked[one]) for one in orders}
    return found


def _doubted(artifact: cs.Artifact, hopped: FloatArray, sigma2: FloatArray) -> FloatArray | None:
    """Hopped vectors (n, d) whose products with unit queries are shrunk cosines; None where nothing was measured."""
    shrinkage = Shrinkage.of(artifact.manifest.figures)
    return None if shrinkage is None else unit(hopped) * shrinkage.at(sigma2)[:, None].astype(np.float32)


def _hopped_queries(lesson: Lesson, source: TrainedModel, artifact: cs.Artifact, side: Encoder | None) -> FloatArray:
    extra = None if side is None else embed(side, lesson.queries)
    return artifact.apply(embed(source.encoder, lesson.queries), extra).vectors


def _gallery(
    folder: str, version: cs.EmbeddingVersion, vectors: FloatArray, side: FloatArray | None = None
) -> cs.Gallery:
    """Fill a gallery with vectors (n, d) of a version, and its side-information (n, e) if any."""
    gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), version, id_type="int64")
    items: dict[str, Any] = {"id": list(range(len(vectors))), "vector": vectors}
    gallery.add(items if side is None else items | {"side": side})
    return gallery


def _check_search(gallery: cs.Gallery, queries: FloatArray, compared: FloatArray, stored: FloatArray) -> None:
    """The gallery must find for some queries what a matrix product finds; anything else makes the figures worthless.

    A search ranks its first candidates by shrunk distances, so all items are asked for.
    """
    found = gallery.search(queries[:PROBES], k=len(stored), version="v2", columns=["id"]).column("id").to_numpy()
    found = found[:: len(stored)]
    cosines = unit(compared[:PROBES]) @ stored.T
    rows = np.arange(len(found))
    np.testing.assert_allclose(cosines[rows, found], cosines.max(axis=1), atol=1e-5)


def _curve(
    lesson: Lesson, queries: FloatArray, before: FloatArray, after: FloatArray, ranked: Any | None = None
) -> Record:
    """Measure a backfill from `before` to `after` by inner products, in a random order where none is given."""
    ranked = np.random.default_rng(lesson.seed).permutation(len(before)) if ranked is None else ranked
    labels, steps = (lesson.queries.labels, lesson.gallery.labels), lesson.size.alphas
    alphas = steps if lesson.groups is None else [*np.linspace(0, 1, steps), QUARTER]
    curve = backfill_curve(queries, before, after, *labels, ranked, alphas=alphas, ks=(1,), metric="dot")
    return curve_record(lesson, curve.alphas, curve.rankings)


def curve_record(lesson: Lesson, shares: Doubles, rankings: Sequence[Ranking]) -> Record:
    """A curve over ascending shares from 0 to 1: what is found, its area, and what each share mends and breaks.

    With the gap between subgroups, if any (FastFill, section 5.3 and appendix D).
    """
    steps = [summarise(ranking, (1,)) for ranking in rankings]
    curve = {"cmc1": [step.cmc[1] for step in steps], "map": [step.map for step in steps]}
    changed = [flips(rankings[0], ranking, 1) for ranking in rankings]
    record = {
        "area": {name: float(np.trapezoid(values, shares)) for name, values in curve.items()},
        "curve": curve,
        "flips": {"mended": [one.positive for one in changed], "broken": [one.negative for one in changed]},
    }
    if lesson.groups is None:
        return record
    gaps = {f"{share:.0%}": _gap(lesson.groups, one) for share, one in zip(shares, rankings, strict=True)}
    return record | {"gap": gaps}


def _side_by_side(
    compared: FloatArray, queries: FloatArray, stored: FloatArray, native: FloatArray
) -> tuple[list[FloatArray], ...]:
    """Vectors whose product is that of the compared values for source rows, and of all values for native ones."""
    nothing = np.zeros_like
    return (
        [unit(compared), unit(queries)],
        [unit(stored), nothing(native)],
        [nothing(stored), unit(native)],
    )
