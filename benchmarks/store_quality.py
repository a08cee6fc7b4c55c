"""nDCG@10 through each store's own index, as its app searches: before, during and after an upgrade without labels."""

from __future__ import annotations

import importlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.record import Row
from benchmarks.served import DEPTH, Outside, split
from benchmarks.sets.embedded import SOURCE, TARGET, EmbeddedSet, QuerySet, unit
from compatstore.arrays import Doubles, Positions
from compatstore.stores.link import syncing
from compatstore.upgrade.progress import Observer

BEFORE, SHARE, DRAWS = "old model", 0.1, 2000  # draws of the bootstrap
FUSED = cs.StoreIndexes()


def mirrored(engine: Any, path: Path) -> cs.Gallery:
    """A new mirror of an engine's collection `docs`."""
    parts = engine.parts
    return cs.Gallery.mirror(engine.address("docs"), path, source=parts.source, id=parts.id, vector=parts.vector)


def drawn(data: EmbeddedSet, given: QuerySet | None, seed: int, items: int, queries: int) -> tuple[Positions, Outside]:
    """Rows that are items, and queries: of a file, or other rows, for which items of their class are correct."""
    asked, rows = split(data, seed, items, queries)
    vectors, correct = data.vectors, data.labels[asked][:, None] == data.labels[rows]
    if given is not None:
        whole = np.zeros((len(given.vectors[SOURCE]), len(data.labels)), bool)
        whole[given.queries, given.items] = True
        known = np.flatnonzero(whole[:, rows].any(axis=1))
        asked = np.random.default_rng(seed).permutation(known)[:queries]
        vectors, correct = given.vectors, whole[asked][:, rows]
    old, new = (unit(vectors[model][asked]) for model in (SOURCE, TARGET))
    return rows, Outside(source=old, target=new, correct=correct, graded=True)


def ways(
    name: str, data: EmbeddedSet, rows: Positions, outside: Outside, seed: int, folder: Path
) -> dict[str, Doubles]:
    """Way to search -> (q,) nDCG@10."""
    source, target = (unit(data.vectors[model][rows]) for model in (SOURCE, TARGET))
    place = {str(uuid.UUID(int=row)): row for row in range(len(rows))}
    engine = importlib.import_module(f"tests.stores.engines.{name}").Engine(folder)
    engine.create("docs", source.shape[1])
    engine.load("docs", list(place), source, [f"note {row:09d}" for row in range(len(rows))])
    if hasattr(engine, "index"):
        engine.index("docs")
    gallery, known = (
        mirrored(engine, folder / "g.lance"),
        cs.encoders.Precomputed(dict(zip(place, target, strict=True))),
    )
    v2 = cs.EmbeddingVersion("v2", dim=target.shape[1], metric="cosine", normalised=True, encoder=known)

    def ndcg(found: list[Any]) -> Doubles:
        return outside.ndcg(np.array([[place[one] for one in ids] for ids in found]))

    def by_app(vectors: Any) -> Doubles:
        with syncing(gallery._catalog, Observer()) as sync:
            return ndcg([sync.store.search(None, query, DEPTH)[0] for query in vectors])

    def fused() -> Doubles:
        pairs = ({"v1": one[None], "v2": other[None]} for one, other in zip(*outside.both.values(), strict=True))
        return ndcg([gallery.search(pair, DEPTH, serving=FUSED)["id"].to_pylist() for pair in pairs])

    found = {BEFORE: by_app(outside.source)}
    gallery.upgrade(v2, backfill=cs.Backfill(share=SHARE, seed=seed))
    if hasattr(engine, "index"):
        engine.index("docs", f"{engine.parts.vector}_v2")
    found["fused, 10 % embedded"] = fused()
    gallery.cutover("v2")
    found["cutover with 10 %"] = by_app(outside.target)
    gallery.rollback()
    gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, seed=seed))
    found["fused, all embedded"] = fused()
    gallery.cutover("v2")
    found["cutover with all"] = by_app(outside.target)
    engine.close()
    return found


def quality(
    name: str, data: EmbeddedSet, given: QuerySet | None, seeds: int, items: int, queries: int
) -> Iterator[Row]:
    """A row for each way: nDCG@10, and its gain over the old model with the 95 % interval of a bootstrap."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            rows, outside = drawn(data, given, seed, items, queries)
            found.append(ways(name, data, rows, outside, seed, Path(folder)))
    rng, asked = np.random.default_rng(0), len(found[0][BEFORE])
    draws = rng.integers(0, asked, (DRAWS, seeds, asked))
    for way in found[0]:
        values = np.stack([each[way] for each in found])
        gains = values - np.stack([each[BEFORE] for each in found])
        low, high = np.percentile(np.take_along_axis(gains[None], draws, axis=2).mean(axis=(1, 2)), (2.5, 97.5))
        figures = {"ndcg@10": values.mean(), "gain": gains.mean(), "low": low, "high": high}
        about = {"set": data.name, "seeds": seeds, "items": items, "queries": asked, "way": way}
        yield about | {key: round(float(value), 2) for key, value in figures.items()}
