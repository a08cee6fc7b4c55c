"""DMU: inherit what the source is certain of, and adapt the gallery to the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Literal

import torch
from torch import nn
from torch.nn import functional

from compatstore.artifacts import Architecture, Artifact
from compatstore.encoders.network import Preprocessing
from compatstore.trainers.head_losses import scaled_cosines
from compatstore.trainers.images.classification import ClassHead, Classification, Classifier, HeadKind
from compatstore.trainers.images.compatible import CompatibleModel, CompatibleTraining, retrieval_figures
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.source_model import FrozenSource, SourceKnowledge
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.pairs.two_branch import TwoBranch, fold
from compatstore.trainers.settings import Count, Positive, from_to

Selection = Literal["entropy", "least-confidence", "none"]
Compatibility = Literal["head", "regression"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DMUModel(CompatibleModel):
    """A target whose queries can search its source's gallery, and a transform of that gallery.

    Args:
        adaptation: ForwardTransform from the source to this model. Link it to hop the gallery; `artifact` is for
            searches before that.
    """

    adaptation: Artifact

    def artifacts(self) -> dict[str, Artifact]:
        """Return the artifacts of the model, by name."""
        return {**super().artifacts(), "adaptation": self.adaptation}


@dataclass(frozen=True, kw_only=True)
class DMU(CompatibleTraining):
    """Darwinian model upgrades (Zhang et al., AAAI 2023): `L_new + L_SBC + L_FA` (equation 8).

    For a sequence of upgrades train each generation with the one before as its source: the adapted gallery is in the
    space of that generation. The adaptation reads native embeddings of its source; where the gallery holds refreshed
    ones and the first source's natives too, an adaptation from those is the better one.

    Args:
        selection: Weight of an item in the inherited loss, by the prediction of the source's head: "entropy"
            (equations 9 and 10; nearly even by construction: the deviations from 1/b of a batch of b add up to 2/b at
            most), "least-confidence" (equation 13: the softmax over the batch of the true class' probability; an item
            weighs at most e times as much as another); "none" weighs all items equally.
        compatibility: The inherited loss: that through the source's "head" (equation 10), or the "regression" to its
            embedding, 1 - cosine (equation 14).
        adapter_width: Of the three hidden layers of the forward-adaptation head, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: HeadKind = "arcface"
    scale: Positive = 30.0
    margin: Annotated[float, from_to(0, 1.5)] = 0.3
    selection: Selection = "entropy"
    compatibility: Compatibility = "head"
    adapter_width: Count = 1024

    def objective(
        self, network: nn.Module, preprocessing: Preprocessing, source: FrozenSource, known: SourceKnowledge
    ) -> DMUObjective:
        """Add both terms to the target's own loss."""
        return DMUObjective(self, network, preprocessing, source, known)

    def term(self, known: SourceKnowledge, head: ClassHead) -> None:
        """Return None: all terms are in `objective`."""

    def model(
        self,
        objective: Classification,
        source: TrainedModel,
        target: TrainedModel,
        figures: dict[str, float],
        held_out: Images | None,
    ) -> DMUModel:
        """Add the adaptation and its figures to the model of every compatible training."""
        assert isinstance(objective, DMUObjective)
        figures |= objective.weight_spread(self.batch_size)
        adaptation = self._adaptation(objective.adapter, source, target, figures)
        if held_out is not None:
            adapted = retrieval_figures(adaptation, source, target, held_out, self.metric)
            figures["t/h"] = adapted["t/h"]
            adaptation = self._adaptation(objective.adapter, source, target, adapted)
        plain = super().model(objective, source, target, figures, held_out)
        return DMUModel(**{field.name: getattr(plain, field.name) for field in fields(plain)}, adaptation=adaptation)

    def _adaptation(
        self, adapter: TwoBranch, source: TrainedModel, target: TrainedModel, figures: Mapping[str, float]
    ) -> Artifact:
        tensors = {f"h.{name}": tensor.float().numpy() for name, tensor in fold(adapter).items()}
        return Artifact.create(
            "ForwardTransform",
            method="DMU",
            source=source.space(self.metric),
            target=target.space(self.metric),
            networks={"h": adapter.architecture},
            tensors=tensors,
            settings=asdict(self),
            figures={"h": dict(figures)},
        )


