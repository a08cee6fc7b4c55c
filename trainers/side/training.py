"""Training of side-information: settings of all its trainers, `fit`, its result, and codes of one bit per value."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import nn

from compatstore.boundary import checked
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.encoders.protocol import Encoder
from compatstore.evaluation.agreement import linear_cka
from compatstore.trainers.images.classification import require_readable
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.training import ImageTraining, encoder_of
from compatstore.trainers.settings import Count
from compatstore.trainers.training import OnEpoch, seeded, within_memory

COMPARED = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class SideModel:
    """The result of training side-information.

    Args:
        encoder: The side-information model: `EmbeddingVersion(..., side_dim=encoder.dim, side_encoder=encoder)`.
        figures: What was measured: "loss" (mean of the last epoch), "images", "steps" (of the optimiser, in all),
            "seconds", and where the source's encoder is known "cka", the linear CKA with its embeddings; low where the
            two complement each other.
    """

    encoder: NetworkEncoder
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SideTrainer(ImageTraining, ABC):
    """Train a network whose output is stored beside each embedding, as further input of later transforms.

    Args:
        dim: Values of side-information an item.
        steps: Steps of the optimiser to train for, >= 1, in place of `epochs`: rounded up to whole passes over the
            images, with the warm-up's share of all passes kept. Kinds of side-information differ in their batches, so
            equal steps compare them as FCT's table 6 does, equal passes do not. None trains for `epochs`.
        codes: Train for `side_dtype="bits"`: while it trains, the loss sees the signs of the values, which a BatchNorm
            keeps even; gradients skip the sign (straight-through estimator, arXiv 1308.3432).

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count = 64
    steps: Count | None = None
    codes: bool = False

    def epochs_for(self, images: int) -> Self:
        """The same trainer with the passes over n images that its `steps` take."""
        if self.steps is None:
            return self
        epochs = -(-self.steps // self._steps_a_pass(images))
        return replace(self, epochs=epochs, warmup_epochs=self.warmup_epochs * epochs / self.epochs)

    def _steps_a_pass(self, images: int) -> int:
        """A last batch that is not full is left out, as `Images.batches` does."""
        return images // min(self.batch_size, images)

    @abstractmethod
    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the loss of a batch, ((b, c, s, s) uint8, (b,) labels) -> scalar, around a network."""

    @property
    def unit_length(self) -> bool:
        """Whether the side-information has unit length."""
        return False

    @property
    def ends_in_norm(self) -> bool:
        """Whether the network ends in a BatchNorm."""
        return self.codes

    @checked
    def fit(
        self,
        images: Images,
        *,
        source: Encoder | None = None,
        held_out: Images | None = None,
        progress: OnEpoch | None = None,
        checkpoint: str | Path | None = None,
    ) -> SideModel:
        """Train from random weights, or those of `pretrained`.

        Args:
            images: What to train on: those that the source model learnt from, or more of their kind.
            source: The source's encoder, to measure the linear CKA with; it has no part in the training.
            held_out: Images to measure it on; by default those that were trained on.
            progress: Called after each epoch.
            checkpoint: File to save to, from which training continues after a kill.

        Raises:
            InvalidInput: The loss became NaN or infinite, or the trainer needs other images.
            SourceError: Some files cannot be read.
            Incompatible: The checkpoint is of other settings or images.
            CorruptArtifact: The checkpoint is damaged.
        """
        preprocessing, start = self.preprocessing(images), time.perf_counter()
        require_readable(preprocessing, images, held_out)
        backbone = self.backbone(preprocessing, final_norm=self.ends_in_norm)
        with seeded(self.seed), within_memory(f"train {type(self).__name__}"):
            network = self.start(backbone)
            seen = nn.Sequential(network, StraightThrough()) if self.codes else network
            objective = self.objective(seen, preprocessing, images)
            training = self.epochs_for(len(images))
            loss = training.minimise(objective, images, preprocessing, progress=progress, checkpoint=checkpoint)
        encoder = encoder_of(backbone, preprocessing, network, normalise=self.unit_length)
        steps = training.epochs * self._steps_a_pass(len(images))
        figures = {"loss": loss, "images": len(images), "steps": steps, "seconds": time.perf_counter() - start}
        if source is not None:
            figures["cka"] = complementarity(encoder, source, held_out or images)
        return SideModel(encoder=encoder, figures=figures)


class StraightThrough(nn.Module):
    """Signs of values, (..., dim) of -1 and 1; the gradient is that of the values, between -1 and 1."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The signs; 0 counts as negative, as where they are stored."""
        signs = torch.where(values > 0, 1.0, -1.0).to(values.dtype)
        within = values.clamp(-1, 1)
        return within + (signs - within).detach()


def complementarity(side: Encoder, source: Encoder, images: Images) -> float:
    """Linear CKA of side-information with the source's embeddings, on at most 2,000 images.

    Returns:
        0 to 1; at 1 the side-information adds nothing to the embedding (FCT, section 5.3).
    """
    few = images.take(np.linspace(0, len(images) - 1, min(COMPARED, len(images))).astype(int))
    return linear_cka(side.encode(list(few.images)), source.encode(list(few.images)))
