"""The models of a trial: sources and the independent target, trained once and shared by all rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from benchmarks.methods.checkpoints import Checkpoints
from benchmarks.methods.lesson import Lesson
from compatstore.arrays import FloatArray
from compatstore.encoders import Encoder
from compatstore.trainers import Augmentation, Autoencoder, Images, Independent, Pairs, Refreshed, SimCLR, TrainedModel

# Of every classifier, as in DMU's paper on landmarks.
ARCFACE = {"scale": 30.0, "margin": 0.3}
ANOTHER_START = 500
# SimCLR for other numbers of steps than the rest of the side-information.
QUARTER, FOURFOLD = ", a quarter of the steps", ", four times the steps"


@dataclass(frozen=True, eq=False)
class Models:
    """What the rows of a trial have in common.

    Args:
        lesson: The trial.
        checkpoints: Where trainings are saved.
    """

    lesson: Lesson
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def loop(self, *, target: bool = True, start: int = 1) -> dict[str, Any]:
        """Settings of every network on images; the target's may be another network than the source's.

        Args:
            target: Whether a target is trained, rather than a source or its side-information.
            start: Which of the versions after the source a target is, from 1; each has initial weights of its own.
        """
        size = self.lesson.size
        other = target and self.lesson.setting == "architecture"
        # Models that know the same classes, from the same start, are comparable without any method.
        together = not target or (size.one_start and self.lesson.setting != "data")
        apart = 0 if together else ANOTHER_START * (1 if size.one_start else start)
        network = (
            {"architecture": size.transformer, "width": size.transformer_width, "epochs": size.transformer_epochs}
            if other
            else {"architecture": size.architecture, "width": size.width, "epochs": size.epochs}
        )
        precision = "auto" if other else size.precision
        common = {"batch_size": size.batch_size, "precision": precision}
        return {**network, **common, "seed": self.lesson.seed + apart}

    def classifier(self, *, target: bool = True, start: int = 1) -> dict[str, Any]:
        """Settings of every classifier; all embeddings have unit length."""
        size, lesson = self.lesson.size, self.lesson
        other = target and lesson.setting == "architecture"
        names = () if other else ("learning_rate", "weight_decay")
        optimiser = {name: getattr(size, name) for name in names}
        views = Augmentation(flip=lesson.flip, group=size.group) if size.augment else None
        loop = self.loop(target=target, start=start)
        return {**loop, **optimiser, "augmentation": views, "head": "arcface", **ARCFACE}

    def fit(
        self, trainer: Any, images: Images, *models: TrainedModel, **further: TrainedModel | Sequence[Refreshed]
    ) -> Any:
        """Train on images, or take up what was saved of this very training.

        Args:
            trainer: Its `fit` gets the other arguments.
            images: What to train on.
            models: Such as the source.
            further: BT^2's independent `target`, or the galleries `refreshed` that DMU's head reads too.
        """
        lists = [[one] if isinstance(one, TrainedModel) else one for one in further.values()]
        checkpoint = self.checkpoints.of(trainer, images, *models, *itertools.chain.from_iterable(lists))
        return trainer.fit(images, *models, **further, checkpoint=checkpoint)

    @cached_property
    def source(self) -> TrainedModel:
        """The first version."""
        trainer = Independent(dim=self.lesson.size.dim, **self.classifier(target=False))
        model: TrainedModel = self.fit(trainer, self.lesson.sources[0])
        return model

    @cached_property
    def independent(self) -> TrainedModel:
        """The target without regard for any source."""
        model: TrainedModel = self.fit(Independent(dim=self.lesson.size.dim, **self.classifier()), self.lesson.target)
        return model

    @property
    def side_trainers(self) -> dict[str, Any]:
        """Trainers of the side-information that is stored with the source.

        All kinds take the steps of the source where the size says that steps are equal, else its epochs.
        """
        size, loop = self.lesson.size, self.loop(target=False)
        another = {**self.classifier(target=False), "seed": self.lesson.seed + 1000}
        steps = size.epochs * max(len(self.lesson.sources[0]) // size.batch_size, 1)

        def simclr(share: float) -> SimCLR:
            given = {**loop, "batch_size": 256} | ({"steps": max(round(share * steps), 1)} if size.equal_steps else {})
            return SimCLR(dim=size.side, **given)

        return {
            "autoencoder": Autoencoder(dim=size.side, **loop),
            "another seed": Independent(dim=size.side, **another),
            "SimCLR": simclr(1.0),
            f"SimCLR{QUARTER}": simclr(0.25),
            f"SimCLR{FOURFOLD}": simclr(4.0),
        }

    def side_encoder(self, kind: str) -> Encoder:
        """Train one of `side_trainers`, or take it up."""
        encoder: Encoder = self.fit(self.side_trainers[kind], self.lesson.sources[0]).encoder
        return encoder

    def pairs(self, target: TrainedModel, side: Encoder | None = None, *, fresh: bool = False) -> Pairs:
        """Pair the source's and a target's embeddings of the target's training images, or of images new to both."""
        lesson = self.lesson.fresh if fresh else self.lesson.target
        assert lesson is not None, "the set has no images that are new to both"
        images = list(lesson.images)
        return Pairs(
            self.source.encoder.encode(images),
            target.encoder.encode(images),
            side=None if side is None else side.encode(images),
            labels=np.asarray(lesson.labels),
            head=target.head,
            source_version=self.source.version("v1"),
            target_version=target.version("v2"),
        )


@lru_cache(maxsize=1)
def wider(models: Models) -> Models:
    """The same trial by models with twice the values; source and independent target are trained once for all rows."""
    size = models.lesson.size
    return replace(models, lesson=replace(models.lesson, size=replace(size, dim=2 * size.dim)))


def embed(encoder: Encoder, images: Images) -> FloatArray:
    """(n, dim) float32."""
    return encoder.encode(list(images.images))
