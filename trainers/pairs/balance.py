"""Choice of FastFill's settings that are None: the balance between its two losses, and the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import RetrievalTest
from compatstore.trainers.pairs.selection import RetrievalTrial, compare, ranked
from compatstore.trainers.training import EpochProgress, OnEpoch

if TYPE_CHECKING:
    from compatstore.trainers.pairs.fastfill import FastFill

SCALES = (64.0, 16.0, 4.0, 1.0)
"""Of ArcFace and CosFace. 64 is their own; the lower, the more the squared distance weighs beside it."""

VARIANCES = (0.1, 1.0)
"""Weights of a cross-entropy beside 1, as shares of the target's variance: then vectors of any length weigh alike."""

BATCHES = (256, 1024)
NOT_COMPARED = "Too few pairs to keep some apart and compare candidates on them."
UNTRIED_SCALE = 4.0  # where nothing can be compared

# A trial trains a part of the epochs on four fifths of this many pairs at most, and is tested with the rest as queries.
# All losses are screened by short trials; the better half of them goes on to longer ones, with which batches compare.
ROWS, SCREENED, EPOCHS, HELD_OUT, GALLERY, K = 3000, 0.1, 0.25, 0.2, 2000, 10

Setting = Mapping[str, Any]


class BalanceChoice(NamedTuple):
    """FastFill with no setting left open.

    Attributes:
        trainer: The trainer.
        settings: The settings that were chosen, JSON-able, under "balance"; empty if nothing was left to choose.
        figures: The table of what was compared, under "balance"; empty if nothing could be.
    """

    trainer: FastFill
    settings: Mapping[str, Setting]
    figures: Mapping[str, Any]


def balanced(trainer: FastFill, pairs: Pairs, progress: OnEpoch | None = None) -> BalanceChoice:
    """Choose the settings of FastFill that are None.

    First the scale of ArcFace, or the weight of a cross-entropy, with batches of 256; then the batch, with the best of
    these. Each candidate is trained on a part of the pairs, for a part of the epochs, and tested with the native
    vectors of held-out pairs as queries, rows or whole classes by `holdout_by`. The candidate is chosen that serves
    best while its gallery is backfilled in the order of sigma^2: by the mean of the areas of CMC-1 and mAP with labels,
    otherwise by the area of the recall of the target's own neighbours. The worse half of the scales, or weights, is
    left out after a tenth of the epochs (successive halving: Jamieson and Talwalkar 2016).

    Where too few pairs are kept apart to compare anything, a scale of 4 (a weight of a tenth of the variance) and
    batches of 256 are taken, and the manifest notes it.

    Args:
        trainer: The settings.
        pairs: To choose on: those that will be trained on.
        progress: Called after each epoch of each candidate.
    """
    losses: list[Setting] = _losses(trainer, pairs) or [{}]
    batches: Sequence[Setting] = [{"batch_size": rows} for rows in BATCHES] if trainer.batch_size is None else [{}]
    if len(losses) == len(batches) == 1:
        return BalanceChoice(replace(trainer, **losses[0]), {}, {})
    try:
        fitted, held_out = apart(trainer, pairs)
        sizes, metric = {"k": K, "queries": GALLERY, "rows": GALLERY}, pairs.target_space.metric or "l2"
        test = RetrievalTest(fitted, {"held_out": held_out}, **sizes, metric=metric, seed=trainer.seed, backfill=True)
        trials, tried, halved = list[RetrievalTrial](), dict[str, Setting](), losses

        def attempt(share: float, settings: Setting) -> RetrievalTrial:
            name = ", ".join(f"{key} {value:g}" for key, value in settings.items())
            tried[name] = settings

            def report(at: EpochProgress) -> None:
                if progress is not None:
                    progress(replace(at, network=f"{at.network}, {name}"))

            epochs = max(1, round(share * trainer.epochs))
            brief = replace(trainer, epochs=epochs, side_transform=False, **settings)
            return RetrievalTrial(brief, test, name).step(report)

        if len(losses) > 2:
            screened = [attempt(SCREENED, {**loss, **batches[0]}) for loss in losses]
            screened = [*ranked(screened), *(one for one in screened if one.skipped)]
            half = -(-len(losses) // 2)
            halved, trials = [tried[one.name] for one in screened[:half]], screened[half:]
            for one in trials:
                one.skipped = f"behind after {SCREENED:.0%} of the epochs"
        trials += [attempt(EPOCHS, {**loss, **batches[0]}) for loss in halved]
        comparison = compare(trials, test, trainer.seed)
        if len(fitted) > BATCHES[0]:  # fewer rows are one batch either way
            best = tried[comparison.best.name]
            trials += [attempt(EPOCHS, {**best, **batch}) for batch in batches[1:]]
            comparison = compare(trials, test, trainer.seed)
    except InvalidInput:
        # The scale; or of the weights the one after 1, a tenth of the variance.
        untried = [each for each in losses if each.get("scale") == UNTRIED_SCALE] or losses[1:2] or losses
        settings = {**untried[0], **batches[0]}
        return BalanceChoice(replace(trainer, **settings), {"balance": {**settings, "note": NOT_COMPARED}}, {})
    settings = dict(tried[comparison.best.name])
    return BalanceChoice(replace(trainer, **settings), {"balance": settings}, {"balance": comparison.to_dict()})


def apart(trainer: FastFill, pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Pairs that each candidate is trained on, of a part of all, and pairs that they are compared on.

    Raises:
        InvalidInput: Too few pairs.
    """
    part = np.sort(np.random.default_rng(trainer.seed).permutation(len(pairs))[:ROWS])
    fitted, held_out = replace(trainer, holdout=HELD_OUT).split(pairs.subset(part))
    assert held_out is not None, "a part is held out"
    return fitted, held_out


def _losses(trainer: FastFill, pairs: Pairs) -> list[Setting]:
    """Candidates of the balance between the two losses; none if there is one loss, or the user's own balance."""
    if trainer.loss == "l2" or pairs.labels is None:
        return []
    if trainer.disc_of(pairs) != "cross-entropy":
        return [{"scale": scale} for scale in SCALES] if trainer.scale is None else []
    if trainer.loss == "disc" or trainer.disc_weight is not None:
        return []
    variance = float(np.square(pairs.target - pairs.target.mean(axis=0)).sum(axis=1).mean())
    weights = [1.0, *(share * variance for share in VARIANCES if variance > 0)]
    return [{"disc_weight": weight} for weight in dict.fromkeys(weights)]
