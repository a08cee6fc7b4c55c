"""Three versions, each made to understand the one before: what the latest queries find in the oldest gallery."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from benchmarks.methods.measure import figures
from benchmarks.methods.models import Models, embed
from benchmarks.pairs.journal import Record
from compatstore.arrays import FloatArray
from compatstore.trainers import BCT, BT2, DMU, Independent, Refreshed, TrainedModel

Step = Callable[[Models, Any, TrainedModel], TrainedModel]


def series(step: Step, models: Models) -> Record:
    """Train three versions and search every gallery with the queries of every version that came later."""
    lesson = models.lesson
    versions = [models.source]
    for images in (*lesson.sources[1:], lesson.target):
        versions.append(step(models, images, versions[-1]))
    queries = [embed(model.encoder, lesson.queries) for model in versions]
    galleries = [embed(model.encoder, lesson.gallery) for model in versions]
    return {
        f"{later + 1}/{earlier + 1}": figures(lesson, _cut(queries[later], galleries[earlier]), galleries[earlier])
        for earlier, later in combinations_with_replacement(range(3), 2)
    }


def dmu_hops(models: Models) -> Record:
    """DMU's chain of refreshes: the first gallery hopped once and twice."""
    lesson = models.lesson
    second = _dmu(models).fit(lesson.sources[1], models.source)
    third = _dmu(models).fit(lesson.target, second)
    direct = _dmu(models).fit(lesson.target, models.source)
    stored, queries = embed(models.source.encoder, lesson.gallery), embed(third.encoder, lesson.queries)
    from_direct = embed(direct.encoder, lesson.queries)
    refreshed = second.adaptation.apply(stored).vectors
    native = embed(second.encoder, lesson.gallery)
    # The same third version, whose head has learned from both kinds of vectors of the second's space.
    from_both = _dmu(models).fit(lesson.target, second, refreshed=[Refreshed(models.source, [second.adaptation])])
    of_both = embed(from_both.encoder, lesson.queries)
    return {
        "3/h(h(1)), from both": figures(lesson, of_both, from_both.adaptation.apply(refreshed).vectors),
        "3/h(2), from both": figures(lesson, of_both, from_both.adaptation.apply(native).vectors),
        "3/h(h(1))": figures(lesson, queries, third.adaptation.apply(refreshed).vectors),
        "3/h(2)": figures(lesson, queries, third.adaptation.apply(native).vectors),
        "3/h(1), direct": figures(lesson, from_direct, direct.adaptation.apply(stored).vectors),
    }


def _dmu(models: Models) -> DMU:
    size = models.lesson.size
    return DMU(dim=size.dim, adapter_width=size.adapter_width, **models.classifier())


def _independent(models: Models, images: Any, before: TrainedModel) -> TrainedModel:
    return Independent(dim=models.lesson.size.dim, **models.classifier()).fit(images)


def _bct(models: Models, images: Any, before: TrainedModel) -> TrainedModel:
    return BCT(dim=models.lesson.size.dim, **models.classifier()).fit(images, before)


def _bt2(models: Models, images: Any, before: TrainedModel) -> TrainedModel:
    extra = models.lesson.size.extra
    return BT2(dim=before.encoder.dim + extra, extra=extra, **models.classifier()).fit(images, before)


def _dmu_step(models: Models, images: Any, before: TrainedModel) -> TrainedModel:
    return _dmu(models).fit(images, before)


def _cut(queries: FloatArray, gallery: FloatArray) -> FloatArray:
    """The first values of later queries are compared with an earlier version; a cosine needs no scaling."""
    return np.ascontiguousarray(queries[:, : gallery.shape[1]])


SERIES: dict[str, Callable[[Models], Record]] = {
    "independent": partial(series, _independent),
    "BCT": partial(series, _bct),
    "BT2": partial(series, _bt2),
    "DMU": partial(series, _dmu_step),
    "DMU, refreshed": dmu_hops,
}
