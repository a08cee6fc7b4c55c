"""Compatible training: a target model whose queries can search the source's gallery."""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compatstore.artifacts import Artifact
from compatstore.boundary import checked
from compatstore.digests import digest_half, fingerprint
from compatstore.encoders.backbones import Backbone
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.evaluation import retrieval_metrics
from compatstore.trainers.images.augmentation import Augmentation
from compatstore.trainers.images.classification import (
    ClassHead,
    Classification,
    Classifier,
    accuracy,
    require_classes,
    require_readable,
    warn_of_opposite_rows,
)
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.source_model import FrozenSource, SourceKnowledge, SourceRows
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.images.training import ImageTraining, encoder_of
from compatstore.trainers.settings import Positive
from compatstore.trainers.training import OnEpoch, seeded, within_memory
from compatstore.versions import Metric

MakeObjective = Callable[[nn.Module, Preprocessing, FrozenSource, SourceKnowledge], Classification]


@dataclass(frozen=True, kw_only=True, eq=False)
class CompatibleModel(TrainedModel):
    """A target model, and the artifact that makes it comparable with its source.

    Args:
        artifact: To be linked from the source's version to this model's.
    """

    artifact: Artifact

    def artifacts(self) -> dict[str, Artifact]:
        """Return the artifacts of the model, by name."""
        return {"artifact": self.artifact}


@dataclass(frozen=True, kw_only=True)
class CompatibleTraining(Classifier, ImageTraining, ABC):
    """Train a target model on images, given the source model; a method adds a compatibility term to the loss.

    A target as long as the source is searched as it is (`Identity`); of a longer one the first values are compared
    (`Prefix`), and the source counts as filled up with zeros while training.

    Args:
        metric: Of both spaces; register both versions with it (`TrainedModel.version`).
        own_weight: Of the target's own classification loss, > 0; a method weighs its other terms by settings of its
            own.
        source_rows: Source head of a class: "head" takes the source's own row, and the mean of its features where it
            does not know the class; "means" takes means for all classes; "auto" takes "head" where the source knows
            all classes, else "means". A mean is scaled to the mean length of the source's rows. "plain-means" takes
            means for all classes as they are, at most of unit length where features are: the head of BT^2's public
            code.
        augmentation: Random views to train on, the same for source and target; None trains on the images as they are.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    metric: Metric = "cosine"
    own_weight: Positive = 1.0
    source_rows: SourceRows = "auto"
    augmentation: Augmentation | None = None

    @checked
    def fit(
        self,
        images: Images,
        source: TrainedModel,
        *,
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> CompatibleModel:
        """Train from random weights, or those of `pretrained`; the source is not changed.

        Args:
            images: What to train on; at least two classes, known to the source or not.
            source: The model to stay comparable with.
            held_out: Images of the same classes, to measure accuracy and retrieval on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill.

        Raises:
            InvalidInput: There are fewer than two classes, the held-out classes are others, or source and target
                cannot be compared: lengths or metric do not allow it.
            SourceError: Some files cannot be read.
            Incompatible: The checkpoint is of other settings, images or another source.
            CorruptArtifact: The checkpoint is damaged.
        """
        return self.train_with(
            self.objective, images, source, held_out=held_out, progress=progress, checkpoint=checkpoint
        )

    def train_with(
        self,
        objective: MakeObjective,
        images: Images,
        source: TrainedModel,
        *,
        held_out: Images | None,
        progress: OnEpoch | None,
        checkpoint: str | Path | None,
        fixed: str = "",
    ) -> CompatibleModel:
        """Train as in `fit`, with an objective of the caller's.

        Args:
            objective: Makes the module that is minimised.
            images: See `fit`.
            source: See `fit`.
            held_out: See `fit`.
            progress: See `fit`.
            checkpoint: See `fit`.
            fixed: Fingerprint of other models that the objective holds fixed, or "".
        """
        require_classes(images, held_out)
        self.require_source(source)
        preprocessing = self.preprocessing(images)
        require_readable(preprocessing, images, held_out)
        backbone = self.target_backbone(preprocessing, source.encoder.dim)
        start = time.perf_counter()
        asked = f"train {type(self).__name__}"
        with within_memory(asked):
            known = SourceKnowledge.of(source, images, dim=self.dim, take=self.source_rows)
        with seeded(self.seed), within_memory(asked):
            frozen = FrozenSource(source.encoder, self.dim)
            minimised = objective(self.start(backbone), preprocessing, frozen, known)
            belongs = _fingerprint(source) + fixed
            loss = self.minimise(
                minimised, images, preprocessing, progress=progress, checkpoint=checkpoint, source=belongs
            )
        encoder = encoder_of(backbone, preprocessing, minimised.finished(), normalise=self.normalise)
        model = TrainedModel(
            encoder=encoder, head=minimised.class_rows(), class_names=images.class_names, head_loss=self.head_loss
        )
        warn_of_opposite_rows(self, encoder, model.head, images)
        seconds = time.perf_counter() - start
        figures = {"loss": loss, "images": len(images), "classes": len(images.class_names), "seconds": seconds}
        made = self.model(minimised, source, model, figures, held_out)
        seen = digest_half(known.features[:, : source.encoder.dim].numpy())
        informed: dict[str, Any] = {name: artifact.having_seen(seen) for name, artifact in made.artifacts().items()}
        return replace(made, **informed)

    def target_backbone(self, preprocessing: Preprocessing, source_dim: int) -> Backbone:
        """Describe the target's network; a method may add layers."""
        return self.backbone(preprocessing)

    def objective(
        self, network: nn.Module, preprocessing: Preprocessing, source: FrozenSource, known: SourceKnowledge
    ) -> Classification:
        """Make what is minimised: the target's own loss plus the compatibility term.

        Args:
            network: Of the target, from random weights.
            preprocessing: The target's.
            source: Embeds views; no gradients.
            known: What the source predicts for the training images.
        """
        return CompatibleObjective(self, network, preprocessing, source, known)

    @abstractmethod
    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module | None:
        """Make the compatibility term, (Views) -> scalar; its parameters are trained.

        Args:
            known: What the source predicts for the training images.
            head: The target's own.

        Returns:
            None for a method that has an `objective` of its own.
        """

    def model(
        self,
        objective: Classification,
        source: TrainedModel,
        target: TrainedModel,
        figures: dict[str, float],
        held_out: Images | None,
    ) -> CompatibleModel:
        """Bind the trained target to its source, and measure it on held-out images."""
        artifact = self.artifact(source, target, figures)
        if held_out is not None:
            figures |= retrieval_figures(artifact, source, target, held_out, self.metric)
            artifact = self.artifact(source, target, figures)
        return CompatibleModel(
            encoder=target.encoder,
            head=target.head,
            class_names=target.class_names,
            figures=figures,
            head_loss=target.head_loss,
            artifact=artifact,
        )

    def artifact(self, source: TrainedModel, target: TrainedModel, figures: Mapping[str, float]) -> Artifact:
        """Make the artifact: Identity, or Prefix for a target that is longer than its source."""
        longer = target.encoder.dim > source.encoder.dim
        return Artifact.create(
            "Prefix" if longer else "Identity",
            method=type(self).__name__,
            source=source.space(self.metric),
            target=target.space(self.metric),
            settings=asdict(self),
            figures=figures,
        )

    def require_source(self, source: TrainedModel) -> None:
        """Refuse a source that a target of these settings cannot be compared with.

        Raises:
            InvalidInput: The source is longer, or the metric needs vectors of one length and one space has others.
        """
        asked, dim, unit = f"train {type(self).__name__}", source.encoder.dim, source.encoder.normalise
        if dim > self.dim:
            fix = f"Set dim={dim}, or train a transform from pairs."
            raise InvalidInput(asked, expected=f"a source of at most {self.dim} values", found=f"{dim}", fix=fix)
        if self.metric != "cosine" and (unit != self.normalise or (dim < self.dim and not unit)):
            expected = f"source and target of unit length, or both of the same dimension and not, for {self.metric}"
            found = f"source {'of' if unit else 'not of'} unit length, target head {self.head!r}"
            raise InvalidInput(asked, expected=expected, found=found, fix='Set metric="cosine".')


