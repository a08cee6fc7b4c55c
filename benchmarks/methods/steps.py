"""Six versions, each of a few classes more: what the latest queries find in a gallery that took every hop (FCT, H)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.methods.measure import figures, own
from benchmarks.methods.models import Models, embed
from benchmarks.pairs.journal import Record
from compatstore.arrays import FloatArray
from compatstore.trainers import FCT, Independent, Pairs, TrainedModel

SIDE = "SimCLR"


def independents(models: Models) -> list[TrainedModel]:
    """The six models, trained without regard for each other."""
    size, images = models.lesson.size, (*models.lesson.sources[1:], models.lesson.target)
    later = [
        models.fit(Independent(dim=size.dim, **models.classifier(start=number)), known)
        for number, known in enumerate(images, 1)
    ]
    return [models.source, *later]


def alone(models: Models) -> Record:
    """Each version in its own gallery, and the last one's queries in the first one's."""
    versions = independents(models)
    found = {f"{number}/{number}": own(models.lesson, model) for number, model in enumerate(versions, 1)}
    queries = embed(versions[-1].encoder, models.lesson.queries)
    stored = embed(versions[0].encoder, models.lesson.gallery)
    return {**found, f"{len(versions)}/1": figures(models.lesson, queries, stored)}


def chained(models: Models, *, side: bool = False) -> Record:
    """The first gallery, hopped from version to version; with side-information g carries that over too."""
    lesson, versions = models.lesson, independents(models)
    learned = (*lesson.sources, lesson.target)
    sides = [models.fit(models.side_trainers[SIDE], known).encoder for known in learned[:-1]] if side else []
    vectors = embed(versions[0].encoder, lesson.gallery)
    carried: FloatArray | None = embed(sides[0], lesson.gallery) if side else None
    found: Record = {}
    for number in range(1, len(versions)):
        images = learned[number]
        between = number < len(sides)
        pairs = Pairs(
            embed(versions[number - 1].encoder, images),
            embed(versions[number].encoder, images),
            side=embed(sides[number - 1], images) if side else None,
            target_side=embed(sides[number], images) if between else None,
            labels=np.asarray(images.labels),
            source_version=versions[number - 1].version(f"v{number}"),
            target_version=versions[number].version(f"v{number + 1}"),
        )
        hopped = _trainer(models, side_transform=between).fit(pairs).apply(vectors, carried)
        vectors, carried = hopped.vectors, hopped.side
        queries = embed(versions[number].encoder, lesson.queries)
        found[f"{number + 1}/h(1)"] = figures(lesson, queries, vectors)
    return found


def _trainer(models: Models, *, side_transform: bool) -> FCT:
    size = models.lesson.size
    return FCT(
        epochs=size.transform_epochs,
        seed=models.lesson.seed,
        branch_width=size.branch_width,
        mixer_width=size.transform_width,
        side_transform=side_transform,
    )


CHAINS: dict[str, Callable[[Models], Record]] = {
    "independent": alone,
    "FCT": chained,
    f"FCT + {SIDE}": partial(chained, side=True),
}
