"""Training of a network on pairs: settings of all such methods, and `fit`.

A method defines the network (`architecture`, `network`) and the objective (`objective`).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import DEVICE, Execution, Network, Precision
from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.loop import Batch, Objective, tensor, train_on_pairs
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.trainer import forward_transform, held_out_figures, hop_figures
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch, fold
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive, Rule, Share
from compatstore.trainers.training import OnEpoch, seeded

AdamOptimiser = Literal["adam", "adamw"]
HoldOutBy = Literal["row", "class"]

# Rows from which the first sigma^2 is taken.
_STARTING = 4096
_DEVICE = Rule("cpu, cuda or cuda:<n>", lambda value: DEVICE.fullmatch(value) is not None)


@dataclass(frozen=True, kw_only=True)
class TransformTraining(ABC):
    """Settings of every network on pairs; the defaults are FCT's (appendix D.5).

    Args:
        epochs: Passes over the pairs, >= 1.
        learning_rate: At the end of the warm-up, > 0.
        weight_decay: Of the optimiser, >= 0.
        batch_size: Largest batch, >= 2; batches of an epoch are of equal size, up to one row. None takes 1024.
        warmup_epochs: Epochs of linear rise, before a cosine to 0; None is 1/16 of the epochs (5 of 80).
        seed: Of initial weights, order of rows and held-out rows. On the CPU, equal seeds give equal weights.
        precision: "float32", or "bfloat16" for the products of the hidden layers; weights and losses stay float32.
        device: "cpu", "cuda" or "cuda:<n>"; None takes CUDA if there is one. All pairs are moved there at once.
        holdout: Share of the rows kept out of training to measure on, in [0, 1); 0 measures nothing.
        holdout_by: Keep out rows, or whole classes, which measures the transform on classes that are not trained on
            and trains on fewer of them; None takes classes where that leaves out two or more, else rows.
        side_transform: Also train g(source, side) -> the target's side-information, by squared distance, for the
            upgrade after the next.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    # "adam", whose weight decay is an L2 penalty, or "adamw", whose decay is apart from the gradient.
    optimiser: ClassVar[AdamOptimiser] = "adam"

    epochs: Count = 80
    learning_rate: Positive = 5e-4
    weight_decay: NotNegative = 2**-15
    batch_size: BatchRows | None = 1024
    warmup_epochs: NotNegative | None = None
    seed: int = 0
    precision: Precision = "float32"
    device: Annotated[str, _DEVICE] | None = None
    holdout: Share = 0.1
    holdout_by: HoldOutBy | None = "row"
    side_transform: bool = False

    @property
    def warmup(self) -> float:
        """Epochs of the warm-up."""
        return self.epochs / 16 if self.warmup_epochs is None else self.warmup_epochs

    @property
    def freeze_after(self) -> int:
        """Epochs after which the running statistics of batch normalisation are held: half of them, 40 of 80."""
        return math.ceil(self.epochs / 2)

    @property
    def torch_device(self) -> torch.device:
        """Device to train on."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Train.

        Args:
            pairs: Training pairs; the artifact is bound to the fingerprints of the versions that the pairs name.
            progress: Called after each epoch of each network.

        Returns:
            A ForwardTransform; its figures are measured on held-out rows with the network as it is stored.

        Raises:
            InvalidInput: Too few rows, or the pairs lack the labels, head or side-information that the settings need.
        """
        kept, held_out = self.split(pairs)
        began, objective = time.perf_counter(), self.objective(kept)
        objectives = {"h": objective, "g": Objective()} if self.side_transform else {"h": objective}
        fitted = {name: self._fit_network(name, kept, held_out, one, progress) for name, one in objectives.items()}
        figures = {name: made[1] for name, made in fitted.items()}
        figures["seconds"] = {"training": time.perf_counter() - began}
        networks, resolved = {name: made[0] for name, made in fitted.items()}, {"resolved": dict(objective.resolved)}
        return forward_transform(self, pairs, networks, figures, resolved)

    @abstractmethod
    def architecture(self, linear: Architecture) -> Architecture:
        """Describe the network, given a single linear layer of the same inputs and outputs."""

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network; a method may compute its initial weights from the rows."""
        return TwoBranch(architecture)

    def objective(self, pairs: Pairs) -> Objective:
        """Return the loss on these pairs."""
        return Objective()

    def split(self, pairs: Pairs) -> tuple[Pairs, Pairs | None]:
        """Return the pairs to learn from and those held out, if any.

        Raises:
            InvalidInput: The pairs lack the side-information that the settings need, or there is too little to split.
        """
        if self.side_transform and pairs.target_side is None:
            operation = f"train {type(self).__name__} with side_transform"
            raise InvalidInput(operation, expected="pairs with target_side", found="none")
        if not self.holdout:
            return pairs, None
        classes = 0 if pairs.labels is None else len(np.unique(pairs.labels))
        by: HoldOutBy = "class" if round(self.holdout * classes) > 1 else "row"
        return pairs.split(self.holdout, self.seed, by=self.holdout_by or by)

    def _fit_network(
        self, name: str, pairs: Pairs, held_out: Pairs | None, objective: Objective, progress: OnEpoch | None
    ) -> tuple[Network, dict[str, Any]]:
        rows = self._batch(name, pairs, objective)
        watched = None if held_out is None else self._batch(name, held_out, objective)
        with seeded(self.seed):
            linear = Architecture(
                source_dim=rows.source.shape[1],
                side_dim=None if rows.side is None else rows.side.shape[1],
                output_dim=rows.target.shape[1],
                uncertainty=objective.uncertainty,
                normalise=unit_length(rows.target.numpy()),
            )
            model = self.network(self.architecture(linear), rows).to(self.torch_device)
            objective.start(model, rows.take(torch.arange(min(len(rows), _STARTING))).to(self.torch_device))
            last = train_on_pairs(
                model, rows, self, objective, held_out=watched, network=name, note=objective.note, progress=progress
            )
        network = Network(model.architecture, {key: tensor.float().numpy() for key, tensor in fold(model).items()})
        figures: dict[str, Any] = {"training_loss": last}
        if watched is not None and held_out is not None:
            made = network.run(held_out.source, held_out.side, Execution())
            if name == "g":
                figures |= held_out_figures(made[0], watched.target.numpy(), None)
            else:
                prediction = Prediction(torch.from_numpy(made[0]).to(self.torch_device), None)
                error = objective.error(prediction, watched.to(self.torch_device)).cpu().numpy()
                figures |= hop_figures(*made, held_out, pairs.target_space.metric, error)
        return network, figures

    def _batch(self, name: str, pairs: Pairs, objective: Objective) -> Batch:
        target = pairs.target_side if name == "g" and pairs.target_side is not None else pairs.target
        batch = Batch(source=tensor(pairs.source), target=tensor(target))
        if pairs.side is not None:
            batch = replace(batch, side=tensor(pairs.side))
        if objective.head is not None and pairs.labels is not None:
            batch = replace(batch, classes=torch.from_numpy(objective.head.classes(pairs.labels)))
        return batch
