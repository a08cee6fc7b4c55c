"""What a sample says of the whole gallery, put right by what is known of it.

Strategies that need no native vector of the gallery are measured in all of it. What a sample says of these strategies
is therefore known to be wrong, and by how much; what it says of the other strategies is wrong in part for the same
reasons, the draw of the items first of all. So each other figure is corrected by the error of the known ones, as a
regression estimator does: by the multiple that the influences of the sampled items on the two figures have in common.
Where the known errors are larger than the draw of the items explains, the sample tells the gallery's ranks badly (few
correct items, 1 item in many drawn): the others are then as uncertain as that. CMC asks for the very nearest items, of
which a sample has few: only strategies that are measured in the whole gallery have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.evaluation.sampled import QueryFigures
from compatstore.evaluation.whole import WholeFigures


def reach(correct: Positions, items: int, population: int) -> Doubles:
    """The chance that a sample of `items` that a query is one of holds some of its `correct` items: (q,) float64."""
    share = (items - 1) / max(population - 1, 1)
    chance = 1.0 - (1.0 - share) ** correct.astype(np.float64)
    return np.where(correct > 0, np.maximum(chance, 1e-12), 1.0)


def map_alone(found: QueryFigures, *, merged: bool = False) -> QueryFigures:
    """What a sample says without anything to put it right by: mAP.

    Nothing of a rank merge: its calibration is by sampled natives, and its intervals held too seldom.
    """
    values = found.values.copy()
    values[: None if merged else -1] = np.nan
    return replace(found, values=values)


def put_right(
    notations: Sequence[str], founds: Sequence[QueryFigures], whole: WholeFigures, asked: Doubles
) -> list[QueryFigures]:
    """Take what is known of the whole gallery for the strategies that it is known of, and correct the others by it.

    Args:
        notations: Of the strategies.
        founds: What the queries found by each in the sample; influences weighed by `asked`.
        whole: What they found in the whole gallery.
        asked: (q,) float64, what each query weighs where it has a correct item in the sample.
    """
    first = {name: place for place, name in reversed(list(enumerate(notations)))}
    known = [name for name in whole.values if name in first]
    counted = whole.correct > 0
    weights = np.where(founds[0].counted, asked, 0.0)
    weights *= counted.sum() / max(weights[counted].sum(), 1.0)
    sampled = [weights * np.nan_to_num(found.values[-1]) for found in founds]
    errors = np.array([whole.values[name][-1] - sampled[first[name]] for name in known])
    pulls = np.array([founds[first[name]].influence[-1] for name in known])
    drawn = pulls.std(axis=1) / np.sqrt(pulls.shape[1])
    unexplained = float(np.maximum(np.abs(errors[:, counted].mean(axis=1)) - 2 * drawn, 0.0).max())
    made = []
    for name, mine, found in zip(notations, sampled, founds, strict=True):
        if name in whole.values:
            made.append(QueryFigures(values=whole.values[name], influence=np.zeros_like(found.influence)))
            continue
        share = np.linalg.lstsq(pulls.T, found.influence[-1], rcond=None)[0]
        values, influence = np.full_like(found.values, np.nan), np.zeros_like(found.influence)
        values[-1] = np.where(counted, mine + share @ errors, np.nan)
        influence[-1] = found.influence[-1] - share @ pulls
        left = float(influence[-1].std() / max(found.influence[-1].std(), 1e-12))
        doubt = unexplained * min(2 * left, 1.0)
        made.append(QueryFigures(values=values, influence=influence, doubt=doubt))
    return made
