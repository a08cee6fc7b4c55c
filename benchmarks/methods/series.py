"""Three versions, each made to understand the one before: what the latest queries find in the oldest gallery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from benchmarks.methods.measure import figures, own
from benchmarks.methods.models import Models, embed
from benchmarks.pairs.journal import Record
from compatstore.arrays import FloatArray
from compatstore.trainers import BCT, BT2, DMU, Images, Independent, Refreshed, TrainedModel

OF_FOUR = "of four: "

# (models, images, the version before, which version after the first) -> the next version.
Step = Callable[[Models, Any, TrainedModel, int], TrainedModel]


def series(step: Step, models: Models) -> Record:
    """Train three versions and search every gallery with the queries of every version that came later."""
    lesson = models.lesson
    versions = [models.source]
    for number, images in enumerate((*lesson.sources[1:], lesson.target), 1):
        versions.append(step(models, images, versions[-1], number))
    queries = [embed(model.encoder, lesson.queries) for model in versions]
    galleries = [embed(model.encoder, lesson.gallery) for model in versions]
    return {
        f"{later + 1}/{earlier + 1}": figures(lesson, _cut(queries[later], galleries[earlier]), galleries[earlier])
        for earlier, later in combinations_with_replacement(range(3), 2)
    }


def dmu_hops(models: Models) -> Record:
    """DMU's chain of refreshes: the first gallery hopped once and twice."""
    lesson = models.lesson
    second = _dmu(models, lesson.sources[1], models.source, 1)
    third = _dmu(models, lesson.target, second, 2)
    direct = _dmu(models, lesson.target, models.source, 2)
    stored, queries = embed(models.source.encoder, lesson.gallery), embed(third.encoder, lesson.queries)
    from_direct = embed(direct.encoder, lesson.queries)
    refreshed = second.adaptation.apply(stored).vectors
    native = embed(second.encoder, lesson.gallery)
    # The same third version, whose head has learned from both kinds of vectors of the second's space.
    kinds = [Refreshed(models.source, [second.adaptation])]
    from_both = _dmu(models, lesson.target, second, 2, refreshed=kinds)
    of_both = embed(from_both.encoder, lesson.queries)
    return {
        "3/h(h(1)), from both": figures(lesson, of_both, from_both.adaptation.apply(refreshed).vectors),
        "3/h(2), from both": figures(lesson, of_both, from_both.adaptation.apply(native).vectors),
        "3/h(h(1))": figures(lesson, queries, third.adaptation.apply(refreshed).vectors),
        "3/h(2)": figures(lesson, queries, third.adaptation.apply(native).vectors),
        "3/h(1), direct": figures(lesson, from_direct, direct.adaptation.apply(stored).vectors),
    }


def dmu_refreshed_thrice(models: Models) -> Record:
    """Four versions, of every eighth, fourth, second and all classes: the first gallery hopped three times.

    From the second hop on a head learns from every kind of vectors that the gallery before it may hold.
    """
    lesson = models.lesson
    classes = range(len(lesson.target.class_names))
    first, *later = (lesson.target.of_classes(classes[::step]) for step in (8, 4, 2, 1))
    versions: list[Any] = [models.fit(Independent(dim=lesson.size.dim, **models.classifier(target=False)), first)]
    hops: list[Any] = []
    for number, images in enumerate(later, 1):
        kinds = [Refreshed(versions[index], hops[index:]) for index in range(len(hops))]
        versions.append(_dmu(models, images, versions[-1], number, refreshed=kinds))
        hops.append(versions[-1].adaptation)
    queries = embed(versions[-1].encoder, lesson.queries)
    stored = [embed(model.encoder, lesson.gallery) for model in versions]
    found = {"1/1": own(lesson, versions[0]), "4/1": figures(lesson, queries, stored[0])}
    for index, vectors in enumerate(stored):
        for hop in hops[index:]:
            vectors = hop.apply(vectors).vectors
        times = len(hops) - index
        found[f"4/{'h(' * times}{index + 1}{')' * times}"] = figures(lesson, queries, vectors)
    return {f"{OF_FOUR}{name}": figure for name, figure in found.items()}


def _independent(models: Models, images: Images, before: TrainedModel, number: int) -> Any:
    return models.fit(Independent(dim=models.lesson.size.dim, **models.classifier(start=number)), images)


def _bct(models: Models, images: Images, before: TrainedModel, number: int) -> Any:
    return models.fit(BCT(dim=models.lesson.size.dim, **models.classifier(start=number)), images, before)


def _bt2(models: Models, images: Images, before: TrainedModel, number: int) -> Any:
    size, settings = models.lesson.size, models.classifier(start=number)
    independent = models.fit(Independent(dim=before.encoder.dim, **settings), images)
    trainer = BT2(dim=before.encoder.dim + size.extra, extra=size.extra, **settings)
    return models.fit(trainer, images, before, target=independent)


def _dmu(models: Models, images: Images, before: TrainedModel, number: int, refreshed: Sequence[Refreshed] = ()) -> Any:
    size = models.lesson.size
    trainer = DMU(dim=size.dim, adapter_width=size.adapter_width, **models.classifier(start=number))
    further = {"refreshed": refreshed} if refreshed else {}
    return models.fit(trainer, images, before, **further)


def _cut(queries: FloatArray, gallery: FloatArray) -> FloatArray:
    """The first values of later queries are compared with an earlier version; a cosine needs no scaling."""
    return np.ascontiguousarray(queries[:, : gallery.shape[1]])


SERIES: dict[str, Callable[[Models], Record]] = {
    "independent": partial(series, _independent),
    "BCT": partial(series, _bct),
    "BT2": partial(series, _bt2),
    "DMU": partial(series, _dmu),
    "DMU, refreshed": dmu_hops,
    "DMU, refreshed three times": dmu_refreshed_thrice,
}
