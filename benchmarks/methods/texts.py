"""A gallery of captions that an image model searches, and that texts go on asking (BT^2, section 4.7)."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import compatstore as cs
from benchmarks.methods.measure import figures, own, searched_as_is
from benchmarks.methods.models import Models, embed
from benchmarks.pairs.journal import Record
from compatstore.trainers import BT2


def alone(models: Models) -> Record:
    """The image model without regard for any text, in its own gallery."""
    return {"t/t": own(models.lesson, models.independent)}


def bt2(models: Models) -> Record:
    """BT^2 against captions: images ask for captions (t/s), texts for images (s/t), images for images (t/t)."""
    lesson, start = models.lesson, time.perf_counter()
    size, images, captions = lesson.size, lesson.target, lesson.captions
    assert captions is not None, "the setting has them"
    version = cs.EmbeddingVersion("v1", dim=captions.shape[1], metric="cosine", normalised=True)
    trainer = BT2(dim=size.dim + size.extra, extra=size.extra, **models.classifier())
    model = trainer.fit_across(
        images,
        captions[np.asarray(images.labels)],
        version,
        target=models.independent,
        checkpoint=models.checkpoints.of(trainer, images, models.independent),
    )
    seconds = time.perf_counter() - start
    asking, stored = (captions[np.asarray(part.labels)] for part in (lesson.queries, lesson.gallery))
    found = searched_as_is(lesson, version, stored, model, model.artifact)
    compared = model.artifact.apply(embed(model.encoder, lesson.gallery)).vectors
    asked = figures(lesson, asking, compared)
    return {**found, "s/t": asked, "t/t": own(lesson, model), "seconds": seconds}


ACROSS: dict[str, Callable[[Models], Record]] = {"independent": alone, "BT2": bt2}
