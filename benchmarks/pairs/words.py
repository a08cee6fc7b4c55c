"""Every candidate of `Auto` on word vectors of two vocabularies, and its own score of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.record import Row
from benchmarks.sets.embedded import unit
from compatstore.arrays import FloatArray, Positions
from compatstore.evaluation import recall_at_k
from compatstore.trainers import FCT, Auto, LowRankAffine, Pairs, Residual
from compatstore.trainers.pairs.auto import DEFAULT
from compatstore.trainers.pairs.trainer import describe, without_holdout
from compatstore.versions import EmbeddingVersion

K, DIM = 10, 100
CANDIDATES = (
    *DEFAULT,
    LowRankAffine(rank=25),
    FCT(epochs=4, branch_width=128, mixer_width=256),
    Residual(epochs=4, width=256, batch_size=1024),
)


def read_pairs(source: Path, index: Path, target: Path) -> Pairs:
    """Pair the vectors of the words that both vocabularies have."""
    place = {word: row for row, word in enumerate(pq.read_table(index)["index"].to_pylist())}
    vectors = json.loads(target.read_text())["vectors"]
    shared = [word for word in vectors if word in place]
    # Two more values, the length and the word's number, follow a vector.
    targets = np.array([vectors[word][:DIM] for word in shared], dtype=np.float32)
    sources = np.load(source)[[place[word] for word in shared]]
    versions = [
        EmbeddingVersion(f"glove{each.shape[1]}", dim=each.shape[1], metric="cosine") for each in (sources, targets)
    ]
    return Pairs(sources, targets, source_version=versions[0], target_version=versions[1])


def neighbours(pairs: Pairs, queries: Positions, gallery: FloatArray) -> Positions:
    """The nearest rows of each query word but itself, by cosine: (q, K)."""
    cosines = unit(pairs.target[queries]) @ unit(gallery).T
    cosines[np.arange(len(queries)), queries] = -np.inf
    return np.argpartition(-cosines, K, axis=1)[:, :K]


def words_rows(source: Path, index: Path, target: Path, *, queries: int = 1000, seed: int = 0) -> Iterator[Row]:
    """Fit each candidate on nine tenths of the words, and search by others of which it knows nothing."""
    pairs = read_pairs(source, index, target)
    order = np.random.default_rng(seed).permutation(len(pairs))
    count = len(pairs) // 10
    chosen, kept = order[:count][:queries], pairs.subset(np.sort(order[count:]))
    scores = {one.name: one.score for one in Auto(candidates=CANDIDATES, seed=seed).compare(kept).candidates}
    correct = neighbours(pairs, chosen, pairs.target)
    for trainer in CANDIDATES:
        name, started = describe(trainer), time.perf_counter()
        try:
            artifact = without_holdout(trainer).fit(kept)
        except ValueError:
            continue  # of equal dimensions only
        row = {"part": "words", "set": "GloVe", "seed": seed, "method": name.partition("(")[0], "settings": name}
        row |= {"seconds": round(time.perf_counter() - started, 1)}
        gallery = artifact.apply(pairs.source).vectors
        cosine = np.einsum("nd,nd->n", unit(gallery[chosen]), unit(pairs.target[chosen])).mean()
        recall = 100 * recall_at_k(neighbours(pairs, chosen, gallery), correct)
        yield row | {
            "auto score": round(100 * (scores[name] or 0), 2),
            "recall@10": round(recall, 2),
            "cosine": round(float(cosine), 4),
        }
