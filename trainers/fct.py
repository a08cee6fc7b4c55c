"""Forward-compatible training: learn to transform stored vectors into the target space."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

import numpy as np
import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.encoders.protocol import FloatArray
from compatstore.errors import InvalidInput
from compatstore.trainers.fold import fold, fold_zero_side
from compatstore.trainers.held_out import held_out_figures
from compatstore.trainers.pair_loop import PairTraining, Report, require_settings, seeded, train_on_pairs
from compatstore.trainers.pair_losses import Batch, Loss, head_divergence, squared_distance
from compatstore.trainers.pairs import Pairs, unit_length
from compatstore.trainers.two_branch import TwoBranch

LossName = Literal["l2", "kl", "reversed-kl"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trained:
    name: str
    architecture: Architecture
    tensors: dict[str, FloatArray]
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class FCT(PairTraining):
    """Ramanujan et al., "Forward Compatible Training for Large-Scale Embedding Retrieval Systems" (CVPR 2022).

    Trains h(source, side) -> target, without a side branch where the pairs carry no side-information. Settings of
    the loop are those of `PairTraining`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.
        bias: Whether layers before a batch normalisation have a bias.
        loss: "l2", the squared distance summed over dimensions and averaged over the batch; "kl" or "reversed-kl"
            between the classes that the target's head gives, as ablations: they need `Pairs.head`.
        zero_side: Feed zeros to a side branch, as the paper does without side-information: an ablation.
        side_transform: Also train g(source, side) -> the target's side-information, by "l2", for the hop after.
        holdout: Share of the rows kept out of training to measure on, in [0, 1); 0 measures nothing.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    branch_width: int = 256
    mixer_width: int = 2048
    bias: bool = True
    loss: LossName = "l2"
    zero_side: bool = False
    side_transform: bool = False
    holdout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            "branch_width >= 1": self.branch_width >= 1,
            "mixer_width >= 1": self.mixer_width >= 1,
            f"loss of {get_args(LossName)}": self.loss in get_args(LossName),
            "holdout in [0, 1)": 0 <= self.holdout < 1,
        }
        require_settings("FCT", rules)

    def fit(self, pairs: Pairs, progress: Report | None = None) -> Artifact:
        """Train on pairs.

        Args:
            pairs: What to learn from; bound to their versions' fingerprints where they name versions.
            progress: Called after each epoch of each network.

        Returns:
            A ForwardTransform, with figures on held-out rows, measured on the very network that it carries.

        Raises:
            InvalidInput: Too few rows, or the pairs lack the head or the side-information that is asked for.
        """
        self._require(pairs)
        kept, held_out = pairs.split(self.holdout, self.seed) if self.holdout else (pairs, None)
        parts = [self._fit_network("h", kept, held_out, progress)]
        if self.side_transform:
            parts.append(self._fit_network("g", kept, held_out, progress))
        return Artifact.create(
            "ForwardTransform",
            method="FCT",
            source=pairs.source_space,
            target=pairs.target_space,
            side_source=None if self.zero_side else pairs.side_source,
            side_target=pairs.side_target if self.side_transform else None,
            networks={part.name: part.architecture for part in parts},
            tensors={f"{part.name}.{key}": tensor for part in parts for key, tensor in part.tensors.items()},
            settings=asdict(self),
            figures={part.name: part.figures for part in parts},
        )

    def _fit_network(self, name: str, pairs: Pairs, held_out: Pairs | None, progress: Report | None) -> _Trained:
        outputs = _outputs(name, pairs)
        architecture = self._architecture(pairs, outputs)
        with seeded(self.seed):
            model = TwoBranch(architecture, bias=self.bias)
            last = train_on_pairs(
                model,
                self._batch(name, pairs),
                self,
                self._loss(pairs) if name == "h" else squared_distance,
                held_out=None if held_out is None else self._batch(name, held_out),
                network=name,
                report=progress,
            )
        tensors = fold(model)
        if self.zero_side:
            architecture, tensors = fold_zero_side(architecture, tensors)
        arrays = {key: tensor.float().numpy() for key, tensor in tensors.items()}
        figures = {} if held_out is None else _figures(name, Network(architecture, arrays), held_out)
        return _Trained(name=name, architecture=architecture, tensors=arrays, figures={"training_loss": last} | figures)

    def _architecture(self, pairs: Pairs, outputs: FloatArray) -> Architecture:
        side_dim = None if pairs.side is None else pairs.side.shape[1]
        if self.zero_side:
            side_dim = side_dim or pairs.source.shape[1]
        branch = (self.branch_width, self.branch_width)
        return Architecture(
            source_dim=pairs.source.shape[1],
            side_dim=side_dim,
            output_dim=outputs.shape[1],
            source_branch=branch,
            side_branch=() if side_dim is None else branch,
            mixer=(self.mixer_width, self.mixer_width),
            normalise=unit_length(outputs),
        )

    def _batch(self, name: str, pairs: Pairs) -> Batch:
        side = pairs.side
        if self.zero_side:
            side = np.zeros_like(pairs.source if side is None else side)
        return Batch(
            source=torch.from_numpy(pairs.source),
            target=torch.from_numpy(_outputs(name, pairs)),
            side=None if side is None else torch.from_numpy(side),
        )

    def _loss(self, pairs: Pairs) -> Loss:
        if self.loss == "l2" or pairs.head is None:
            return squared_distance
        return head_divergence(torch.from_numpy(pairs.head), reverse=self.loss == "reversed-kl")

    def _require(self, pairs: Pairs) -> None:
        if self.loss != "l2" and pairs.head is None:
            raise InvalidInput(
                f"train FCT with loss {self.loss}", expected="pairs with the target's head", found="none"
            )
        if self.side_transform and pairs.target_side is None:
            raise InvalidInput("train FCT with side_transform", expected="pairs with target_side", found="none")


def _outputs(name: str, pairs: Pairs) -> FloatArray:
    """Return what a network is to predict: target vectors for h, the target's side-information for g."""
    if name == "h" or pairs.target_side is None:
        return pairs.target
    return pairs.target_side


def _figures(name: str, network: Network, held_out: Pairs) -> dict[str, float]:
    side = None if network.architecture.side_dim is None else held_out.side
    predicted, _ = network.run(held_out.source, side, Execution())
    metric = held_out.target_space.metric if name == "h" else None
    return held_out_figures(predicted, _outputs(name, held_out), metric)