class DMUObjective(Classification):
    """(b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: Its settings.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        source: Embeds the same views; no gradients.
        known: What the source makes of the training images.
    """

    def __init__(
        self,
        method: DMU,
        network: nn.Module,
        preprocessing: Preprocessing,
        source: FrozenSource,
        known: SourceKnowledge,
    ) -> None:
        super().__init__(method, network, preprocessing, method.augmentation, len(known.rows))
        self.method, self.source, self.rows = method, source, nn.Buffer(known.rows)
        self.source_features, self.source_labels = known.features, known.labels
        self.adapter = TwoBranch(
            Architecture(
                source_dim=source.source_dim,
                output_dim=method.dim,
                mixer=(method.adapter_width,) * 3,
                normalise=method.normalise,
            )
        )

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        views = self.views(pixels)
        embeddings, of_source = self.embed(views), self.source(views)
        adapted = self.adapter(of_source[:, : self.source.source_dim], None).vectors
        with torch.autocast(pixels.device.type, enabled=False):
            new: torch.Tensor = self.head(embeddings, labels)
            weights = self.weights(of_source, labels)
            inherited = (weights * self._inheritance(embeddings, of_source, labels)).sum()
            forward: torch.Tensor = self.head(adapted, labels)
        return new + inherited + forward

    def weights(self, of_source: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Weights of the inherited losses: source embeddings (b, dim) and labels (b,) -> (b,), adding up to 1."""
        return selective_weights(self._logits(of_source), labels, self.method.selection)

    @torch.no_grad()
    def weight_spread(self, batch_size: int) -> dict[str, float]:
        """Smallest and largest weight of an item in its batch, as multiples of the even weight."""
        parts = (torch.split(values, batch_size) for values in (self.source_features, self.source_labels))
        batches = [(features, labels) for features, labels in zip(*parts, strict=True) if len(features) > 1]
        relative = torch.cat([len(features) * self.weights(features, labels) for features, labels in batches])
        return {"smallest_weight": float(relative.min()), "largest_weight": float(relative.max())}

    def _logits(self, of_source: torch.Tensor) -> torch.Tensor:
        """The source's logits; cosines are scaled, because entropies of unscaled ones are nearly equal."""
        if not self.method.normalise:
            return of_source @ self.rows.T
        return scaled_cosines(of_source, self.rows, scale=self.method.scale)

    def _inheritance(self, embeddings: torch.Tensor, of_source: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.method.compatibility == "regression":
            return 1 - functional.cosine_similarity(embeddings, of_source)
        classifier: Classifier = self.method
        return classifier.losses(embeddings, self.rows, labels)


def selective_weights(logits: torch.Tensor, labels: torch.Tensor, selection: Selection) -> torch.Tensor:
    """Weight of each item of a batch in the inherited loss (DMU, equations 9, 10 and 13).

    "entropy" is `(1 - softmax(u)) / (b - 1)` over the batch, u the entropy of the source's prediction. The weights are
    nearly even whatever u is: with s = softmax(u), a weight differs from 1/b by `(1/b - s) / (b - 1)`. The absolute
    values of `1/b - s` add up to at most `2 (1 - 1/b)`, so those of the differences to at most 2/b.

    Args:
        logits: (b, classes) float32 of the source's head, b >= 2.
        labels: (b,) int64, positions among the classes.
        selection: "entropy"; "least-confidence", the softmax over the batch of the true class' probability under the
            source; or "none", the same for all.

    Returns:
        (b,) float32, adding up to 1.
    """
    probabilities = logits.softmax(dim=1)
    if selection == "least-confidence":
        return probabilities.gather(1, labels[:, None])[:, 0].softmax(dim=0)
    if selection == "none":
        return torch.full_like(probabilities[:, 0], 1 / len(logits))
    uncertainty = torch.special.entr(probabilities).sum(dim=1)
    weights: torch.Tensor = (1 - uncertainty.softmax(dim=0)) / (len(logits) - 1)
    return weights
