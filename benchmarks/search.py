r"""Searches through compatstore beside the very same search of one Lance column.

    python benchmarks/search.py [--rows 200000] [--dim 128] [--queries 300] [--batches 1 32 256] [--fewest 5] \
        [--of parts as-one shrinkage]

The two take turns, batch by batch; prints the medians and the 99th percentiles, the ratio of the medians and its bound,
with an index and without one. Of one version, in one part. Of a compatible model's version that half of the items are
native in, the others being searched in the source's column: two parts, merged. And of both versions of an upgrade as
one: two searches and a ranking, beside one search of the target; of a target that turns the source's space, and of one
that is unrelated to it. And of transformed vectors by shrunk distances, which ranks 100 candidates, beside the search
of Lance that finds 10; no bound is set. Both searches of a row use the same settings of the index: Lance's own, and for
both versions as one and expected distances those that were measured when it was built.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage
from compatstore.storage.nearest import AT_ONCE
from compatstore.trainers import Pairs, Procrustes

BOUND, BOUND_OF_TWO, BOUND_OF_FUSED = 1.1, 2.2, 2.5
COLUMNS = ["id", "source"]
K = 10
INDEX = {"kind": "IVF_PQ", "num_partitions": 256, "num_sub_vectors": 16}


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One row of the table.

    Args:
        name: What is searched.
        ours: Searches a batch through compatstore: (q, dim) queries.
        column: Column that the plain search reads.
        settings: How the plain search uses an index.
        bound: Of the ratio; None for none.
    """

    name: str
    ours: Callable[[np.ndarray], object]
    column: str = "v1"
    settings: cs.SearchSettings = field(default_factory=cs.SearchSettings)
    bound: float | None = BOUND

    def compare(self, path: Path, queries: np.ndarray, batch: int, runs: int) -> None:
        """Print the row for some batches of these queries."""
        table, ours, plain = lance.dataset(str(path)), [], []
        self.plain(table, queries[:batch])
        self.ours(queries[:batch])
        for number in range(runs):
            asked = np.take(queries, np.arange(number * batch, (number + 1) * batch), axis=0, mode="wrap")
            plain.append(seconds(lambda: self.plain(table, asked)))  # noqa: B023
            ours.append(seconds(lambda: self.ours(asked)))  # noqa: B023
        ratio = float(np.median(ours) / np.median(plain))
        times = " | ".join(f"{1e3 * np.quantile(taken, at):.2f}" for taken in (plain, ours) for at in (0.5, 0.99))
        limit = "- | -" if self.bound is None else f"{self.bound} | {ratio / self.bound:.2f}"
        print(f"| {self.name} | {batch} | {times} | {ratio:.2f} | {limit} |", flush=True)

    def plain(self, table: Any, queries: np.ndarray) -> None:
        """The same search by Lance alone."""
        wanted = [*COLUMNS, "_distance", f"{self.column}__origin"]
        for start in range(0, len(queries), AT_ONCE):
            block = queries[start : start + AT_ONCE]
            query = block[0] if len(block) == 1 else block
            nearest = {"column": self.column, "q": query, "k": K, "metric": "l2", **self.settings.options}
            table.to_table(columns=wanted, nearest=nearest)


def fill(path: Path, rows: int, dim: int, rng: np.random.Generator) -> cs.Gallery:
    """A gallery of random items, in four fragments or more."""
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=dim, metric="l2"))
    for start in range(0, rows, 50_000):
        size = min(50_000, rows - start)
        vectors = rng.normal(size=(size, dim)).astype(np.float32)
        gallery.add({"id": [str(start + i) for i in range(size)], "vector": vectors, "source": ["-"] * size})
    return gallery


def register_target(gallery: cs.Gallery, dim: int, rng: np.random.Generator) -> None:
    """A target whose native vectors are random."""

    def encode(sources: Sequence[str]) -> np.ndarray:
        return rng.normal(size=(len(sources), dim)).astype(np.float32)

    encoder = cs.encoders.Function(encode, dim, fingerprint="random")
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=encoder))


def half_native(gallery: cs.Gallery) -> None:
    """Begin an upgrade to a compatible model, and embed half of the items natively."""
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    gallery.artifacts.link(Artifact.create("Identity", **spaces))
    gallery.upgrade("v2", backfill=0.5)


