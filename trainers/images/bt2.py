"""BT^2: a target with extra dimensions and changes of basis, whose first values are compared with its source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from compatstore.arrays import FloatArray
from compatstore.artifacts import Space
from compatstore.artifacts.matrix import as_matrix
from compatstore.boundary import checked, checked_fields, require_fields
from compatstore.digests import digest_half
from compatstore.encoders.backbone_networks import BasisNetwork, BasisParts
from compatstore.encoders.backbones import Backbone, BasisTransformed
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.images.classification import ClassHead, Classification, HeadKind, Independent, require_classes
from compatstore.trainers.images.compatible import (
    CompatibilityTerm,
    CompatibleModel,
    CompatibleTraining,
    FrozenSource,
    SourceKnowledge,
    class_means,
)
from compatstore.trainers.images.given_vectors import across_figures
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.images.training import TrainingRun
from compatstore.trainers.settings import Count, NotNegative, Positive
from compatstore.trainers.training import OnEpoch
from compatstore.versions import EmbeddingVersion

Classified = Literal["target", "output"]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class BT2(CompatibleTraining):
    """Basis transformations (Zhou et al., "BT^2: Backward-compatible Training with Basis Transformation").

    The embedding has `dim` = m + d values: those of a target of m, and d = `extra` more. Its first n, the source's
    dimension, are compared with the source's gallery (`Prefix`). All embeddings have unit length here; the paper's
    have sqrt(1 + C^2), which no cosine notices.

    Args:
        extra: d, 1 to the source's dimension; `dim - extra` must be at least the source's dimension less d.
        basis_scale: C, how much longer the target's part is than the extra values, > 0.
        classified: Input of the target's head: its own part ("target"), or the whole "output", which the paper
            finds better for transformers.
        target_weight: lambda_1, of the cosine to an independently trained target, >= 0.
        head_weight: lambda_2, of the loss of the compared values through the source's head, >= 0.
        source_weight: lambda_3, of their cosine to the source, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: HeadKind = "cosine"
    extra: Count = 32
    basis_scale: Positive = 2.0
    classified: Classified = "target"
    target_weight: NotNegative = 1.0
    head_weight: NotNegative = 10.0
    source_weight: NotNegative = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fields(self, {"extra from 1 to dim - 1": self.extra < self.dim})

    @property
    def normalise(self) -> bool:
        """True: embeddings have unit length with any head."""
        return True

    @property
    def target_dim(self) -> int:
        """Values of the target's own part, m."""
        return self.dim - self.extra

    @checked
    def fit(
        self,
        images: Images,
        source: TrainedModel,
        *,
        target: TrainedModel | None = None,
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> CompatibleModel:
        """Train from random weights, or those of `pretrained`; neither source nor target is changed.

        Args:
            images: Training images; at least two classes, known to the source or not.
            source: The model to stay comparable with.
            target: An independent model of `dim - extra` values, trained on these images; None trains one first, with
                the same settings.
            held_out: Images of the same classes, to measure accuracy and retrieval on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill; give `target` with it.

        Raises:
            InvalidInput: As of every compatible training, or the target has other dimensions.
        """
        require_classes(images, held_out)
        self.require_source(source)
        if held_out is not None:
            held_out.require_readable(self.preprocessing(images).mode)
        goal, fixed = self._goal(target, images, progress)

        def objective(
            network: nn.Module, preprocessing: Preprocessing, frozen: FrozenSource, known: SourceKnowledge
        ) -> BT2Objective:
            return BT2Objective(self, network, preprocessing, known.rows[:, : frozen.source_dim], frozen, goal)

        return self.train_with(objective, images, source, held_out, TrainingRun(progress, checkpoint, fixed))

    @checked
    def fit_across(
        self,
        images: Images,
        vectors: FloatArray,
        source: EmbeddingVersion,
        *,
        target: TrainedModel | None = None,
        held_out: Images | None = None,
        held_out_vectors: FloatArray | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> CompatibleModel:
        """Train an image model whose first values are compared with vectors of another modality (BT^2, section 4.7).

        The source does not embed images, so each image is trained against a given vector, such as that of its caption
        or of its class's name. The source's head is the mean vector of each class; `source_rows` is not read.

        Args:
            images: n images, of two classes or more.
            vectors: (n, dim) float32, of the source, in the images' order.
            source: The version that the vectors are of; its metric is this trainer's.
            target: An independent image model of `target_dim` values; None trains one first.
            held_out: Images of the same classes, to measure the accuracy on.
            held_out_vectors: Their vectors, of the source, to measure retrieval between both modalities with.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill; give `target` with it.

        Raises:
            InvalidInput: There are not as many vectors as images, or they are not of the source's dimension. A vector
                holds NaN or infinite values. There are fewer than two classes, the source has another metric or vectors
                that it cannot compare with unit ones, or the model would be too short for the source.
        """
        require_classes(images, held_out)
        operation = "train BT2 against given vectors"
        if source.metric != self.metric:
            fix = f'Set metric="{source.metric}".'
            raise InvalidInput(operation, expected=f"a source of metric {self.metric}", found=source.metric, fix=fix)
        if self.metric != "cosine" and not source.normalised:
            raise InvalidInput(operation, expected=f"vectors of unit length, for {self.metric}", found="of any length")
        if source.dim > self.dim or self.extra > source.dim:
            expected = f"dim of at least the source's {source.dim}, and extra of at most that"
            raise InvalidInput(operation, expected=expected, found=f"dim={self.dim}, extra={self.extra}")
        vectors = _one_each(operation, vectors, source.dim, images)
        if held_out_vectors is not None:
            if held_out is None:
                raise InvalidInput(operation, expected="the images of the held-out vectors", found="none")
            held_out_vectors = _one_each(operation, held_out_vectors, source.dim, held_out)
        preprocessing = self.require_readable(images, held_out)
        goal, fixed = self._goal(target, images, progress)

        def make(network: nn.Module) -> AcrossObjective:
            return AcrossObjective(self, network, preprocessing, images, torch.from_numpy(vectors), goal)

        # Positions of images are passed as labels: with them a batch finds its vectors.
        positions = Images(images.images, np.arange(len(images)))
        fixed = hashlib.sha256(vectors.tobytes() + np.asarray(images.labels).tobytes()).hexdigest() + fixed
        backbone = self.target_backbone(preprocessing, source.dim)
        run = TrainingRun(progress, checkpoint, fixed)
        objective, measured = self.train_network(make, positions, preprocessing, backbone, run)
        model = objective.model(backbone, images, held_out, measured)
        artifact, figures = self.artifact(Space.of(source), model), dict(model.figures)
        if held_out is not None and held_out_vectors is not None:
            embeddings, labels = model.encoder.encode(list(held_out.images)), np.asarray(held_out.labels)
            figures |= across_figures(artifact, embeddings, held_out_vectors, labels, self.metric)
        given: dict[str, Any] = vars(model) | {"figures": figures}
        return CompatibleModel(**given, artifact=artifact.amended(figures=figures, seen=digest_half(vectors)))

    def _goal(self, target: TrainedModel | None, images: Images, progress: OnEpoch | None) -> tuple[FrozenSource, str]:
        """Freeze the independent target that is given, or train one; return it with its fingerprint."""
        if target is not None and target.encoder.dim != self.target_dim:
            expected = f"a target of dim - extra = {self.target_dim} values"
            raise InvalidInput("train BT2", expected=expected, found=f"{target.encoder.dim}")
        encoder = (target or self.independent().fit(images, progress=progress)).encoder
        return FrozenSource(encoder, self.target_dim), encoder.fingerprint

    def independent(self) -> Independent:
        """Return the trainer of the independent target: the same settings, without a source."""
        shared = {field.name for field in fields(Independent)} - {"dim"}
        return Independent(**{name: getattr(self, name) for name in shared}, dim=self.target_dim)

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Refuse: all terms are in the objective."""
        raise NotImplementedError

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
        source: Embeds the same views; no gradients. None if a subclass has the source's vectors.
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
        super().__init__(method, network, preprocessing, len(rows))
        self.method, self.source, self.goal, self.rows = method, source, goal, nn.Buffer(rows)
        if method.classified == "target":
            self.head = ClassHead(method.independent(), len(rows))
        for basis in (self.bases.basis1, self.bases.basis2):
            parametrizations.orthogonal(basis, orthogonal_map="matrix_exp")

    @property
    def bases(self) -> BasisNetwork:
        """The network, as its type."""
        assert isinstance(self.network, BasisNetwork)
        return self.network

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        labels, of_source = self.known_of(views, labels)
        parts = self.bases.parts(self.preprocessing.scale(views))
        goal = None if self.goal is None else self.goal(views)
        with torch.autocast(views.device.type, enabled=False):
            return self.loss(BasisParts(*(part.float() for part in parts)), labels, of_source, goal)

    def known_of(self, views: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Classes (b,) of a batch, and the source's vectors of its items, (b, n)."""
        assert self.source is not None
        return labels, self.source(views)[:, : self.source.source_dim]

    def loss(
        self, parts: BasisParts, labels: torch.Tensor, of_source: torch.Tensor, goal: torch.Tensor | None
    ) -> torch.Tensor:
        """`l_0 L(kappa, phi_3) + l_1 (1 - cos(phi_3, phi'_t)) + l_2 L(w_s, phi_5) + l_3 (1 - cos(phi_5, phi_s))`.

        BT^2, section 4.3, where l_0, our `own_weight`, is 1.

        Args:
            parts: phi_3 (b, m), phi_5 (b, n) and the output (b, m + d).
            labels: (b,) int64.
            of_source: phi_s, (b, n).
            goal: phi'_t, (b, m), or None.
        """
        method = self.method
        classified = parts.output if method.classified == "output" else parts.target
        loss: torch.Tensor = method.own_weight * self.head(classified, labels)
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


class AcrossObjective(BT2Objective):
    """(b, c, s, s) uint8 and (b,) positions of the images -> scalar.

    Args:
        method: Its settings.
        network: A `BasisNetwork`.
        preprocessing: From pixels to the input of the network.
        images: n images; the head classifies them into their classes.
        vectors: (n, dim) float32, of the source, in the images' order.
        goal: The independent target, which embeds the same views.
    """

    def __init__(
        self,
        method: BT2,
        network: nn.Module,
        preprocessing: Preprocessing,
        images: Images,
        vectors: torch.Tensor,
        goal: FrozenSource,
    ) -> None:
        labels = torch.from_numpy(np.asarray(images.labels))
        rows = class_means(vectors, labels, len(images.class_names))
        super().__init__(method, network, preprocessing, rows, None, goal)
        self.labels, self.vectors = nn.Buffer(labels, persistent=False), nn.Buffer(vectors, persistent=False)

    def known_of(self, views: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Look up classes and vectors by the positions of the images, which are given as labels."""
        return self.labels[labels], self.vectors[labels]


def _one_each(operation: str, vectors: FloatArray, dim: int, images: Images) -> FloatArray:
    """Return vectors as (n, dim) float32, one for each of n images."""
    rows = as_matrix(operation, vectors, dim)
    if len(rows) != len(images):
        raise InvalidInput(operation, expected=f"{len(images)} vectors, one an image", found=f"{len(rows)}")
    return rows


def cosine_distance(vectors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Mean of 1 - cosine over pairs of rows, ()."""
    return (1 - functional.cosine_similarity(vectors, others)).mean()
