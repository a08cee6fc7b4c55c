"""FastFill: a transform that predicts its errors; its scale of loss and its batches are chosen by retrieval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.candidates import Tried, attempt, ranked
from compatstore.trainers.pairs.fct import two_branches
from compatstore.trainers.pairs.loop import Batch, Loss, Objective, squared_distance
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import RetrievalTest
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.pairs.trainer import Comparison
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch
from compatstore.trainers.settings import BatchRows, Count, Positive, from_to
from compatstore.trainers.training import EpochProgress, OnEpoch

AlignmentLoss = Literal["l2", "disc", "l2+disc"]

_NO_LABELS = (
    "The pairs have no labels: only the squared distance is trained, and nothing keeps a transformed item in its "
    "class. Label the pairs for the loss through the target's head."
)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class FastFill(HeadTraining):
    """Jaeckle et al., "FastFill: Efficient Compatible Model Update" (ICLR 2023).

    FCT's network and schedule, trained for the mean over rows of (L2 + L_disc) / sigma^2 + (1/lambda) log sigma^2
    (equations 3 to 5). L2 is the squared distance to the native vector, summed over the d_t dimensions of the target;
    L_disc is the loss through the target's frozen head; log sigma^2 is one linear unit on the network's output before
    that is normalised. The order of the backfill is by sigma^2, from high to low.

    All settings of FastFill:

    * network: `branch_width`, `mixer_width`;
    * objective: `loss`, `uncertainty`, `beta`, `disc_weight`;
    * the loss through the head, described in `HeadTraining`: `head`, `disc`, `label_smoothing`, `margin`, `scale`;
    * the loop, described in `TransformTraining`: `epochs`, `learning_rate`, `weight_decay`, `batch_size`,
      `warmup_epochs`, `seed`, `precision`, `device`;
    * what is measured and stored, in `TransformTraining` too: `holdout`, `holdout_by`, `side_transform`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.
        loss: "l2", "disc", or "l2+disc", their sum. Without labels "l2+disc" trains "l2" and a note says that.
        uncertainty: Whether to learn sigma^2; without, the loss is the mean of the sum alone.
        beta: From 0, the paper's objective, to 1. Rows with a large sigma^2 weigh little in that objective, and their
            vectors are learned little; at 1 all rows weigh alike, and sigma^2 is learned beside them.
        disc_weight: Weight of the loss through the head beside the squared distance, > 0. None takes 1 for ArcFace,
            whose `scale` is chosen, and chooses it for cross-entropy. The output is multiplied by its root, so that
            vectors of any length are learned at one learning rate.
        scale: Multiplies the cosines of a loss with a margin, > 0; None chooses.
        batch_size: Largest batch, >= 2; batches of an epoch are of equal size, up to one row. None chooses.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    # 1/lambda divided by d_t. At 1 and without L_disc the loss is twice a Gaussian's negative log-likelihood, so that
    # sigma^2 is the variance of a dimension. Another value divides sigma^2 by itself and multiplies the loss; sigma^2
    # starts at its best constant and Adam is independent of the scale of the loss, so little else changes.
    inverse_lambda: ClassVar[float] = 1.0

    branch_width: Count = 256
    mixer_width: Count = 2048
    loss: AlignmentLoss = "l2+disc"
    uncertainty: bool = True
    beta: Annotated[float, from_to(0, 1)] = 0.0
    disc_weight: Positive | None = None
    scale: Positive | None = None
    batch_size: BatchRows | None = None

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Choose what is None, and train on pairs; arguments, result and errors as in `TransformTraining.fit`."""
        chosen = balanced(self, self.split(pairs)[0], progress)
        artifact = super(FastFill, chosen.trainer).fit(pairs, progress)
        if not chosen.settings:
            return artifact
        manifest = artifact.manifest
        return artifact.amended(
            settings={**manifest.settings, "balance": chosen.settings},
            figures={**manifest.figures, **chosen.figures},
        )

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe FCT's network."""
        return two_branches(linear, self.branch_width, self.mixer_width)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, from random weights."""
        return TwoBranch(architecture, gain=math.sqrt(self.disc_weight or 1.0))

    def objective(self, pairs: Pairs) -> Objective:
        """Return what to minimise on these pairs; errors as in `alignment`."""
        inverse_lambda = self.inverse_lambda if self.uncertainty else None
        return alignment(self, pairs, self.loss, inverse_lambda, self.disc_weight or 1.0, self.beta)


def alignment(
    method: HeadTraining,
    pairs: Pairs,
    loss: AlignmentLoss,
    inverse_lambda: float | None,
    disc_weight: float = 1.0,
    beta: float = 0.0,
) -> Objective:
    """FastFill's objective, for a network of any method.

    Args:
        method: Says which loss is taken through the head.
        pairs: The pairs to train on.
        loss: "l2", "disc" or "l2+disc".
        inverse_lambda: 1/lambda divided by the target's dimension; None trains without uncertainty.
        disc_weight: Weight of the loss through the head beside the squared distance.
        beta: Of `FastFill`.

    Raises:
        InvalidInput: The loss "disc" without labels, or a label is no row of the given head.
    """
    if inverse_lambda is not None:
        inverse_lambda *= pairs.target.shape[1]
    resolved: dict[str, str | float] = {} if inverse_lambda is None else {"inverse_lambda": inverse_lambda}
    if loss == "l2" or (loss == "l2+disc" and pairs.labels is None):
        note = _NO_LABELS if loss != "l2" else ""
        resolved |= {"loss": "l2", "note": note}
        return Objective(inverse_lambda=inverse_lambda, beta=beta, resolved=resolved, note=note)
    through = method.through_head(pairs)
    return Objective(
        error=through.error if loss == "disc" else _plus_distance(through.error, disc_weight),
        inverse_lambda=inverse_lambda,
        beta=beta,
        head=through.head,
        resolved={**resolved, "loss": loss, **through.resolved},
    )


def _plus_distance(through_head: Loss, weight: float) -> Loss:
    """L2 + weight L_disc of each row (FastFill, equation 3, where the weight is 1)."""

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        return squared_distance(prediction, batch) + weight * through_head(prediction, batch)

    return loss


SCALES = (64.0, 16.0, 4.0, 1.0)
"""Of ArcFace and CosFace. 64 is their own; the lower, the more the squared distance weighs beside it."""

VARIANCES = (0.1, 1.0)
"""Weights of a cross-entropy beside 1, as shares of the target's variance: then vectors of any length weigh alike."""

