"""The steps of a gallery's life, and what the machine and Lance do alone: each is measured in a process of its own."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import compatstore as cs
from benchmarks.pairs.journal import Record
from compatstore.arrays import FloatArray
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.storage.indexes import cells_for

ADDED_AT_ONCE = 50_000
BLOCK = 1 << 24  # bytes
BATCH = 8_192  # rows of a matrix product
CENTRES = 1_000
QUERIES, K = 200, 10

Work = Callable[[], Record]


@dataclass(frozen=True, kw_only=True)
class Life:
    """One gallery.

    Args:
        folder: Where it is, and what else is written.
        rows: Items.
        dim: Length of their vectors, in both versions.
        share: Of the backfill.
    """

    folder: Path
    rows: int
    dim: int
    share: float

    @property
    def gallery(self) -> Path:
        """The gallery's table."""
        return self.folder / "gallery.lance"

    @property
    def plain(self) -> Path:
        """The table that Lance writes alone."""
        return self.folder / "plain.lance"

    @property
    def bare(self) -> Path:
        """A file of as many bytes as the vectors of one version."""
        return self.folder / "bare"

    @property
    def bytes(self) -> int:
        """Of the vectors of one version."""
        return 4 * self.dim * self.rows

    def open(self) -> cs.Gallery:
        """The gallery, with its encoder."""
        return cs.Gallery.open(str(self.gallery), encoders={"v2": self.encoder()})

    def encoder(self) -> cs.encoders.Function:
        """Gives each item a vector that is drawn from its id."""

        def encode(ids: Sequence[str]) -> FloatArray:
            return np.stack([np.random.default_rng(int(i)).normal(size=self.dim).astype(np.float32) for i in ids])

        return cs.encoders.Function(encode, self.dim, fingerprint="drawn from the id", reads="id")

    def near(self, seed: int, count: int) -> FloatArray:
        """(count, dim) float32 around centres that are the same for all seeds."""
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((count, self.dim), np.float32)
        return 0.6 * noise + _centres(self.dim)[rng.integers(0, CENTRES, count)]

    def items(self) -> Iterator[pa.Table]:
        """All items, `ADDED_AT_ONCE` at a time; the noise is drawn once, as drawing is not what is measured."""
        centres, rng = _centres(self.dim), np.random.default_rng(0)
        noise = 0.6 * rng.standard_normal((min(ADDED_AT_ONCE, self.rows), self.dim), np.float32)
        for start in range(0, self.rows, ADDED_AT_ONCE):
            count = min(ADDED_AT_ONCE, self.rows - start)
            vectors = centres[rng.integers(0, CENTRES, count)]
            vectors += noise[:count]
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.dim)
            yield pa.table({"id": [f"{start + n:012d}" for n in range(count)], "vector": column})


def _centres(dim: int) -> FloatArray:
    return np.random.default_rng(1).standard_normal((CENTRES, dim), np.float32)


def _transform(dim: int) -> tuple[Architecture, dict[str, FloatArray]]:
    """A small network with a sigma head, weights at random."""
    shape, rng = Architecture(source_dim=dim, output_dim=dim, mixer=(64,), uncertainty=True), np.random.default_rng(2)
    sizes = shape.shapes().items()
    return shape, {f"h.{name}": rng.normal(size=size).astype(np.float32) / size[-1] ** 0.5 for name, size in sizes}


def _artifact(gallery: cs.Gallery) -> Artifact:
    """That network from v1 to v2."""
    shape, tensors = _transform(gallery.version("v1").dim)
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    return Artifact.create("ForwardTransform", networks={"h": shape}, tensors=tensors, **spaces)


def disk_write(life: Life) -> Work:
    """As many bytes as a version's vectors are, one after another, until they are on the disk."""
    block = np.random.default_rng(0).bytes(BLOCK)

    def work() -> Record:
        with life.bare.open("wb", buffering=0) as file:
            for start in range(0, life.bytes, BLOCK):
                file.write(block[: life.bytes - start])
            os.fsync(file.fileno())
        return {}

    return work


def disk_read(life: Life) -> Work:
    """The same bytes, from the disk: the system is told to forget them first."""
    file = os.open(life.bare, os.O_RDONLY)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def work() -> Record:
        while os.read(file, BLOCK):
            pass
        return {}

    return work


def products(life: Life) -> Work:
    """The matrix products of the transform, for as many rows."""
    weights = [tensor.T for name, tensor in _transform(life.dim)[1].items() if name.endswith("weight")]
    rows = min(BATCH, life.rows)
    inputs = [np.random.default_rng(1).standard_normal((rows, w.shape[0]), np.float32) for w in weights]
    outputs = [np.empty((rows, w.shape[1]), np.float32) for w in weights]

    def work() -> Record:
        for _ in range(0, life.rows, rows):
            for x, w, y in zip(inputs, weights, outputs, strict=True):
                np.matmul(x, w, out=y)
        return {}

    return work


def lance_append(life: Life) -> Work:
    """Lance's own append of the same items."""
    shutil.rmtree(life.plain, ignore_errors=True)

    def work() -> Record:
        for batch in life.items():
            lance.write_dataset(batch, str(life.plain), mode="append")
        return {}

    return work


