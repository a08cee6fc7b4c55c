"""BT^2: extra dimensions and changes of basis, for a target as good as one alone that still understands its source."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact
from compatstore.encoders.backbones import Backbone
from compatstore.encoders.backbones.basis_network import BasisNetwork, Parts
from compatstore.encoders.backbones.basis_transformed import BasisTransformed
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.images.class_head import ClassHead, Head
from compatstore.trainers.images.compatible import CompatibleModel, CompatibleTraining
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.independent import Classification, Independent
from compatstore.trainers.images.loop import Report
from compatstore.trainers.images.source_model import FrozenSource, SourceKnowledge
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.versions import Metric

Classified = Literal["target", "output"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BT2Model(CompatibleModel):
    """A target whose first values are compared with its source's.

    Args:
        metric: Of the spaces that its artifacts bind.
    """

    metric: Metric

    def prefix_of(self, earlier: TrainedModel) -> Artifact:
        """Make the artifact that compares this model with one further back in a series of updates.

        Each model's first values understand the one before, so they do all that went before that.

        Args:
            earlier: A source of this model's source, or one before.
        """
        return Artifact.create(
            "Prefix", method="BT2", source=earlier.space(self.metric), target=self.space(self.metric)
        )


@dataclass(frozen=True, kw_only=True)
class BT2(CompatibleTraining):
    """Basis transformations (Zhou et al., "BT^2: Backward-compatible Training with Basis Transformation").

    The embedding has `dim` = m + d values: those of a target of m, and d = `extra` more. Its first n, the source's
    dimension, are compared with the source's gallery (`Prefix`). All embeddings have unit length here; the paper's
    have sqrt(1 + C^2), which no cosine notices.

    Args:
        extra: d, 1 to the source's dimension; `dim - extra` must be at least the source's dimension less d.
        basis_scale: C, how much longer the target's part is than the extra values, > 0.
        classified: What the target's head classifies: its own part ("target"), or the whole "output", which the paper
            finds better for transformers.
        target_weight: lambda_1, of the cosine to an independently trained target, >= 0.
        head_weight: lambda_2, of the loss of the compared values through the source's head, >= 0.
        source_weight: lambda_3, of their cosine to the source, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: Head = "cosine"
    extra: int = 32
    basis_scale: float = 2.0
    classified: Classified = "target"
    target_weight: float = 1.0
    head_weight: float = 10.0
    source_weight: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = ("target_weight", "head_weight", "source_weight")
        self.require(
            {
                "extra from 1 to dim - 1": 1 <= self.extra < self.dim,
                "basis_scale > 0": self.basis_scale > 0,
                f"classified of {get_args(Classified)}": self.classified in get_args(Classified),
                **{f"{name} >= 0": getattr(self, name) >= 0 for name in weights},
            }
        )

    @property
    def normalise(self) -> bool:
        """Whether embeddings have unit length: with any head."""
        return True

    @property
    def target_dim(self) -> int:
        """Values of the target's own part, m."""
        return self.dim - self.extra

    def fit(
        self,
        images: Images,
        source: TrainedModel,
        *,
        target: TrainedModel | None = None,
        held_out: Images | None = None,
        report: Report | None = None,
        checkpoint: str | Path | None = None,
    ) -> BT2Model:
        """Train from random weights; neither source nor target is changed.

        Args:
            images: What to train on; at least two classes, known to the source or not.
            source: The model to stay comparable with.
            target: An independent model of `dim - extra` values, trained on these images; None trains one first, with
                the same settings.
            held_out: Images of the same classes, to measure accuracy and retrieval on.
            report: Called after each epoch.
            checkpoint: File to save to, and to go on from after a kill; give `target` with it.

        Raises:
            InvalidInput: As of every compatible training, or the target has other dimensions.
        """
        self.require_source(source)
        independent = target or self.independent().fit(images, report=report)
        if independent.encoder.dim != self.target_dim:
            expected = f"a target of dim - extra = {self.target_dim} values"
            raise InvalidInput("train BT2", expected=expected, found=f"{independent.encoder.dim}")

        def objective(
            network: nn.Module, preprocessing: Preprocessing, frozen: FrozenSource, known: SourceKnowledge
        ) -> BT2Objective:
            rows = known.rows[:, : frozen.source_dim]
            goal = FrozenSource(independent.encoder, self.target_dim)
            return BT2Objective(self, network, preprocessing, rows, frozen, goal)

        fixed = independent.encoder.fingerprint
        model = self.train_with(
            objective, images, source, held_out=held_out, report=report, checkpoint=checkpoint, fixed=fixed
        )
        return BT2Model(**{field.name: getattr(model, field.name) for field in fields(model)}, metric=self.metric)

    def independent(self) -> Independent:
        """The trainer of the target that is to be matched: this one's settings, without a source."""
        shared = {field.name for field in fields(Independent)} - {"dim"}
        return Independent(**{name: getattr(self, name) for name in shared}, dim=self.target_dim)

    def objective(
        self, network: nn.Module, preprocessing: Preprocessing, source: FrozenSource, known: SourceKnowledge
    ) -> BT2Objective:
        """Make what is minimised where no independent target is to be matched."""
        return BT2Objective(self, network, preprocessing, known.rows[:, : source.source_dim], source, None)

    def target_backbone(self, preprocessing: Preprocessing, source_dim: int) -> Backbone:
        """Describe a network of m + n values, behind the changes of basis."""
        inner = replace(self, dim=self.target_dim + source_dim).backbone(preprocessing)
        return BasisTransformed(inner=inner, source_dim=source_dim, extra=self.extra, scale=self.basis_scale)


