"""Compatible training: a target model whose queries can search the source's gallery.

The source is frozen, its vectors filled up with zeros to the target's length.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional
from torchvision.transforms.v2.functional import resize

from compatstore.arrays import Digests, FloatArray
from compatstore.artifacts import Artifact, Space
from compatstore.boundary import checked
from compatstore.digests import digest_half, fingerprint
from compatstore.encoders.backbones import Backbone
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import InvalidInput
from compatstore.evaluation import retrieval_metrics
from compatstore.trainers.images.classification import ClassHead, Classification, Classifier, accuracy, require_classes
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.images.training import ImageTraining, TrainingRun
from compatstore.trainers.settings import Positive
from compatstore.trainers.training import OnEpoch, within_memory
from compatstore.versions import Metric

SourceRows = Literal["auto", "head", "means", "plain-means"]

# ITU-R BT.601, as Pillow converts colours to grey.
_GREY = (0.299, 0.587, 0.114)


class FrozenSource(nn.Module):
    """Embeds the views that the target is trained on, as the source's own encoder would.

    Weights get no gradients. Statistics stay in evaluation mode, also while the target is trained. Vectors are filled
    up with zeros to the target's length, as BCT(+d) compares them.

    Args:
        encoder: Of the source; copied.
        dim: Length of the target's embeddings, at least the source's.
    """

    def __init__(self, encoder: NetworkEncoder, dim: int) -> None:
        super().__init__()
        self.network = copy.deepcopy(encoder.module).cpu().requires_grad_(False)
        self.preprocessing, self.normalise = encoder.preprocessing, encoder.normalise
        self.source_dim, self.dim = encoder.dim, dim
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Embed views of another model's size and colours.

        Args:
            views: (b, c, s, s) uint8, or float32 from 0 to 1.

        Returns:
            (b, dim) float32, zeros beyond the source's own dimension.
        """
        images, channels = views if views.is_floating_point() else views.float() / 255, self.preprocessing.channels
        if images.shape[1] > channels:
            images = (images * images.new_tensor(_GREY).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)
        images = resize(images.expand(-1, channels, -1, -1), [self.preprocessing.size] * 2, antialias=True)
        embeddings = self.network(self.preprocessing.scale(images)).float()
        return padded(functional.normalize(embeddings, dim=1) if self.normalise else embeddings, self.dim)


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceKnowledge:
    """Predictions of the source for the images that the target is trained on.

    Args:
        rows: (classes, dim) float32: a source head for all classes of the target, zeros beyond the source's dimension.
        features: (n, dim) float32: the images embedded by the source, zeros beyond the source's dimension.
        labels: (n,) int64: their classes.
    """

    rows: torch.Tensor
    features: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def of(cls, source: TrainedModel, images: Images, *, dim: int, take: SourceRows = "auto") -> Self:
        """Embed the images, and give every class of them a row.

        Args:
            source: The source model.
            images: The target's training images.
            dim: Length of the target's embeddings.
            take: "head" takes the source's own rows, and the mean source feature of its images for a class that the
                source lacks; "means" takes means for all; "auto" the head if the source has all classes, else
                means, because rows of both kinds separate classes that are near each other. A mean is scaled to the
                mean length of the source's rows, so that all rows have equal weight; "plain-means" are not scaled.
        """
        features = torch.from_numpy(source.encoder.encode(list(images.images)))
        labels, names = torch.from_numpy(np.asarray(images.labels)), images.class_names
        rows = class_means(features, labels, len(names))
        if take != "plain-means":
            rows = float(np.linalg.norm(source.head, axis=1).mean()) * functional.normalize(rows, dim=1)
        known = [row for row, name in enumerate(names) if name in source.class_names]
        if take == "head" or (take == "auto" and len(known) == len(names)):
            for row in known:
                rows[row] = torch.from_numpy(source.head[source.class_names.index(names[row])])
        return cls(rows=padded(rows, dim), features=padded(features, dim), labels=labels)


