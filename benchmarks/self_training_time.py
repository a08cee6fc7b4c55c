"""Processor time of a self-training upgrade beside its encoder, on synthetic galleries.

Items are drawn around cluster centres of a latent space; the source sees it linearly, the target through a nonlinear
map, both with noise. The encoder waits for as long as a small model takes for an item, which costs no processor time.
The figure is the processor time of `Gallery.upgrade` less that of the same backfill with a given transform, which
embeds, hops and stores as many items without learning. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: threads that
wait for each other take processor time too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.record import Row
from compatstore.arrays import FloatArray
from compatstore.trainers import Pairs, Ridge

LATENT, CLUSTERS = 48, 80
EACH = 0.01  # seconds that the encoder takes for an item


@dataclass(frozen=True)
class Case:
    """A gallery, its budget, and the limit of the processor time.

    Args:
        items: Of the gallery.
        source: Values of a source vector.
        target: Values of a target vector.
        share: Native share that the upgrade embeds; named, so that a full backfill is no way out.
        limit: Processor seconds.
    """

    items: int
    source: int
    target: int
    share: float
    limit: float


CASES = {
    "texts": Case(items=6_545, source=384, target=768, share=0.05, limit=10),
    "table": Case(items=300, source=384, target=768, share=0.9, limit=2),
    "large": Case(items=50_000, source=768, target=768, share=0.05, limit=60),
    "smoke": Case(items=150, source=12, target=16, share=0.6, limit=10),
}


def waiting(native: FloatArray) -> cs.encoders.Function:
    """An encoder that looks vectors up by id, and waits for as long as a model would take."""

    def encode(ids: Sequence[int]) -> FloatArray:
        time.sleep(EACH * len(ids))
        return native[np.asarray(ids)]

    fingerprint = f"waiting-{native[0, 0]:.6f}"
    return cs.encoders.Function(encode, native.shape[1], fingerprint=fingerprint, reads="id")


def vectors(case: Case) -> tuple[FloatArray, FloatArray]:
    """Source and target vectors of unit length."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(CLUSTERS, LATENT))[rng.integers(0, CLUSTERS, case.items)]
    latent += 0.5 * rng.normal(size=latent.shape)
    hidden = np.tanh(latent @ rng.normal(size=(LATENT, 256)) / LATENT**0.5)
    made = latent @ rng.normal(size=(LATENT, case.source)), hidden @ rng.normal(size=(256, case.target))
    noisy = [each + 0.3 * each.std() * rng.normal(size=each.shape) for each in made]
    source, target = (np.asarray(n / np.linalg.norm(n, axis=1, keepdims=True), np.float32) for n in noisy)
    return source, target


def processor_time(case: Case, *, given: bool) -> tuple[float, cs.UpgradeResult]:
    """Processor seconds of an upgrade that learns, or that is given a transform; and its result."""
    source, target = vectors(case)
    with tempfile.TemporaryDirectory() as folder:
        v1 = cs.EmbeddingVersion("v1", dim=case.source, metric="cosine", normalised=True)
        v2 = cs.EmbeddingVersion("v2", dim=case.target, metric="cosine", encoder=waiting(target))
        gallery = cs.Gallery.create(str(Path(folder, "g.lance")), v1, id_type="int64")
        gallery.add({"id": range(case.items), "vector": source})
        gallery.register(v2)
        if given:
            spaces = {"source_version": gallery.version("v1"), "target_version": gallery.version("v2")}
            gallery.artifacts.link(Ridge(penalties=(0.1,)).fit(Pairs(source[:200], target[:200], **spaces)))
        began = time.process_time()
        result = gallery.upgrade("v2", backfill=case.share)
        return time.process_time() - began, result


def run(*, cases: tuple[str, ...] = ("texts", "table", "large")) -> Iterator[Row]:
    """Processor seconds of learning, and the rounds that it took."""
    for name in cases:
        case = CASES[name]
        (plain, _), (seconds, result) = (processor_time(case, given=given) for given in (True, False))
        about = {"items": case.items, "rounds": len(result.rounds), "plain_s": round(plain, 2)}
        what = f"processor time that a self-training upgrade learns for, {name}"
        yield bound(what, max(seconds - plain, 0.0), case.limit, "s", **about)


SMOKE = {"cases": ("smoke",)}