@dataclass(eq=False)
class Views:
    """The inputs of a compatibility term: a batch of views.

    Args:
        pixels: (b, c, s, s) uint8, or float32 from 0 to 1: the views that were drawn.
        labels: (b,) int64.
        embeddings: (b, dim) float32, of the target, of unit length where its space is.
        model: The source model.
    """

    pixels: torch.Tensor
    labels: torch.Tensor
    embeddings: torch.Tensor
    model: FrozenSource

    @cached_property
    def source(self) -> torch.Tensor:
        """(b, dim) float32: the source's embeddings of the same views, computed on first use; no gradient."""
        features: torch.Tensor = self.model(self.pixels)
        return features


class CompatibleObjective(Classification):
    """The target's own loss and the compatibility term: (b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: The method that the term belongs to.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        source: Embeds the same views; no gradients.
        known: What the source makes of the training images.
    """

    def __init__(
        self,
        method: CompatibleTraining,
        network: nn.Module,
        preprocessing: Preprocessing,
        source: FrozenSource,
        known: SourceKnowledge,
    ) -> None:
        super().__init__(method, network, preprocessing, method.augmentation, len(known.rows))
        term = method.term(known, self.head)
        assert term is not None, "a method without a term has an objective of its own"
        self.source, self.term, self.own_weight = source, term, method.own_weight

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        embeddings = self.embed(views)
        with torch.autocast(pixels.device.type, enabled=False):
            own: torch.Tensor = self.head(embeddings, labels)
            term: torch.Tensor = self.term(Views(views, labels, embeddings, self.source))
        return self.own_weight * own + term


def retrieval_figures(
    artifact: Artifact, source: TrainedModel, target: TrainedModel, images: Images, metric: Metric
) -> dict[str, float]:
    """Measure on images that were not trained on, each a query among the others.

    Returns:
        `accuracy` of the target's head, and CMC-1 of the source alone (`s/s`), of target queries on the source's
        gallery (`t/s`; `t/h` where the artifact transforms the gallery) and of the target alone (`t/t`).
    """
    labels, rows = np.asarray(images.labels), np.arange(len(images))
    of_source, of_target = (model.encoder.encode(list(images.images)) for model in (source, target))
    gallery_side = artifact.behaviour.acts_on == "gallery"
    moved = artifact.apply(of_source if gallery_side else of_target).vectors
    crossed = (of_target, moved) if gallery_side else (moved, of_source)
    pairs = {"s/s": (of_source, of_source), "t/h" if gallery_side else "t/s": crossed, "t/t": (of_target, of_target)}
    cmc = {
        name: retrieval_metrics(queries, gallery, labels, labels, rows, rows, ks=(1,), metric=metric).cmc[1]
        for name, (queries, gallery) in pairs.items()
    }
    return {"accuracy": accuracy(target.encoder, target.head, images), **cmc}


def _fingerprint(source: TrainedModel) -> str:
    head = hashlib.sha256(source.head.tobytes()).hexdigest()
    return fingerprint(encoder=source.encoder.fingerprint, head=head, class_names=source.class_names)