def class_means(features: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Mean feature of each class: (n, d) and (n,) -> (classes, d); zeros for a class without features."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=classes).clamp_min(1)[:, None]


def padded(vectors: torch.Tensor, dim: int) -> torch.Tensor:
    """Fill up with zeros: (n, d) -> (n, dim)."""
    return functional.pad(vectors, (0, dim - vectors.shape[1]))


MakeObjective = Callable[[nn.Module, Preprocessing, FrozenSource, SourceKnowledge], Classification]


@dataclass(frozen=True, kw_only=True, eq=False)
class CompatibleModel(TrainedModel):
    """A target model, and the artifact that makes it comparable with its source.

    Args:
        artifact: Link it from the source's version to this model's.
        adaptation: Of `DMU`: ForwardTransform from the source to this model. Link it to hop the gallery; `artifact` is
            for searches before that.
    """

    artifact: Artifact
    adaptation: Artifact | None = None

    def artifacts(self) -> dict[str, Artifact]:
        """Return the artifacts of the model, by name."""
        named = {"artifact": self.artifact, "adaptation": self.adaptation}
        return {name: artifact for name, artifact in named.items() if artifact is not None}


@dataclass(frozen=True, kw_only=True)
class CompatibleTraining(Classifier, ImageTraining, ABC):
    """Train a target model on images, given the source model; a method adds a compatibility term to the loss.

    A target as long as the source is searched as it is (`Identity`); of a longer one the first values are compared
    (`Prefix`), and the source counts as filled up with zeros while training.

    Args:
        metric: Of both spaces; register both versions with it (`TrainedModel.version`).
        own_weight: Of the target's own classification loss, > 0; a method weighs its other terms by settings of its
            own.
        source_rows: Source head of a class: "head" takes the source's own row, and the mean of its features if it
            lacks the class; "means" takes means for all classes; "auto" takes "head" if the source has
            all classes, else "means". A mean is scaled to the mean length of the source's rows. "plain-means" takes
            means for all classes as they are, at most of unit length where features are: the head of BT^2's public
            code.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    metric: Metric = "cosine"
    own_weight: Positive = 1.0
    source_rows: SourceRows = "auto"

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
            images: Training images; at least two classes, known to the source or not.
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
        return self.train_with(self.objective, images, source, held_out, TrainingRun(progress, checkpoint))

    def train_with(
        self,
        objective: MakeObjective,
        images: Images,
        source: TrainedModel,
        held_out: Images | None,
        run: TrainingRun,
    ) -> CompatibleModel:
        """Train as in `fit`, with an objective of the caller's.

        Args:
            objective: Makes the module that is minimised.
            images: See `fit`.
            source: See `fit`.
            held_out: See `fit`.
            run: How it is followed and saved; `fixed` is of other models than the source.
        """
        require_classes(images, held_out)
        self.require_source(source)
        preprocessing = self.require_readable(images, held_out)
        with within_memory(f"train {type(self).__name__}"):
            known = SourceKnowledge.of(source, images, dim=self.dim, take=self.source_rows)

        def make(network: nn.Module) -> Classification:
            return objective(network, preprocessing, FrozenSource(source.encoder, self.dim), known)

        head = hashlib.sha256(source.head.tobytes()).hexdigest()
        own = fingerprint(encoder=source.encoder.fingerprint, head=head, class_names=source.class_names)
        backbone = self.target_backbone(preprocessing, source.encoder.dim)
        run = run._replace(fixed=own + run.fixed)
        trained, figures = self.train_network(make, images, preprocessing, backbone, run)
        seen = digest_half(known.features[:, : source.encoder.dim].numpy())
        return self.model(trained, source, trained.model(backbone, images, None, figures), seen, held_out)

    def target_backbone(self, preprocessing: Preprocessing, source_dim: int) -> Backbone:
        """Describe the target's network; a method may add layers."""
        return self.backbone(preprocessing)

    def objective(
        self, network: nn.Module, preprocessing: Preprocessing, source: FrozenSource, known: SourceKnowledge
    ) -> Classification:
        """Compute the loss: the target's own loss plus the compatibility term.

        Args:
            network: Of the target, from random weights.
            preprocessing: The target's.
            source: Embeds views; no gradients.
            known: The source's predictions for the training images.
        """
        return CompatibleObjective(self, network, preprocessing, source, known)

    @abstractmethod
    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Make the compatibility term, (Views) -> scalar; not called in a method that has an objective of its own.

        Args:
            known: Predictions of the source for the training images.
            head: The target's own.
        """

    def model(
        self,
        objective: Classification,
        source: TrainedModel,
        target: TrainedModel,
        seen: Digests,
        held_out: Images | None,
    ) -> CompatibleModel:
        """Bind the trained target to its source, and measure it on held-out images.

        Args:
            objective: As training left it.
            source: The source.
            target: The target.
            seen: Digests of the source's vectors of the images.
            held_out: To measure on.
        """
        artifact, figures = self.artifact(source.space(self.metric), target), dict(target.figures)
        if held_out is not None:
            figures |= retrieval_figures(artifact, source, target, held_out, self.metric)
        fields: dict[str, Any] = vars(target) | {"figures": figures}
        return CompatibleModel(**fields, artifact=artifact.amended(figures=figures, seen=seen))

    def artifact(self, source: Space, target: TrainedModel) -> Artifact:
        """Make the artifact: Identity, or Prefix for a target that is longer than its source."""
        kind, space = "Prefix" if target.encoder.dim > source.dim else "Identity", target.space(self.metric)
        return Artifact.create(kind, method=type(self).__name__, source=source, target=space, settings=asdict(self))

    def require_source(self, source: TrainedModel) -> None:
        """Refuse a source that a target of these settings cannot be compared with.

        Raises:
            InvalidInput: The source is longer, or the metric needs vectors of one length and one space has others.
        """
        operation, dim, unit = f"train {type(self).__name__}", source.encoder.dim, source.encoder.normalise
        if dim > self.dim:
            fix = f"Set dim={dim}, or train a transform from pairs."
            raise InvalidInput(operation, expected=f"a source of at most {self.dim} values", found=f"{dim}", fix=fix)
        if self.metric != "cosine" and (unit != self.normalise or (dim < self.dim and not unit)):
            expected = f"source and target of unit length, or both of the same dimension and not, for {self.metric}"
            found = f"source {'of' if unit else 'not of'} unit length, target head {self.head!r}"
            raise InvalidInput(operation, expected=expected, found=found, fix='Set metric="cosine".')


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


class CompatibilityTerm(nn.Module):
    """A compatibility term.

    Args:
        loss: (views, **tensors) -> ().
        tensors: Further arguments of the loss, which are not trained; they go where the training goes.
    """

    def __init__(self, loss: Callable[..., torch.Tensor], **tensors: torch.Tensor) -> None:
        super().__init__()
        self.loss = loss
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, views: Views) -> torch.Tensor:
        """Loss of a batch, ()."""
        return self.loss(views, **dict(self.named_buffers()))


class CompatibleObjective(Classification):
    """The target's own loss and the compatibility term: (b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: The method that the term belongs to.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        source: Embeds the same views; no gradients.
        known: The source's embeddings of the training images.
    """

    def __init__(
        self,
        method: CompatibleTraining,
        network: nn.Module,
        preprocessing: Preprocessing,
        source: FrozenSource,
        known: SourceKnowledge,
    ) -> None:
        super().__init__(method, network, preprocessing, len(known.rows))
        self.source, self.term, self.own_weight = source, method.term(known, self.head), method.own_weight

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
    of_source, of_target = (model.encoder.encode(list(images.images)) for model in (source, target))
    gallery_side = artifact.behaviour.acts_on == "gallery"
    moved = artifact.apply(of_source if gallery_side else of_target).vectors
    crossed = (of_target, moved) if gallery_side else (moved, of_source)
    ways = {"s/s": (of_source, of_source), "t/h" if gallery_side else "t/s": crossed, "t/t": (of_target, of_target)}
    return {"accuracy": accuracy(target.encoder, target.head, images), **cmc_of(ways, images.labels, metric)}


def cmc_of(
    ways: Mapping[str, tuple[FloatArray, FloatArray]], labels: npt.ArrayLike, metric: Metric
) -> dict[str, float]:
    """CMC-1 of each way to search, (queries, gallery) of the same n items, each a query among the others."""
    classes = np.asarray(labels)
    rows = np.arange(len(classes))
    return {
        way: retrieval_metrics(*searched, classes, classes, rows, rows, ks=(1,), metric=metric).cmc[1]
        for way, searched in ways.items()
    }
