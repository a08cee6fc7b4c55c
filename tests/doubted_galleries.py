"""A gallery of unit vectors that was hopped by a transform which says sigma^2, and what was measured of it."""

from __future__ import annotations

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage

ROWS, SHORT, LONG = 60, 5, 8
SHRINKAGE = Shrinkage((-1.0, 0.0, 1.0), (1.3, 1.0, 0.4), 0.5)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Native:
    """Looks native vectors up by an item's id."""

    dim, spec, reads, fingerprint = LONG, "", "id", "native"

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, sources):
        return self.vectors[[int(source) for source in sources]]


def transform(seed=0, *, shrinkage=SHRINKAGE, source=None, target=None, uncertainty=True):
    """A linear transform that says a sigma^2 of about 1."""
    random = np.random.default_rng(seed)
    network = Architecture(
        source_dim=source or SHORT, output_dim=target or LONG, normalise=True, uncertainty=uncertainty
    )
    shapes = {name: random.normal(size=shape).astype(np.float32) for name, shape in network.shapes().items()}
    return Artifact.create(
        "ForwardTransform",
        source=Space(dim=source or SHORT, normalised=True),
        target=Space(dim=target or LONG, normalised=True),
        networks={"h": network},
        tensors={f"h.{name}": tensor for name, tensor in shapes.items()},
        figures={} if shrinkage is None else {"h": {FIGURE: shrinkage.figure()}},
    )


class World:
    """A gallery of unit vectors that was hopped by an artifact, and queries of its target."""

    def __init__(self, folder, metric="cosine", artifact=None, seed=0):
        random = np.random.default_rng(seed)
        self.source, self.native = unit(random.normal(size=(ROWS, SHORT))), unit(random.normal(size=(ROWS, LONG)))
        self.queries, self.metric = random.normal(size=(4, LONG)).astype(np.float32), metric
        if metric != "dot":
            self.queries = unit(self.queries) if metric == "cosine" else self.queries
        versions = [
            cs.EmbeddingVersion("v1", dim=SHORT, metric=metric, normalised=True),
            cs.EmbeddingVersion("v2", dim=LONG, metric=metric, normalised=True, encoder=Native(self.native)),
        ]
        self.artifact = artifact or transform(seed)
        self.gallery = cs.Gallery.create(str(folder / "gallery.lance"), versions[0], id_type="int64")
        self.gallery.add({"id": list(range(ROWS)), "vector": self.source, "even": [n % 2 == 0 for n in range(ROWS)]})
        self.gallery.register(versions[1])
        self.gallery.artifacts.link(self.artifact, "v1", "v2")
        self.gallery.upgrade("v2")

    def distances(self, query):
        """The expected distance of every item, from what the table holds."""
        found = self.gallery.get(list(range(ROWS)), ["v2", "v2__uncertainty", "v2__origin"])
        vectors = np.stack(found["v2"].to_numpy()).astype(np.float64)
        sigma2 = found["v2__uncertainty"].to_numpy(zero_copy_only=False).astype(np.float64)
        native = np.array([origin == "native" for origin in found["v2__origin"].to_pylist()])
        kept = np.interp(np.log(sigma2), SHRINKAGE.log_sigma2, SHRINKAGE.factors)
        products = np.where(native, 1.0, np.nan_to_num(kept, nan=1.0)) * (vectors @ query.astype(np.float64))
        if self.metric == "l2":
            return query.astype(np.float64) @ query + 1 - 2 * products
        return 1 - products / (np.linalg.norm(query) if self.metric == "cosine" else 1.0)