def add(life: Life) -> Work:
    """A new gallery of these items."""
    shutil.rmtree(life.gallery, ignore_errors=True)

    def work() -> Record:
        gallery = cs.Gallery.create(str(life.gallery), cs.EmbeddingVersion("v1", dim=life.dim, metric="l2"))
        for batch in life.items():
            gallery.add(batch)
        return {}

    return work


def hop(life: Life) -> Work:
    """Register the target, link the transform, and transform each vector."""

    def work() -> Record:
        gallery = cs.Gallery.open(str(life.gallery))
        gallery.register(cs.EmbeddingVersion("v2", dim=life.dim, metric="l2", encoder=life.encoder()))
        gallery.artifacts.link(_artifact(gallery))
        return {"transformed": gallery.upgrade("v2").transformed}

    return work


def backfill(life: Life) -> Work:
    """Embed the share whose sigma is largest."""
    asked = cs.Backfill(share=life.share, order="sigma")
    return lambda: {"natives": life.open().upgrade("v2", backfill=asked).backfilled}


def index(life: Life) -> Work:
    """Index the target by default: built, and its search settings chosen by what it finds."""
    target = life.open().maintenance.index("v2")

    def work() -> Record:
        status = target.status()  # of an index that was built before this step was cut off
        return {"cells": (target.refresh().status if status.kind else target.create()).cells}

    return work


def search(life: Life) -> Work:
    """Single queries in the target, and the same by Lance alone, by turns."""
    gallery, table, queries = life.open(), lance.dataset(str(life.gallery)), _queries(life)
    settings = gallery.explain(version="v2").parts[0].settings
    wanted, options = ["id", "_distance", "v2__origin"], {"column": "v2", "k": K, "metric": "l2", **settings.options}
    ways: dict[str, Callable[[FloatArray], object]] = {
        "lance_ms": lambda query: table.to_table(columns=wanted, nearest={**options, "q": query}),
        "ours_ms": lambda query: gallery.search(query, K, "v2", columns=["id"]),
    }

    def work() -> Record:
        times = {name: list[float]() for name in ways}
        for query in queries:
            for name, way in ways.items():
                started = time.perf_counter()
                way(query)
                times[name].append(1e3 * (time.perf_counter() - started))
        return {name: float(np.median(taken)) for name, taken in times.items()} | {"settings": f"{settings}"}

    return work


def exact_search(life: Life) -> Work:
    """The exact neighbours of these queries, in one call of Lance's, and what share of them the searches find."""
    gallery, table, queries = life.open(), lance.dataset(str(life.gallery)), _queries(life)
    found = gallery.search(queries, K, "v2", columns=["id"])["id"].to_pylist()

    def work() -> Record:
        asked = {"column": "v2", "k": K, "metric": "l2", "use_index": False, "q": queries}
        exact = table.to_table(columns=["id", "query_index", "_distance"], nearest=asked)
        truth = zip(exact["query_index"].to_pylist(), exact["id"].to_pylist(), strict=True)
        hits = {(at // K, name) for at, name in enumerate(found)} & set(truth)
        return {"recall": len(hits) / (K * len(queries))}

    return work


def _queries(life: Life) -> FloatArray:
    """(`QUERIES`, dim) float32: what the transform makes of vectors that are no items."""
    return _artifact(life.open()).apply(life.near(3, QUERIES)).vectors


def verify(life: Life) -> Work:
    """Check everything against everything."""
    return lambda: {"clean": life.open().maintenance.verify().clean}


def no_op(life: Life) -> Work:
    """The same upgrade again."""
    return lambda: {"transformed": life.open().upgrade("v2").transformed}


def cutover(life: Life) -> Work:
    """The switch."""
    return lambda: {"missing": life.open().cutover("v2").missing}


def lance_index(life: Life) -> Work:
    """Lance's own index of the same vectors, of the same kind and cells, in the place of the gallery's."""
    cells = cells_for(life.rows, quantised=True)

    def work() -> Record:
        options = {"num_partitions": cells, "num_sub_vectors": life.dim // 8, "replace": True}
        lance.dataset(str(life.gallery)).create_index("v2", "IVF_PQ", metric="l2", **options)
        return {"cells": cells}

    return work


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Args:
        name: As a table calls it.
        prepare: Gets ready, unmeasured, and gives the work.
        drops: What is removed after it.
        again: Whether it begins from the start after it was cut off; else it goes on, and only the rest is measured.
    """

    name: str
    prepare: Callable[[Life], Work]
    drops: str = ""
    again: bool = True


STEPS = (
    Step(name="disk, write", prepare=disk_write),
    Step(name="disk, read", prepare=disk_read, drops="bare"),
    Step(name="products", prepare=products),
    Step(name="Lance, append", prepare=lance_append, drops="plain.lance"),
    Step(name="add", prepare=add),
    Step(name="hop", prepare=hop, again=False),
    Step(name="backfill", prepare=backfill, again=False),
    Step(name="index", prepare=index, again=False),
    Step(name="search", prepare=search),
    Step(name="search, exact", prepare=exact_search),
    Step(name="verify", prepare=verify),
    Step(name="no-op upgrade", prepare=no_op),
    Step(name="cutover", prepare=cutover),
    Step(name="Lance, index", prepare=lance_index, drops="gallery.lance"),
)
