"""One trial of the benchmark: which items are pairs to learn from, which are searched and which are queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.settings import Size
from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput
from compatstore.evaluation import retrieval_metrics
from compatstore.trainers import Pairs

Setting = Literal["seen", "unseen"]
SETTINGS: tuple[Setting, ...] = ("seen", "unseen")

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """Rows of a set, by their part in one trial.

    Args:
        data: The set.
        classes: (c,) classes of the pairs, sorted; a pair's label is a position in it.
        pairs: Rows to learn from.
        gallery: Rows that are searched; of classes that no pair has, in the setting "unseen".
        queries: Rows that are searched with, of the gallery's classes.
        seed: Of the choice, and of the methods.
    """

    data: EmbeddedSet
    classes: npt.NDArray[np.int64]
    pairs: Rows
    gallery: Rows
    queries: Rows
    seed: int

    def learn(self, source: str = SOURCE, target: str = TARGET, *, side: bool = False) -> Pairs:
        """Return the pairs from one version to another, perhaps with the side-information of both."""
        rows, data = self.pairs, self.data
        head = data.heads.get(target)
        return Pairs(
            data.vectors[source][rows],
            data.vectors[target][rows],
            side=data.sides[source][rows] if side else None,
            target_side=data.sides[target][rows] if side and target in data.sides else None,
            labels=np.searchsorted(self.classes, data.labels[rows]),
            head=None if head is None else head[self.classes],
        )


def scenario(data: EmbeddedSet, setting: Setting, size: Size, seed: int) -> Scenario:
    """Draw a trial. Gallery and queries are fresh items; pairs are items that are not, where a set has such.

    Where all items of a set are fresh, as with models that were trained elsewhere, pairs are of all that is left.

    Args:
        data: The set.
        setting: "seen": the gallery's classes are among those of the pairs. "unseen": pairs are of a random half of
            the classes, gallery and queries of the other half.
        size: How many of each.
        seed: Of the choice.

    Raises:
        InvalidInput: There is no such setting.
    """
    if setting not in SETTINGS:
        raise InvalidInput("draw a trial", expected=f"one of {SETTINGS}", found=repr(setting))
    random, names = np.random.default_rng(seed), np.unique(data.labels)
    shuffled, half = random.permutation(names), len(names) // 2
    to_learn, to_search = (names, names) if setting == "seen" else (shuffled[:half], shuffled[half:])
    fresh = random.permutation(np.flatnonzero(data.fresh & np.isin(data.labels, to_search)))
    wanted = size.queries + size.gallery
    # At least half of what is fresh stays with the pairs, where both are of the same classes.
    searched = fresh[: min(wanted, len(fresh) // 2 if setting == "seen" else len(fresh))]
    count = len(searched) * size.queries // wanted
    left = np.setdiff1d(np.flatnonzero(np.isin(data.labels, to_learn)), searched)
    apart = left[~data.fresh[left]]
    pairs = np.sort(random.permutation(apart if len(apart) else left)[: size.pairs])
    classes = np.unique(data.labels[pairs])
    return Scenario(
        data=data, classes=classes, pairs=pairs, gallery=searched[count:], queries=searched[:count], seed=seed
    )


def retrieval(trial: Scenario, version: str, gallery: FloatArray) -> dict[str, float]:
    """Search any gallery vectors of a trial, (gallery, dim), with its queries in a version."""
    labels, queries = trial.data.labels, trial.data.vectors[version][trial.queries]
    found = retrieval_metrics(queries, gallery, labels[trial.queries], labels[trial.gallery], ks=(1,))
    return {"cmc1": found.cmc[1], "map": found.map}
