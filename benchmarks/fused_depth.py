r"""How many rows of each column a fused search has to look at, to find what comparing with every item finds.

    python -m benchmarks.pairs.plain --glyphs glyphs.npz --fonts fonts.npz --characters characters.npz
    python -m benchmarks.fused_depth characters.npz fonts.npz --journal docs/results/depth.jsonl \
        --page docs/results/depth.md [--items 1000 10000 40000] [--queries 300]

A gallery of a set's items is hopped by a ridge regression, partly backfilled, and searched by both versions as one,
without an index. What it finds is held against the fused distances of all items. Beside it stands what the first 20,
100 or 500 rows of each column would give, ranked by the same distances, and how many rows of each column hold all that
is to be found. By distances as they are, and by expected distances, which a transform that says sigma^2 has measured.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.methods.document import add_page, line, publish
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record
from benchmarks.taught import factors_of, served_by, unit
from compatstore.arrays import Doubles, Positions
from compatstore.evaluation.distances import measure
from compatstore.search.threshold import first_depth
from compatstore.trainers import Pairs, Ridge

K, SHARE, WEIGHT, PAIRS = 10, 0.3, 0.5, 2000
PLAIN, EXPECTED = f"first {K}", f"first {K}, expected"
FEWEST = 400  # pairs by which expected distances are measured
LISTS = (20, 100, 500)  # rows of each column that a search could stop at


def measured(data: EmbeddedSet, items: int, queries: int, *, expected: bool) -> Record:
    """A gallery of some items of a set; queries and the pairs of the transform are of others."""
    chosen = np.random.default_rng(0).permutation(len(data.labels))
    asked, rows, others = np.split(chosen, [queries, queries + items])
    source, target = (unit(data.vectors[name][rows]) for name in (SOURCE, TARGET))
    learned = (unit(data.vectors[name][others[:PAIRS]]) for name in (SOURCE, TARGET))
    both = {name: unit(data.vectors[model][asked]) for name, model in (("v1", SOURCE), ("v2", TARGET))}
    with tempfile.TemporaryDirectory() as folder:
        v1 = cs.EmbeddingVersion("v1", dim=source.shape[1], metric="cosine", normalised=True)
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), v1, id_type="int64")
        gallery.add({"id": np.arange(items), "vector": source})
        native = cs.encoders.Precomputed(dict(zip(range(items), target, strict=True)))
        gallery.register(
            cs.EmbeddingVersion("v2", dim=target.shape[1], metric="cosine", normalised=True, encoder=native)
        )
        versions = {f"{role}_version": gallery.version(name) for role, name in (("source", "v1"), ("target", "v2"))}
        gallery.artifacts.link(Ridge(uncertainty=expected).fit(Pairs(*learned, **versions)))
        gallery.upgrade("v2", backfill=SHARE)
        gallery.evaluate("v2", weight=WEIGHT, sample=min(items, 1000))
        found = gallery.search(both, k=K, columns=["id"])["id"].to_numpy().reshape(queries, K)
        fusion = served_by(gallery, "v2")
        if fusion.shrinkage != expected:
            raise RuntimeError(f"searched by shrunk distances: {fusion.shrinkage}")
        factors = factors_of(gallery, "v2", list(range(items)))
        natives, column = (
            gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist(),
            gallery.vectors(list(range(items)), "v2"),
        )
    there = np.isin(np.arange(items), natives)
    near, far = (
        np.concatenate([block.copy() for _, block in measure(both[name], vectors, "cosine").blocks()])
        for name, vectors in (("v1", source), ("v2", column))
    )
    fused = fusion.distances(near, fusion.shrunk(far, factors, "cosine"), there)
    best = np.argsort(fused, axis=1, kind="stable")[:, :K]
    ranks = np.minimum(*(np.argsort(np.argsort(one, axis=1), axis=1) for one in (near, far)))
    held = {str(depth): _held(np.where(ranks < depth, fused, np.inf), best) for depth in LISTS}
    depths = np.take_along_axis(ranks, best, axis=1).max(axis=1) + 1
    shares = {"served": float(np.mean([np.isin(mine, true).mean() for mine, true in zip(found, best, strict=True)]))}
    return {**shares, "held": held, "depth": {f"{q}%": float(np.percentile(depths, q)) for q in (50, 90, 100)}}


def _held(fused: Doubles, best: Positions) -> float:
    """Share of the best items that a ranking has among its first."""
    first = np.argsort(fused, axis=1, kind="stable")[:, :K]
    return float(np.mean([np.isin(mine, true).mean() for mine, true in zip(first, best, strict=True)]))


def table(records: list[Record]) -> list[str]:
    """Markdown: a line for each set and number of items."""
    header = [
        "set",
        "items",
        "distances",
        *(f"first {depth} of each" for depth in LISTS),
        "served",
        "depth: 50, 90, 100 %",
        "at first",
    ]
    lines = [line(header), line(["---"] * len(header))]
    for record in records:
        items = int(record["setting"])
        cells = [f"{100 * record['held'][str(depth)]:.1f}" for depth in LISTS]
        depths = ", ".join(f"{value:,.0f}" for value in record["depth"].values())
        served = f"{100 * record['served']:.1f}"
        by = "expected" if record["method"] == EXPECTED else "as they are"
        lines.append(line([record["set"], f"{items:,}", by, *cells, served, depths, f"{first_depth(items, K):,}"]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True)
    add_page(parser)
    parser.add_argument("--items", type=int, nargs="+", default=[1000, 10_000, 40_000])
    parser.add_argument("--queries", type=int, default=300)
    options = parser.parse_args()
    journal = Journal(options.journal)
    for path in options.sets:
        data = EmbeddedSet.load(path)
        for items in options.items:
            others = len(data.labels) - options.queries - items
            for method in (PLAIN, EXPECTED)[: 1 + (others >= FEWEST)]:
                key = {
                    "size": f"{options.queries} queries",
                    "set": data.name,
                    "setting": str(items),
                    "seed": 0,
                    "method": method,
                }
                task = partial(measured, data, items, options.queries, expected=method == EXPECTED)
                journal.once(key, task)
    publish(table(journal.records), options.page)


if __name__ == "__main__":
    main()