def hopped(gallery: cs.Gallery, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Begin an upgrade by a rotation, and serve both versions as one; returns the rotation, (dim, dim)."""
    source = rng.normal(size=(4 * dim, dim)).astype(np.float32)
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    pairs = Pairs(source, source @ rotation, source_version=gallery.version("v1"), target_version=gallery.version("v2"))
    gallery.artifacts.link(Procrustes().fit(pairs))
    gallery.upgrade("v2")
    gallery.evaluate("v2", weight=0.5, sample=100)
    return rotation


def doubted(gallery: cs.Gallery, dim: int, rng: np.random.Generator) -> None:
    """Begin an upgrade by a linear map that says a sigma^2 of each vector."""
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", normalised=True))
    network = Architecture(source_dim=dim, output_dim=dim, normalise=True, uncertainty=True)
    tensors = {
        f"h.{name}": rng.normal(size=shape, scale=shape[-1] ** -0.5).astype(np.float32)
        for name, shape in network.shapes().items()
    }
    measured = Shrinkage((-2.0, 2.0), (1.0, 0.5), exponent=1.0)
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    figures = {"h": {FIGURE: measured.figure()}}
    gallery.artifacts.link(
        Artifact.create("ForwardTransform", **spaces, networks={"h": network}, tensors=tensors, figures=figures)
    )
    gallery.upgrade("v2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=300, help="cut into batches")
    parser.add_argument("--fewest", type=int, default=5, help="batches of each size at least; queries then come again")
    parser.add_argument("--batches", type=int, nargs="+", default=[1])
    parser.add_argument("--of", choices=MEASURED, nargs="+", default=list(MEASURED))
    arguments = parser.parse_args()
    rng, dim = np.random.default_rng(0), arguments.dim
    queries = rng.normal(size=(max(arguments.queries, *arguments.batches), dim)).astype(np.float32)

    def show(path: Path, *cases: Case) -> None:
        for case in cases:
            for batch in arguments.batches:
                case.compare(path, queries, batch, max(arguments.queries // batch, arguments.fewest))

    print("| search | batch | Lance p50, ms | p99 | compatstore p50 | p99 | ratio | bound | share of the bound |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, measure in MEASURED.items():
        if name in arguments.of:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "gallery.lance")
                measure(path, fill(path, arguments.rows, dim, rng), dim, rng, show)


def of_parts(path: Path, gallery: cs.Gallery, dim: int, rng: np.random.Generator, show: Callable[..., None]) -> None:
    """Searches of one version, and of two."""
    own = cs.SearchSettings()  # Lance's

    def search(version: str) -> Callable[[np.ndarray], object]:
        return lambda asked: gallery.search(asked, K, version, columns=COLUMNS, settings=own)

    show(path, Case(name="one part, no index", ours=search("v1")))
    register_target(gallery, dim, rng)
    half_native(gallery)
    show(path, Case(name="two parts, no index", ours=search("v2"), bound=BOUND_OF_TWO))
    gallery.maintenance.index().create(**INDEX)
    show(path, Case(name="one part, IVF_PQ", ours=search("v1")))
    gallery.maintenance.index("v2").create(**INDEX)
    show(path, Case(name="two parts, IVF_PQ", ours=search("v2"), bound=BOUND_OF_TWO))


def as_one(path: Path, gallery: cs.Gallery, dim: int, rng: np.random.Generator, show: Callable[..., None]) -> None:
    """Searches by both versions; and by a target that knows nothing of what the source finds near."""
    register_target(gallery, dim, rng)
    rotation = hopped(gallery, dim, rng)

    def alike(asked: np.ndarray) -> object:
        return gallery.search({"v1": asked, "v2": asked @ rotation}, K, columns=COLUMNS)

    def unrelated(asked: np.ndarray) -> object:
        return gallery.search({"v1": asked, "v2": asked}, K, columns=COLUMNS)

    show(path, Case(name="both as one, no index", ours=alike, column="v2", bound=BOUND_OF_FUSED))
    show(path, Case(name="both as one, unrelated, no index", ours=unrelated, column="v2", bound=BOUND_OF_FUSED))
    for version in ("v1", "v2"):
        gallery.maintenance.index(version).create(**INDEX)
    chosen = gallery.explain(version="v2").parts[0].settings
    name = f"both as one, IVF_PQ, {chosen}"
    show(path, Case(name=name, ours=alike, column="v2", settings=chosen, bound=BOUND_OF_FUSED))


def by_shrinkage(
    path: Path, gallery: cs.Gallery, dim: int, rng: np.random.Generator, show: Callable[..., None]
) -> None:
    """Searches of what a transform made, by shrunk distances."""
    doubted(gallery, dim, rng)

    def search(asked: np.ndarray) -> object:
        return gallery.search(asked, K, "v2", columns=COLUMNS)

    show(path, Case(name="by shrunk distance, no index", ours=search, column="v2", bound=None))
    gallery.maintenance.index("v2").create(**INDEX)
    chosen = gallery.explain(version="v2").parts[0].settings
    name = f"by shrunk distance, IVF_PQ, {chosen}"
    show(path, Case(name=name, ours=search, column="v2", settings=chosen, bound=None))


MEASURED = {"parts": of_parts, "as-one": as_one, "shrinkage": by_shrinkage}


if __name__ == "__main__":
    main()