class BT2Objective(Classification):
    """(b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: Its settings.
        network: A `BasisNetwork`.
        preprocessing: From pixels to the input of the network.
        rows: (classes, n) float32, the source's head.
        source: Embeds the same views; no gradients. None where a subclass gets the source's vectors otherwise.
        goal: The independent target, which embeds the same views; None leaves its term out.
    """

    def __init__(
        self,
        method: BT2,
        network: nn.Module,
        preprocessing: Preprocessing,
        rows: torch.Tensor,
        source: FrozenSource | None,
        goal: FrozenSource | None,
    ) -> None:
        super().__init__(method, network, preprocessing, method.augmentation, len(rows))
        self.method, self.source, self.goal, self.rows = method, source, goal, nn.Buffer(rows)
        if method.classified == "target":
            self.head = ClassHead(method.independent(), len(rows))
        for basis in (self.bases.basis1, self.bases.basis2):
            parametrizations.orthogonal(basis, orthogonal_map="matrix_exp")

    @property
    def bases(self) -> BasisNetwork:
        """The network, with what is inside it."""
        assert isinstance(self.network, BasisNetwork)
        return self.network

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        assert self.source is not None
        return self.loss_of(views, labels, self.source(views)[:, : self.source.source_dim])

    def loss_of(self, views: torch.Tensor, labels: torch.Tensor, of_source: torch.Tensor) -> torch.Tensor:
        """Loss of views (b, c, s, s), given what the source makes of the same items, (b, n)."""
        parts = self.bases.parts(self.preprocessing.scale(views))
        goal = None if self.goal is None else self.goal(views)
        with torch.autocast(views.device.type, enabled=False):
            return self.loss(Parts(*(part.float() for part in parts)), labels, of_source, goal)

    def loss(
        self, parts: Parts, labels: torch.Tensor, of_source: torch.Tensor, goal: torch.Tensor | None
    ) -> torch.Tensor:
        """`L(kappa, phi_3) + l_1 (1 - cos(phi_3, phi'_t)) + l_2 L(w_s, phi_5) + l_3 (1 - cos(phi_5, phi_s))`.

        Args:
            parts: phi_3 (b, m), phi_5 (b, n) and the output (b, m + d).
            labels: (b,) int64.
            of_source: phi_s, (b, n).
            goal: phi'_t, (b, m), or None.
        """
        method = self.method
        classified = parts.output if method.classified == "output" else parts.target
        loss: torch.Tensor = self.head(classified, labels)
        if goal is not None:
            loss = loss + method.target_weight * cosine_distance(parts.target, goal)
        through = method.losses(parts.compared, self.rows, labels).mean()
        return loss + method.head_weight * through + method.source_weight * cosine_distance(parts.compared, of_source)

    def finished(self) -> nn.Module:
        """Return the network with its bases as plain matrices."""
        for basis in (self.bases.basis1, self.bases.basis2):
            if parametrize.is_parametrized(basis):
                parametrize.remove_parametrizations(basis, "weight")
        return self.network

    def class_rows(self) -> FloatArray:
        """(classes, m + d) float32: logits of the output, up to a positive scale; phi_3 is a linear map of it."""
        rows = self.head.to_numpy()
        if self.method.classified == "output":
            return rows
        moved: FloatArray = rows @ self.bases.target_map().cpu().float().numpy()
        return moved


def cosine_distance(vectors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Mean of 1 - cosine over pairs of rows, ()."""
    return (1 - functional.cosine_similarity(vectors, others)).mean()
