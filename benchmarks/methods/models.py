"""The models of a trial: sources and the independent target, trained once and shared by all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.methods.lesson import Lesson
from compatstore.arrays import FloatArray
from compatstore.encoders import Encoder
from compatstore.trainers import Autoencoder, Images, Independent, Pairs, SimCLR, TrainedModel

# Of every classifier, as in DMU's paper on landmarks.
ARCFACE = {"scale": 30.0, "margin": 0.3}
ANOTHER_START = 500


@dataclass(frozen=True, eq=False)
class Models:
    """What the rows of a trial have in common.

    Args:
        lesson: The trial.
    """

    lesson: Lesson

    def loop(self, *, target: bool = True) -> dict[str, Any]:
        """Settings of every network on images; the target's may be another network than the source's."""
        size = self.lesson.size
        other = target and self.lesson.setting == "architecture"
        # Models that know the same classes, from the same start, are comparable without any method.
        apart = ANOTHER_START if target and self.lesson.setting == "data" else 0
        network = (
            {"architecture": size.transformer, "width": size.transformer_width, "epochs": size.transformer_epochs}
            if other
            else {"architecture": size.architecture, "width": size.width, "epochs": size.epochs}
        )
        precision = "auto" if other else size.precision
        return {**network, "batch_size": size.batch_size, "precision": precision, "seed": self.lesson.seed + apart}

    def classifier(self, *, target: bool = True) -> dict[str, Any]:
        """Settings of every classifier; all embeddings have unit length."""
        return {**self.loop(target=target), "head": "arcface", **ARCFACE}

    @cached_property
    def source(self) -> TrainedModel:
        """The first version."""
        return Independent(dim=self.lesson.size.dim, **self.classifier(target=False)).fit(self.lesson.sources[0])

    @cached_property
    def independent(self) -> TrainedModel:
        """The target without regard for any source."""
        return Independent(dim=self.lesson.size.dim, **self.classifier()).fit(self.lesson.target)

    @cached_property
    def side_encoders(self) -> dict[str, Callable[[], Encoder]]:
        """Side-information that is stored with the source, each trained when asked for."""
        size, lesson, loop = self.lesson.size, self.lesson.sources[0], self.loop(target=False)
        another = {**self.classifier(target=False), "seed": self.lesson.seed + 1000}
        return {
            "autoencoder": lambda: Autoencoder(dim=size.side, **loop).fit(lesson).encoder,
            "another seed": lambda: Independent(dim=size.side, **another).fit(lesson).encoder,
            "SimCLR": lambda: SimCLR(dim=size.side, **{**loop, "batch_size": 256}).fit(lesson).encoder,
        }

    def pairs(self, target: TrainedModel, side: Encoder | None = None) -> Pairs:
        """Pair the source's and a target's embeddings of the target's training images."""
        images = list(self.lesson.target.images)
        return Pairs(
            self.source.encoder.encode(images),
            target.encoder.encode(images),
            side=None if side is None else side.encode(images),
            labels=np.asarray(self.lesson.target.labels),
            head=target.head,
            source_version=self.source.version("v1"),
            target_version=target.version("v2"),
        )


def embed(encoder: Encoder, images: Images) -> FloatArray:
    """(n, dim) float32."""
    return encoder.encode(list(images.images))
