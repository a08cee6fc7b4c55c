"""Balance: the sizes of FastFill's two losses, and its batches, chosen by retrieval on pairs that are kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.candidates import Tried, attempt, ranked
from compatstore.trainers.pairs.comparison import Comparison
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import RetrievalTest
from compatstore.trainers.training import EpochProgress, OnEpoch

if TYPE_CHECKING:
    from compatstore.trainers.pairs.fastfill import FastFill

MARGINS = (0.5, 0.3, 0.1)
"""Of ArcFace, in radians. 0.5 is its own; what serves best is near to the target's own."""

SCALES = (64.0, 16.0, 4.0, 1.0)
"""Of ArcFace. 64 is its own; the lower, the more the squared distance weighs beside it."""

VARIANCES = (0.1, 1.0)
"""Weights of a cross-entropy beside 1, as shares of the target's variance: then vectors of any length weigh alike."""

BATCHES = (256, 1024)
NOT_COMPARED = "Too few pairs to keep some apart and compare candidates on them."
MARGINS_TRIED_AT = 16.0  # scale
UNTRIED = {"margin": 0.5, "scale": 4.0}  # where nothing can be compared

# A trial trains half the epochs on four fifths of this many pairs at most, and is asked by some of the rest.
ROWS, EPOCHS, HELD_OUT, QUERIES, GALLERY, K = 6000, 0.5, 0.2, 500, 2000, 10
RESAMPLES = 1000

Setting = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Balanced:
    """What was chosen.

    Args:
        trainer: With nothing left to choose.
        settings: What was chosen, JSON-able; empty where nothing was left to choose.
        figures: The table of the candidates, as `Comparison.to_dict`; empty where none could be tried.
    """

    trainer: FastFill
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)


def balanced(trainer: FastFill, pairs: Pairs, progress: OnEpoch | None = None) -> Balanced:
    """Choose the settings of FastFill that are None.

    First the margin of ArcFace, at a scale of 16, then its scale with the best margin, or the weight of a
    cross-entropy; then the batch, which is 256 until then. Each candidate is trained on a part of the pairs, for half
    the epochs, and asked with the native vectors of pairs that are kept apart, rows or whole classes as `holdout_by`
    says. The one is chosen that serves best while its gallery is backfilled in the order of sigma^2: by the mean of the
    areas of CMC-1 and mAP where there are labels, otherwise by the area of the recall of the target's own neighbours.

    Where too few pairs are kept apart to compare anything, a margin of 0.5, a scale of 4 (a weight of a tenth of the
    variance) and batches of 256 are taken, and the manifest says that.

    Args:
        trainer: The settings.
        pairs: To choose on: those that will be trained on.
        progress: Called after each epoch of each candidate.
    """
    ladders = _losses(trainer, pairs)
    if trainer.batch_size is None:
        ladders["batch_size"] = BATCHES
    if not ladders:
        return Balanced(trainer=trainer)
    start = {name: values[0] for name, values in ladders.items()}
    if "margin" in ladders:
        start["scale"] = MARGINS_TRIED_AT
    try:
        trials, best = Trials(trainer, pairs, progress), dict[str, Any](start)
        for name, values in ladders.items():
            few = name == "batch_size" and len(trials.fitted) <= BATCHES[0]  # fewer rows are one batch either way
            for value in values[:1] if few else values:
                trials.run({**best, name: value})
            best, comparison = trials.best()
    except InvalidInput:
        settings: dict[str, Any] = {name: _untried(name, values) for name, values in ladders.items()}
        return Balanced(trainer=replace(trainer, **settings), settings={**settings, "note": NOT_COMPARED})
    return Balanced(trainer=replace(trainer, **best), settings=best, figures={"balance": comparison.to_dict()})


def _losses(trainer: FastFill, pairs: Pairs) -> dict[str, Sequence[float]]:
    """Candidates of the balance between the two losses: settings in the order in which they are chosen -> values.

    None where there is one loss, or the user's own balance.
    """
    if trainer.loss == "l2" or pairs.labels is None:
        return {}
    if trainer.disc_of(pairs) == "arcface":
        margins: dict[str, Sequence[float]] = {"margin": MARGINS} if trainer.margin is None else {}
        return {**margins, "scale": SCALES} if trainer.scale is None else {}
    if trainer.loss == "disc" or trainer.disc_weight is not None:
        return {}
    variance = float(np.square(pairs.target - pairs.target.mean(axis=0)).sum(axis=1).mean())
    weights = [1.0, *(share * variance for share in VARIANCES if variance > 0)]
    return {"disc_weight": list(dict.fromkeys(weights))}


def _untried(name: str, values: Sequence[float]) -> float:
    """What is taken where nothing can be compared: of weights the one after 1, a tenth of the variance."""
    return UNTRIED.get(name, values[1] if name == "disc_weight" and len(values) > 1 else values[0])


class Trials:
    """Trainings of candidates on a part of the pairs, and the test that they are compared by.

    Attributes:
        fitted: Pairs that each is trained on.
        held_out: Pairs that they are compared on.
        settings: Name of a candidate -> what it was tried with.

    Args:
        trainer: The settings that the candidates share.
        pairs: To take the part from.
        progress: Called after each epoch of each candidate.

    Raises:
        InvalidInput: Too few pairs.
    """

    def __init__(self, trainer: FastFill, pairs: Pairs, progress: OnEpoch | None) -> None:
        part = np.sort(np.random.default_rng(trainer.seed).permutation(len(pairs))[:ROWS])
        apart = replace(trainer, holdout=HELD_OUT)
        self.fitted, held_out = apart.split(pairs.subset(part))
        if held_out is None:
            raise InvalidInput("keep pairs apart", expected="a part of them", found="none")
        self.held_out, self.settings, self._tried = held_out, dict[str, Setting](), list[Tried]()
        self._trainer = replace(trainer, epochs=max(1, round(EPOCHS * trainer.epochs)), side_transform=False)
        self._progress = progress
        self._test = RetrievalTest(
            self.fitted,
            {"held_out": held_out},
            k=K,
            queries=QUERIES,
            rows=GALLERY,
            metric=pairs.target_space.metric or "l2",
            seed=trainer.seed,
            backfill=True,
        )

    def run(self, settings: Setting) -> None:
        """Train and test a candidate, unless it was."""
        name = ", ".join(f"{key} {value:g}" for key, value in settings.items())
        if name not in self.settings:
            self.settings[name] = settings
            trainer = replace(self._trainer, **settings)
            self._tried.append(attempt(name, trainer, self.fitted, self._test, self._named(name)))

    def best(self) -> tuple[dict[str, Any], Comparison]:
        """Settings of the best so far, and the table."""
        best, comparison = ranked(self._tried, self._test, resamples=RESAMPLES, seed=self._trainer.seed)
        return dict(self.settings[best.candidate.name]), comparison

    def _named(self, name: str) -> OnEpoch | None:
        told = self._progress
        if told is None:
            return None

        def progress(at: EpochProgress) -> None:
            told(replace(at, network=f"{at.network}, {name}"))

        return progress
