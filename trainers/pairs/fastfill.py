"""FastFill: a transform that predicts its errors."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.trainers.pairs.balance import balanced
from compatstore.trainers.pairs.fct import two_branches
from compatstore.trainers.pairs.loop import Batch, Objective, squared_distance
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch
from compatstore.trainers.settings import BatchRows, Count, Positive, from_to
from compatstore.trainers.training import OnEpoch

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
    * measurement and storage, in `TransformTraining` too: `holdout`, `holdout_by`, `side_transform`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.
        loss: "l2", "disc", or "l2+disc", their sum. Without labels "l2+disc" trains "l2", with a note.
        uncertainty: True to learn sigma^2; else the loss is the mean of the sum alone.
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
        """Train h by the paper's equations, with the settings that `balanced` chooses where they are None.

        The mean over pairs (x, y) is minimised of

        *   L(x) = L2(h(x), y) + w L_disc(h(x)) (equation 3; w is 1),
        *   divided by sigma^2(x), plus (1/lambda) log sigma^2(x) (equation 5).

        `alignment` computes L, and `Objective` what is made of it. The training is that of the same settings by name.

        Args:
            pairs: As of `TransformTraining.fit`.
            progress: Called after each epoch, also of what is tried for a choice.

        Returns:
            A ForwardTransform as of `TransformTraining.fit`, with the choice in its settings and figures.

        Raises:
            InvalidInput: As of `TransformTraining.fit`.
        """
        began = time.perf_counter()
        choice = balanced(self, self.split(pairs)[0], progress)
        seconds = {"choosing": time.perf_counter() - began}
        made = TransformTraining.fit(choice.trainer, pairs, progress)
        settings, figures = made.manifest.settings, made.manifest.figures
        return made.amended(
            settings={**settings, **choice.settings},
            figures={**figures, **choice.figures, "seconds": {**seconds, **figures["seconds"]}},
        )

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe FCT's network."""
        return two_branches(linear, self.branch_width, self.mixer_width)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, from random weights."""
        return TwoBranch(architecture, gain=math.sqrt(self.disc_weight or 1.0))

    def objective(self, pairs: Pairs) -> Objective:
        """Return the loss on these pairs; errors as in `alignment`."""
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
        resolved |= {"loss": "l2", "note": (note := _NO_LABELS if loss != "l2" else "")}
        return Objective(inverse_lambda=inverse_lambda, beta=beta, resolved=resolved, note=note)
    l_disc = HeadTraining.objective(method, pairs)

    def error(prediction: Prediction, batch: Batch) -> torch.Tensor:  # equation 3, where the weight is 1
        return squared_distance(prediction, batch) + disc_weight * l_disc.error(prediction, batch)

    return replace(
        l_disc,
        error=l_disc.error if loss == "disc" else error,
        inverse_lambda=inverse_lambda,
        beta=beta,
        resolved={**resolved, "loss": loss, **l_disc.resolved},
    )
