"""BT^2 across modalities: images are compared with a text encoder's vectors of their captions, or any given vectors."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact, Space
from compatstore.digests import digest_half
from compatstore.encoders.network import Preprocessing
from compatstore.errors import DimensionMismatch
from compatstore.trainers.images.bt2 import BT2, BT2Model, BT2Objective
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.independent import accuracy, require_classes
from compatstore.trainers.images.loop import Report, seeded
from compatstore.trainers.images.recipe import encoder_of
from compatstore.trainers.images.source_model import FrozenSource, class_means
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.versions import EmbeddingVersion


def fit_across(
    method: BT2,
    images: Images,
    vectors: FloatArray,
    source: EmbeddingVersion,
    *,
    target: TrainedModel | None = None,
    held_out: Images | None = None,
    report: Report | None = None,
    checkpoint: str | Path | None = None,
) -> BT2Model:
    """Train an image model whose first values are compared with vectors of another modality (BT^2, section 4.7).

    Nothing embeds the images there, so each is trained against the vector that it is given: that of its caption, say.
    The source's head is the mean vector of each class.

    Args:
        method: How to train; its `source_rows` has no meaning here.
        images: n images, of two classes or more.
        vectors: (n, dim) float32, of the source, in the images' order.
        source: The version that the vectors are of.
        target: An independent image model of `method.target_dim` values; None trains one first.
        held_out: Images of the same classes, to measure the accuracy on.
        report: Called after each epoch.
        checkpoint: File to save to, and to go on from after a kill; give `target` with it.

    Raises:
        DimensionMismatch: There are not as many vectors as images, or they are not of the source's dimension.
        InvalidInput: There are fewer than two classes.
    """
    require_classes(images, held_out)
    if vectors.shape != (len(images), source.dim):
        expected = f"({len(images)}, {source.dim}) vectors"
        raise DimensionMismatch("train BT2 against given vectors", expected=expected, found=f"{vectors.shape}")
    preprocessing = method.preprocessing(images)
    images.require_readable(preprocessing.mode)
    independent = target or method.independent().fit(images, report=report)
    backbone, start = method.target_backbone(preprocessing, source.dim), time.perf_counter()
    with seeded(method.seed):
        goal = FrozenSource(independent.encoder, method.target_dim)
        objective = _AcrossObjective(method, backbone.build(), preprocessing, images, torch.from_numpy(vectors), goal)
        # The position of an image stands in for its label: so a batch knows which vectors belong to it.
        positions = Images(images.images, np.arange(len(images)))
        fixed = hashlib.sha256(vectors.tobytes() + np.asarray(images.labels).tobytes()).hexdigest()
        fixed += independent.encoder.fingerprint
        loss = method.minimise(objective, positions, preprocessing, report=report, checkpoint=checkpoint, source=fixed)
    encoder = encoder_of(backbone, preprocessing, objective.finished(), normalise=True)
    head, classes = objective.class_rows(), len(images.class_names)
    figures = {"loss": loss, "images": len(images), "classes": classes, "seconds": time.perf_counter() - start}
    if held_out is not None:
        figures["accuracy"] = accuracy(encoder, head, held_out)
    model = TrainedModel(encoder=encoder, head=head, class_names=images.class_names, figures=figures)
    artifact = Artifact.create(
        "Prefix",
        method="BT2",
        source=Space.of(source),
        target=model.space(method.metric),
        settings=asdict(method),
        figures=figures,
        seen=digest_half(vectors),
    )
    return BT2Model(
        encoder=encoder,
        head=head,
        class_names=images.class_names,
        figures=figures,
        artifact=artifact,
        metric=method.metric,
    )


class _AcrossObjective(BT2Objective):
    """(b, c, s, s) uint8 and (b,) positions -> scalar."""

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

    def forward(self, pixels: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.loss_of(self.views(pixels), self.labels[positions], self.vectors[positions])
