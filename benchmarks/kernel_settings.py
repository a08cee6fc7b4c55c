r"""What the settings of kernel ridge give in a search of both versions, to choose the candidates of a lesson by.

    python -m benchmarks.kernel_settings glosses.npz --seeds 0 1 --items 4000 --queries 1000
    python -m benchmarks.kernel_settings more.npz --asked kinds.npz --told 300 --items 20000 --queries 1000

One table for each gallery and native share: for each pair of settings the mean cosine of transformed vectors to their
natives, what the target's column gives, and what both versions give by the weight that is best for these queries.
Natives are drawn at random. Galleries that are reported elsewhere have other seeds than 0, 1 and 2.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, AskedSet, EmbeddedSet
from benchmarks.taught import Draw, draw, draw_asked, unit
from compatstore.arrays import BoolArray, Doubles, FloatArray
from compatstore.evaluation.curve import native_count
from compatstore.trainers import KernelRidge, Pairs

SHARPNESS, PENALTIES = (0.5, 1.0, 2.0), (1e-2, 3e-2, 1e-1)
WEIGHTS = (0.3, 0.5, 0.7, 0.9)
_BLOCK = 64  # queries


class Natives:
    """A gallery of which a share is native in the target, drawn at random.

    Args:
        data: The set.
        drawn: The gallery, and who asks it.
        share: Native in the target, above 0.
        seed: Of the draw.
    """

    def __init__(self, data: EmbeddedSet, drawn: Draw, share: float, seed: int) -> None:
        self._outside = drawn.outside
        self._source, self._target = (unit(data.vectors[name][drawn.rows]) for name in (SOURCE, TARGET))
        items = len(drawn.rows)
        self._native = np.zeros(items, bool)
        self._native[np.random.default_rng([seed, items]).permutation(items)[: native_count(share, items)]] = True
        self._by_source = self._outside.source @ self._source.T

    def cells(self, sharpness: float, penalty: float) -> list[str]:
        """Cosine to natives, figures of the target's column, figures of both versions, and their weight."""
        native = self._native
        pairs = Pairs(self._source[native], self._target[native])
        trainer = KernelRidge(sharpness=(sharpness,), penalties=(penalty,))
        made = trainer.fit(pairs).apply(self._source).vectors
        by_target = self._outside.target @ np.where(native[:, None], self._target, made).T
        ways = [(1.0, by_target)]
        for one in (_standard(by_target), _standard_apart(by_target, native)):
            ways += [(weight, (1 - weight) * _standard(self._by_source) + weight * one) for weight in WEIGHTS]
        column, *fused = self._outside.figures(self._blocks([similar for _, similar in ways]), len(ways))
        decides = list(column)[-1] if "map" in column else next(iter(column))
        best = max(range(len(fused)), key=lambda place: fused[place][decides])
        cosine = float(np.einsum("nd,nd->n", made, self._target)[~native].mean())
        return [f"{cosine:.4f}", _points(column), _points(fused[best]), f"{ways[1 + best][0]:g}"]

    def _blocks(self, ways: list[FloatArray]) -> Iterator[tuple[int, Doubles]]:
        order = self._outside.relevance.order
        for start in range(0, len(self._outside.source), _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield start, np.hstack([-one[rows][:, order].astype(np.float64) for one in ways])


def _standard(similar: FloatArray) -> FloatArray:
    return np.asarray((similar - similar.mean()) / similar.std(axis=1).mean(), np.float32)


def _standard_apart(similar: FloatArray, native: BoolArray) -> FloatArray:
    made = np.empty_like(similar)
    for kind in (native, ~native):
        made[:, kind] = _standard(similar[:, kind])
    return made


def _points(figures: dict[str, float]) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in figures.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--asked", type=Path, help="queries that are no items")
    parser.add_argument("--told", type=int, default=300, help="of these, left out as an upgrade would be told them")
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.25])
    options = parser.parse_args()
    for path, seed in itertools.product(options.sets, options.seeds):
        data = EmbeddedSet.load(path)
        if options.asked:
            asked = AskedSet.load(options.asked)
            drawn = draw_asked(data, asked, options.items, options.queries, seed, options.told, "ndcg@10")
        else:
            drawn = draw(data, options.items, options.queries, seed)
        for share in options.shares:
            natives = Natives(data, drawn, share, seed)
            print(f"\n**{data.name}, seed {seed}, {share:.0%} native**\n")
            print("| sharpness | penalty | cosine to natives | target's column | both versions | weight |")
            print("|---" * 6 + "|")
            for settings in itertools.product(SHARPNESS, PENALTIES):
                print(f"| {' | '.join([*(f'{one:g}' for one in settings), *natives.cells(*settings)])} |", flush=True)


if __name__ == "__main__":
    main()
