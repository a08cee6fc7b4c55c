"""DMU: inherit the source's confident predictions, and adapt the gallery to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from compatstore.arrays import Digests
from compatstore.artifacts import Architecture, Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.digests import digest_half
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.images.classification import ClassHead, Classification, Classifier, HeadKind
from compatstore.trainers.images.compatible import (
    CompatibilityTerm,
    CompatibleModel,
    CompatibleTraining,
    FrozenSource,
    SourceKnowledge,
    cmc_of,
    retrieval_figures,
)
from compatstore.trainers.images.given_vectors import FrozenRefreshed, Refreshed
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.trainers.images.training import TrainingRun
from compatstore.trainers.pairs.two_branch import TwoBranch, fold
from compatstore.trainers.settings import Count, NotNegative, Positive, from_to
from compatstore.trainers.training import OnEpoch

Selection = Literal["entropy", "least-confidence", "none"]
Compatibility = Literal["head", "regression"]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DMU(CompatibleTraining):
    """Darwinian model upgrades (Zhang et al., AAAI 2023): `l_0 L_new + l_1 L_SBC + l_2 L_FA` (equation 8, all l 1).

    For a sequence of upgrades train each generation with the one before as its source: the adapted gallery is in the
    space of that generation. Adapted embeddings are not native ones: hand them to `fit` (`refreshed`), and the
    adaptation learns from both. If the gallery still holds the first source's natives, an adaptation from those is
    better.

    Args:
        selection: Weight of an item in the inherited loss, by the prediction of the source's head: "entropy"
            (equations 9 and 10; nearly even by construction: the deviations from 1/b of a batch of b add up to 2/b at
            most), "least-confidence" (equation 13: the softmax over the batch of the true class' probability; an item
            weighs at most e times as much as another); "none" weighs all items equally.
        compatibility: The inherited loss: that through the source's "head" (equation 10), or the "regression" to its
            embedding, 1 - cosine (equation 14).
        inherited_weight: l_1, of the inherited loss, >= 0; l_0 is `own_weight`.
        adaptation_weight: l_2, of the loss of the forward-adaptation head, >= 0. At 0 no such head is trained, as in
            the first rows of the paper's table 4: `fit` gives a model without an adaptation.
        adaptation_scale: Multiplies the cosines of that loss, > 0; None takes `scale`, as the paper does. A smaller one
            leaves the adapted embeddings more of the order within a class.
        adapter_width: Of the three hidden layers of the forward-adaptation head, >= 1.
        two_views: The source embeds a random view of its own of each image, as in the paper's algorithm 1; else the
            target's. Without an augmentation both are the image.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    head: HeadKind = "arcface"
    scale: Positive = 30.0
    margin: Annotated[float, from_to(0, 1.5)] = 0.3
    selection: Selection = "entropy"
    compatibility: Compatibility = "head"
    inherited_weight: NotNegative = 1.0
    adaptation_weight: NotNegative = 1.0
    adaptation_scale: Positive | None = None
    adapter_width: Count = 1024
    two_views: bool = True

    @checked
    def fit(
        self,
        images: Images,
        source: TrainedModel,
        *,
        refreshed: Sequence[Refreshed] = (),
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> CompatibleModel:
        """Train from random weights; the source is not changed.

        Args:
            images: Training images; at least two classes, known to the source or not.
            source: The model to stay comparable with.
            refreshed: Other origin of vectors of the source's space in the gallery: for a gallery that was refreshed
                before, from the model of its natives to the source.
            held_out: Images of the same classes, to measure accuracy and retrieval on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill.

        Returns:
            A model with an `adaptation`; without one if `adaptation_weight` is 0.

        Raises:
            InvalidInput: As of every compatible training; or there is no adaptation that could learn from refreshed
                vectors.
            Incompatible: A refresh does not lead from its model to the source.
        """
        if refreshed and not self.adaptation_weight:
            expected = "adaptation_weight above 0 if a gallery was refreshed"
            raise InvalidInput("train DMU", expected=expected, found="0, which trains no adaptation")
        for one in refreshed:
            one.require_into(source, self.metric)

        objective = partial(DMUObjective, self, refreshed=refreshed)
        run = TrainingRun(progress, checkpoint, "".join(one.fingerprint for one in refreshed))
        model = self.train_with(objective, images, source, held_out, run)
        if not refreshed or model.adaptation is None:
            return model
        assert model.adaptation.seen is not None, "every compatible training records its training vectors"
        digests = [digest_half(one.vectors(images)) for one in refreshed]
        adaptation = model.adaptation.amended(seen=np.concatenate([model.adaptation.seen, *digests]))
        figures = dict(model.figures)
        if held_out is not None:
            queries = model.encoder.encode(list(held_out.images))
            galleries = [adaptation.apply(one.vectors(held_out)).vectors for one in refreshed]
            ways = {f"t/h, refreshed {number}": (queries, gallery) for number, gallery in enumerate(galleries, 1)}
            figures |= cmc_of(ways, held_out.labels, self.metric)
        return replace(model, adaptation=adaptation, figures=figures)

    def term(self, known: SourceKnowledge, head: ClassHead) -> CompatibilityTerm:
        """Refuse: all terms are in the objective."""
        raise NotImplementedError

    def model(
        self,
        objective: Classification,
        source: TrainedModel,
        target: TrainedModel,
        seen: Digests,
        held_out: Images | None,
    ) -> CompatibleModel:
        """Bind the trained target to its source, with the adaptation, and measure both on held-out images."""
        assert isinstance(objective, DMUObjective)
        target = replace(target, figures={**target.figures, **objective.weight_spread(self.batch_size)})
        if objective.adapter is None:
            return super().model(objective, source, target, seen, held_out)
        adaptation = Artifact.create(
            "ForwardTransform",
            method="DMU",
            source=source.space(self.metric),
            target=target.space(self.metric),
            networks={"h": objective.adapter.architecture},
            tensors={f"h.{name}": tensor.float() for name, tensor in fold(objective.adapter).items()},
            settings=asdict(self),
        )
        figures = target.figures
        if held_out is not None:
            figures = retrieval_figures(adaptation, source, target, held_out, self.metric)
            target = replace(target, figures={**target.figures, "t/h": figures["t/h"]})
        plain = super().model(objective, source, target, seen, held_out)
        return replace(plain, adaptation=adaptation.amended(figures={"h": dict(figures)}, seen=seen))


class DMUObjective(Classification):
    """(b, c, s, s) uint8 and (b,) labels -> scalar.

    Args:
        method: Its settings.
        network: (b, c, s, s) float32 -> (b, dim).
        preprocessing: From pixels to the input of the network.
        source: Embeds views of the same images; no gradients.
        known: The source's embeddings of the training images.
        refreshed: Other origin of the gallery's vectors, or None.
    """

    def __init__(
        self,
        method: DMU,
        network: nn.Module,
        preprocessing: Preprocessing,
        source: FrozenSource,
        known: SourceKnowledge,
        refreshed: Sequence[Refreshed] = (),
    ) -> None:
        super().__init__(method, network, preprocessing, len(known.rows))
        self.method, self.source, self.rows = method, source, nn.Buffer(known.rows)
        self.source_features, self.source_labels = known.features, known.labels
        self.refreshed = nn.ModuleList(FrozenRefreshed(one) for one in refreshed)
        layers, unit = (method.adapter_width,) * 3, method.normalise
        shape = Architecture(source_dim=source.source_dim, output_dim=method.dim, mixer=layers, normalise=unit)
        self.adapter = TwoBranch(shape) if method.adaptation_weight else None

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a batch, ()."""
        method, views = self.method, self.views(pixels)
        views_of_source = self.views(pixels) if method.two_views else views
        embeddings, of_source = self.embed(views), self.source(views_of_source)
        with torch.autocast(pixels.device.type, enabled=False):
            new: torch.Tensor = self.head(embeddings, labels)
            if method.compatibility == "regression":
                losses = 1 - functional.cosine_similarity(embeddings, of_source)
            else:
                losses = self.classifier.losses(embeddings, self.rows, labels)
            inherited = (self.weights(of_source, labels) * losses).sum()
        loss = method.own_weight * new + method.inherited_weight * inherited
        if self.adapter is None:
            return loss
        return loss + method.adaptation_weight * self._adaptation_loss(self.adapter, views_of_source, of_source, labels)

    def _adaptation_loss(
        self, adapter: TwoBranch, views: torch.Tensor, of_source: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """L_FA (equation 11): the mean over the source's vectors of a batch, native and refreshed ones."""
        native = of_source[:, : self.source.source_dim]
        stored = torch.cat([native, *(refreshed(views) for refreshed in self.refreshed)])
        adapted = adapter(stored, None).vectors
        scale = self.method.adaptation_scale or self.method.scale
        classifier: Classifier = replace(self.method, scale=scale)
        with torch.autocast(views.device.type, enabled=False):
            truth = labels.repeat(1 + len(self.refreshed))
            return classifier.losses(adapted.float(), self.head.rows, truth).mean()

    def weights(self, of_source: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Weights of the inherited losses: source embeddings (b, dim) and labels (b,) -> (b,), adding up to 1."""
        # Cosines are scaled, because entropies of unscaled ones are nearly equal.
        return selective_weights(self.classifier.logits(of_source, self.rows), labels, self.method.selection)

    @torch.no_grad()
    def weight_spread(self, batch_size: int) -> dict[str, float]:
        """Smallest and largest weight of an item in its batch, as multiples of the even weight."""
        parts = (torch.split(values, batch_size) for values in (self.source_features, self.source_labels))
        batches = [(features, labels) for features, labels in zip(*parts, strict=True) if len(features) > 1]
        relative = torch.cat([len(features) * self.weights(features, labels) for features, labels in batches])
        return {"smallest_weight": float(relative.min()), "largest_weight": float(relative.max())}


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