BATCHES = (256, 1024)
NOT_COMPARED = "Too few pairs to keep some apart and compare candidates on them."
UNTRIED_SCALE = 4.0  # where nothing can be compared

# A trial trains half the epochs on four fifths of this many pairs at most, and is asked by the rest.
ROWS, EPOCHS, HELD_OUT, GALLERY, K = 6000, 0.5, 0.2, 2000, 10

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

    First the scale of ArcFace, or the weight of a cross-entropy, with batches of 256; then the batch, with the best of
    these. Each candidate is trained on a part of the pairs, for half the epochs, and asked with the native vectors of
    pairs that are kept apart, rows or whole classes as `holdout_by` says. The one is chosen that serves best while its
    gallery is backfilled in the order of sigma^2: by the mean of the areas of CMC-1 and mAP where there are labels,
    otherwise by the area of the recall of the target's own neighbours.

    Where too few pairs are kept apart to compare anything, a scale of 4 (a weight of a tenth of the variance) and
    batches of 256 are taken, and the manifest says that.

    Args:
        trainer: The settings.
        pairs: To choose on: those that will be trained on.
        progress: Called after each epoch of each candidate.
    """
    losses: Sequence[Setting] = _losses(trainer, pairs) or [{}]
    batches: Sequence[Setting] = [{"batch_size": rows} for rows in BATCHES] if trainer.batch_size is None else [{}]
    if len(losses) == len(batches) == 1:
        return Balanced(trainer=replace(trainer, **losses[0]))
    try:
        trials = Trials(trainer, pairs, progress)
        tried = [trials.run({**loss, **batches[0]}) for loss in losses]
        best, _ = trials.ranked(tried)
        if len(trials.fitted) > BATCHES[0]:  # fewer rows are one batch either way
            tried += [trials.run({**trials.settings[best.candidate.name], **batch}) for batch in batches[1:]]
        best, comparison = trials.ranked(tried)
    except InvalidInput:
        settings = {**_untried(losses), **batches[0]}
        return Balanced(trainer=replace(trainer, **settings), settings={**settings, "note": NOT_COMPARED})
    settings = dict(trials.settings[best.candidate.name])
    return Balanced(trainer=replace(trainer, **settings), settings=settings, figures={"balance": comparison.to_dict()})


def _losses(trainer: FastFill, pairs: Pairs) -> list[Setting]:
    """Candidates of the balance between the two losses; none where there is one loss, or the user's own balance."""
    if trainer.loss == "l2" or pairs.labels is None:
        return []
    if trainer.disc_of(pairs) != "cross-entropy":
        return [{"scale": scale} for scale in SCALES] if trainer.scale is None else []
    if trainer.loss == "disc" or trainer.disc_weight is not None:
        return []
    variance = float(np.square(pairs.target - pairs.target.mean(axis=0)).sum(axis=1).mean())
    weights = [1.0, *(share * variance for share in VARIANCES if variance > 0)]
    return [{"disc_weight": weight} for weight in dict.fromkeys(weights)]


def _untried(losses: Sequence[Setting]) -> Setting:
    """What is taken where nothing can be compared: of weights the one after 1, a tenth of the variance."""
    found = [each for each in losses if each.get("scale") == UNTRIED_SCALE]
    return (found or losses[1:2] or losses)[0]


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
        self.held_out, self.settings = held_out, dict[str, Setting]()
        self._trainer = replace(trainer, epochs=max(1, round(EPOCHS * trainer.epochs)), side_transform=False)
        self._progress = progress
        self._test = RetrievalTest(
            self.fitted,
            {"held_out": held_out},
            k=K,
            queries=GALLERY,
            rows=GALLERY,
            metric=pairs.target_space.metric or "l2",
            seed=trainer.seed,
            backfill=True,
        )

    def run(self, settings: Setting) -> Tried:
        """Train and test a candidate."""
        name = ", ".join(f"{key} {value:g}" for key, value in settings.items())
        self.settings[name] = settings
        trainer = replace(self._trainer, **settings)
        return attempt(name, trainer, self.fitted, self._test, self._named(name))

    def ranked(self, tried: Sequence[Tried]) -> tuple[Tried, Comparison]:
        """The best, and the table."""
        return ranked(tried, self._test, seed=self._trainer.seed)

    def _named(self, name: str) -> OnEpoch | None:
        told = self._progress
        if told is None:
            return None

        def progress(at: EpochProgress) -> None:
            told(replace(at, network=f"{at.network}, {name}"))

        return progress
