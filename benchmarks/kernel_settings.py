r"""What the settings of kernel ridge give in a search of both versions, to choose the candidates of a lesson by.

    python -m benchmarks.kernel_settings glosses.npz --seeds 0 1 --items 4000 --queries 1000
    python -m benchmarks.kernel_settings more.npz --asked kinds.npz --told 300 --items 20000 --queries 1000

One table for each set and native share, of means over galleries: for each pair of settings the cosine of transformed
vectors to their natives, what the target's column gives, and what both versions give by the weight that is best for
these queries. Natives are drawn at random. Galleries that are reported elsewhere have other seeds than 0, 1 and 2.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.taught import Draw, drawn, unit
from compatstore.arrays import Doubles
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import fused_blocks, standardise
from compatstore.trainers import KernelRidge, Pairs

SHARPNESS, PENALTIES = (0.5, 1.0, 2.0), (1e-2, 3e-2, 1e-1)
WEIGHTS = (0.3, 0.5, 0.7, 0.9)
_BLOCK = 64  # queries


class Natives:
    """A gallery of which a share is native in the target, drawn at random.

    Args:
        data: The set.
        given: The gallery, and who asks it.
        share: Native in the target, above 0.
        seed: Of the draw.
    """

    def __init__(self, data: EmbeddedSet, given: Draw, share: float, seed: int) -> None:
        self._outside = given.outside
        self._source, self._target = (unit(data.vectors[name][given.rows]) for name in (SOURCE, TARGET))
        items = len(given.rows)
        self._native = np.zeros(items, bool)
        self._native[np.random.default_rng([seed, items]).permutation(items)[: native_count(share, items)]] = True

    def figures(self, sharpness: float, penalty: float) -> dict[str, list[float]]:
        """Cosine to natives, from -1 to 1; figures of the target's column and of both versions, in percent."""
        native, outside = self._native, self._outside
        trainer = KernelRidge(sharpness=(sharpness,), penalties=(penalty,))
        made = trainer.fit(Pairs(self._source[native], self._target[native])).apply(self._source).vectors
        stored = np.where(native[:, None], self._target, made)
        left = measure(outside.source, self._source, "cosine", block=_BLOCK)
        right, natives, transformed = (
            measure(outside.target, vectors, "cosine", block=_BLOCK) for vectors in (stored, self._target, made)
        )
        constants = standardise(left, natives, transformed, np.full(len(outside.source), -1))
        constants = replace(constants, native_share=float(native.mean()))
        ways = [replace(constants, weight=1.0)]
        ways += [replace(constants, weight=w, per_origin=apart) for w in WEIGHTS for apart in (False, True)]
        column, *fused = outside.figures(fused_blocks(left, right, native, outside.relevance, ways), len(ways))
        decides = "map" if "map" in column else next(iter(column))
        best = max(fused, key=lambda one: one[decides])
        cosine = float(np.einsum("nd,nd->n", made, self._target)[~native].mean())
        found = {"target's column": column, "both versions": best}
        return {"cosine": [cosine]} | {name: [100 * one for one in of.values()] for name, of in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--asked", type=Path, help="queries that are no items")
    parser.add_argument("--told", type=int, default=300, help="of these, left out as an upgrade would be told them")
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.25])
    parser.set_defaults(labels=False, criterion="ndcg@10")
    options = parser.parse_args()
    for path, share in itertools.product(options.sets, options.shares):
        data = EmbeddedSet.load(path)
        galleries = [Natives(data, drawn(data, seed, options), share, seed) for seed in options.seeds]
        print(f"\n**{data.name}, {share:.0%} native**, {len(galleries)} seeds:\n")
        print("| sharpness | penalty | cosine to natives | target's column | both versions |")
        print("|---" * 5 + "|")
        for settings in itertools.product(SHARPNESS, PENALTIES):
            found = [gallery.figures(*settings) for gallery in galleries]
            cosine, column, both = (np.mean([one[name] for one in found], axis=0) for name in found[0])
            cells = [*map("{:g}".format, settings), f"{cosine[0]:.4f}", *map(_points, (column, both))]
            print(f"| {' | '.join(cells)} |", flush=True)


def _points(figures: Doubles) -> str:
    return " / ".join(f"{value:.1f}" for value in figures)


if __name__ == "__main__":
    main()
