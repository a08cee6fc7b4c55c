"""How a forward transform is learnt from pairs; a method says which network, started how, and for which objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
import torch

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.fold import Tensors, fold
from compatstore.trainers.pairs.held_out import held_out_figures, uncertainty_figures
from compatstore.trainers.pairs.loop import PairTraining, Report, require_settings, seeded, train_on_pairs
from compatstore.trainers.pairs.losses import Batch, squared_distance
from compatstore.trainers.pairs.objective import Objective
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch
from compatstore.versions import Metric

HoldOutBy = Literal["row", "class"]

# Rows that sigma^2 is started on.
_STARTING = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trained:
    name: str
    architecture: Architecture
    tensors: dict[str, FloatArray]
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TransformTraining(PairTraining, ABC):
    """What every method shares; settings of the loop are those of `PairTraining`.

    Args:
        holdout: Share kept out of training to measure on, in [0, 1); 0 measures nothing.
        holdout_by: Keep out rows, or whole classes, which judges the transform on classes that it never saw but
            learns nothing about them; None takes classes where that leaves out two or more, else rows.
        side_transform: Also train g(source, side) -> the target's side-information, by squared distance, for the hop
            after.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    holdout: float = 0.1
    holdout_by: HoldOutBy | None = "row"
    side_transform: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            "holdout in [0, 1)": 0 <= self.holdout < 1,
            f"holdout_by of {get_args(HoldOutBy)}": self.holdout_by in (None, *get_args(HoldOutBy)),
        }
        require_settings(type(self).__name__, rules)

    @checked
    def fit(self, pairs: Pairs, progress: Report | None = None) -> Artifact:
        """Train on pairs.

        Args:
            pairs: What to learn from; bound to their versions' fingerprints where they name versions.
            progress: Called after each epoch of each network.

        Returns:
            A ForwardTransform, with figures on held-out rows, measured on the very network that it carries.

        Raises:
            InvalidInput: Too few rows, or the pairs lack the labels, head or side-information that is asked for.
        """
        if self.side_transform and pairs.target_side is None:
            asked = f"train {type(self).__name__} with side_transform"
            raise InvalidInput(asked, expected="pairs with target_side", found="none")
        kept, held_out = self.split(pairs)
        objective = self.objective(kept)
        parts = [self._fit_network("h", kept, held_out, objective, progress)]
        if self.side_transform:
            parts.append(self._fit_network("g", kept, held_out, Objective(), progress))
        return Artifact.create(
            "ForwardTransform",
            method=type(self).__name__,
            source=pairs.source_space,
            target=pairs.target_space,
            side_source=None if parts[0].architecture.side_dim is None else pairs.side_source,
            side_target=pairs.side_target if self.side_transform else None,
            networks={part.name: part.architecture for part in parts},
            tensors={f"{part.name}.{key}": tensor for part in parts for key, tensor in part.tensors.items()},
            settings=asdict(self) | {"resolved": dict(objective.resolved)},
            figures={part.name: part.figures for part in parts},
            seen=pairs.seen,
        )

    @abstractmethod
    def architecture(self, linear: Architecture) -> Architecture:
        """Describe the network, given the one linear layer from these inputs to these outputs."""

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, and start it from the rows where a method does so."""
        return TwoBranch(architecture)

    def objective(self, pairs: Pairs) -> Objective:
        """Say what to train for, given the pairs to train on."""
        return Objective()

    def side(self, pairs: Pairs) -> FloatArray | None:
        """Return what a side branch reads, (n, side dim), or None for no side branch."""
        return pairs.side

    def finish(self, architecture: Architecture, tensors: Tensors) -> tuple[Architecture, Tensors]:
        """Turn the trained network, folded, into the one that is stored."""
        return architecture, tensors

    def split(self, pairs: Pairs) -> tuple[Pairs, Pairs | None]:
        """Return the pairs to learn from and those held out, if any."""
        if not self.holdout:
            return pairs, None
        classes = 0 if pairs.labels is None else len(np.unique(pairs.labels))
        by: HoldOutBy = "class" if round(self.holdout * classes) > 1 else "row"
        return pairs.split(self.holdout, self.seed, by=self.holdout_by or by)

    def _fit_network(
        self, name: str, pairs: Pairs, held_out: Pairs | None, objective: Objective, progress: Report | None
    ) -> _Trained:
        rows = self._batch(name, pairs, objective)
        watched = None if held_out is None else self._batch(name, held_out, objective)
        with seeded(self.seed):
            model = self.network(self._architecture(rows, objective), rows).to(self.torch_device)
            objective.start(model, rows.take(torch.arange(min(len(rows), _STARTING))).to(self.torch_device))
            last = train_on_pairs(
                model, rows, self, objective, held_out=watched, network=name, note=objective.note, report=progress
            )
        architecture, tensors = self.finish(model.architecture, fold(model))
        arrays = {key: tensor.float().numpy() for key, tensor in tensors.items()}
        figures = {"training_loss": last}
        if watched is not None:
            metric = pairs.target_space.metric if name == "h" else None
            figures |= _figures(Network(architecture, arrays), watched, objective, metric, self.torch_device)
        return _Trained(name=name, architecture=architecture, tensors=arrays, figures=figures)

    def _architecture(self, rows: Batch, objective: Objective) -> Architecture:
        linear = Architecture(
            source_dim=rows.source.shape[1],
            side_dim=None if rows.side is None else rows.side.shape[1],
            output_dim=rows.target.shape[1],
            uncertainty=objective.uncertainty,
            normalise=unit_length(rows.target.numpy()),
        )
        return self.architecture(linear)

    def _batch(self, name: str, pairs: Pairs, objective: Objective) -> Batch:
        side, head = self.side(pairs), objective.head
        target = pairs.target_side if name == "g" and pairs.target_side is not None else pairs.target
        classes = None if head is None or pairs.labels is None else head.classes(pairs.labels)
        return Batch(
            source=torch.from_numpy(pairs.source),
            target=torch.from_numpy(target),
            side=None if side is None else torch.from_numpy(side),
            classes=None if classes is None else torch.from_numpy(classes),
        )


def _figures(
    network: Network, held_out: Batch, objective: Objective, metric: Metric | None, device: torch.device
) -> dict[str, float]:
    side = None if held_out.side is None or network.architecture.side_dim is None else held_out.side.numpy()
    vectors, sigma2 = network.run(held_out.source.numpy(), side, Execution())
    figures = held_out_figures(vectors, held_out.target.numpy(), metric)
    if sigma2 is not None:
        prediction, rows = Prediction(torch.from_numpy(vectors).to(device), None), held_out.to(device)
        error = objective.error(prediction, rows).cpu().numpy()
        figures |= uncertainty_figures(sigma2, error, squared_distance(prediction, rows).cpu().numpy())
    return figures
