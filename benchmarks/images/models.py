"""The models of a trial: source, independent target and side-information, trained once and shared by all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.images.trial import Trial
from compatstore.arrays import FloatArray
from compatstore.digests import fingerprint
from compatstore.encoders import Encoder
from compatstore.trainers import Augmentation, Autoencoder, Images, Independent, Pairs, SimCLR, TrainedModel
from compatstore.trainers.images.training import deciding_settings
from compatstore.versions import EmbeddingVersion, Metric, SideDType

ANOTHER_START = 500
LOSSES: dict[str, dict[str, Any]] = {
    "ArcFace": {"head": "arcface", "scale": 30.0, "margin": 0.3},
    "CosFace": {"head": "cosface", "scale": 30.0, "margin": 0.2},
    # On unit features without a scale, as BT^2's authors train all.
    "cross-entropy": {"head": "unit-linear"},
    # FCT (section 4) and FastFill (appendix A.2): features after ReLU, SGD; 1.024 in batches of 1024.
    "softmax": {
        "head": "linear", "label_smoothing": 0.1, "relu": True, "optimiser": "sgd", "learning_rate": 0.064,
        "weight_decay": 2**-15, "warmup_epochs": 0.5,
    },
    # BT^2 (section 4.4): features of unit length, Adam.
    "cosine": {"head": "cosine", "learning_rate": 1e-3, "weight_decay": 0.0, "warmup_epochs": 0.0},
    # DMU (training details): GeM, SGD; 0.1 in batches of 256 on each of 6 GPUs, a warm-up of 1 of 30 epochs. By a
    # larger rate ArcFace leaves the independent model's vectors opposite to the rows.
    "pooled ArcFace": {
        "head": "arcface", "scale": 30.0, "margin": 0.3, "pooling": "gem", "optimiser": "sgd",
        "learning_rate": 0.1 * 64 / 1536, "weight_decay": 1e-4, "epochs": 20, "warmup_epochs": 2 / 3,
    },
}  # fmt: skip
METRICS: dict[str, Metric] = {"softmax": "l2"}  # of the others: cosine


@dataclass(frozen=True, eq=False)
class Models:
    """What the rows of a trial have in common.

    Args:
        trial: The trial.
        loss: One of `LOSSES`, for all classifiers.
        checkpoints: Folder where trainings are saved; None saves none.
    """

    trial: Trial
    loss: str = "ArcFace"
    checkpoints: Path | None = None

    def loop(self, *, target: bool = True, start: int = 1) -> dict[str, Any]:
        """Settings of every network on images.

        Args:
            target: True for a target; else a source or its side-information.
            start: Number of the version after the source; each has initial weights of its own.
        """
        size = self.trial.size
        changes = self.trial.setting == "architecture"
        other = target and changes and not size.better
        # Models that know the same classes, from the same start, are comparable without any method.
        together = not target or (size.one_start and self.trial.setting != "data")
        width = size.width // 2 if size.better and changes and not target else size.width
        network = {"architecture": size.architecture, "width": width, "precision": size.precision}
        if other:
            network = {"architecture": "small-vit", "width": size.transformer_width, "precision": "auto"}
        seed = self.trial.seed + (0 if together else ANOTHER_START * (1 if size.one_start else start))
        epochs = 4 * size.epochs if other and size.one_start else size.epochs
        return {**network, "epochs": epochs, "batch_size": size.batch_size, "seed": seed}

    def classifier(self, *, target: bool = True, start: int = 1) -> dict[str, Any]:
        """Settings of every classifier; all embeddings have unit length."""
        size, loop = self.trial.size, self.loop(target=target, start=start)
        rates = {"learning_rate": size.learning_rate, "weight_decay": size.weight_decay}
        views = Augmentation(flip=self.trial.flip, group=size.group) if size.augment else None
        own = {} if loop["architecture"] == "small-vit" else rates
        return {**loop, **own, "augmentation": views, **LOSSES[self.loss]}

    @property
    def metric(self) -> Metric:
        """Distance of all spaces."""
        return METRICS.get(self.loss, "cosine")

    def fit(self, trainer: Any, images: Images, *models: TrainedModel, **further: Any) -> Any:
        """Train on images, or take up the file of this very training."""
        file = None
        if self.checkpoints is not None:
            known = [one.encoder.fingerprint for one in models]
            method, settings = type(trainer).__name__, deciding_settings(trainer)
            digest = fingerprint(trainer=method, settings=settings, images=images.fingerprint, models=known)
            file = self.checkpoints / f"{method}-{digest[:12]}.safetensors"
        return trainer.fit(images, *models, **further, checkpoint=file)

    @cached_property
    def source(self) -> TrainedModel:
        """The old model."""
        trainer = Independent(dim=self.trial.size.dim, **self.classifier(target=False))
        model: TrainedModel = self.fit(trainer, self.trial.source)
        return model

    @cached_property
    def independent(self) -> TrainedModel:
        """The new model, without regard for the old one."""
        model: TrainedModel = self.fit(Independent(dim=self.trial.size.dim, **self.classifier()), self.trial.target)
        return model

    def side(self, kind: str) -> Encoder:
        """Side-information that is stored with the source: "autoencoder", "another seed" or "SimCLR"."""
        size, loop = self.trial.size, {**self.loop(target=False), "width": self.trial.size.width}
        steps = size.epochs * max(len(self.trial.source) // size.batch_size, 1)
        another = {**self.classifier(target=False), "seed": self.trial.seed + 1000}
        trainers = {
            "autoencoder": Autoencoder(dim=size.side, **loop),
            "another seed": Independent(dim=size.side, **another),
            "SimCLR": SimCLR(dim=size.side, **{**loop, "batch_size": min(256, 2 * size.batch_size), "steps": steps}),
        }
        encoder: Encoder = self.fit(trainers[kind], self.trial.source).encoder
        return encoder

    def version(self, side: Encoder | None = None, dtype: SideDType = "float32") -> EmbeddingVersion:
        """The source's version, with side-information if any."""
        version = self.source.version("v1", metric=self.metric)
        return version if side is None else replace(version, side_dim=side.dim, side_encoder=side, side_dtype=dtype)

    def pairs(self, target: TrainedModel, side: Encoder | None = None, dtype: SideDType = "float32") -> Pairs:
        """The source's and a target's embeddings of the target's training images."""
        images = self.trial.target
        return Pairs(
            embed(self.source.encoder, images),
            embed(target.encoder, images),
            side=None if side is None else embed(side, images),
            labels=np.asarray(images.labels),
            head=target.head,
            source_version=self.version(side, dtype),
            target_version=target.version("v2", metric=self.metric),
        )


@lru_cache(maxsize=32)
def embed(encoder: Encoder, images: Images) -> FloatArray:
    """(n, dim) float32; kept, as rows share models and images."""
    return encoder.encode(list(images.images))
