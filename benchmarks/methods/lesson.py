"""What each model of a trial is trained on, and what is searched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from benchmarks.methods.data import ImageSet
from benchmarks.methods.settings import Size
from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput
from compatstore.trainers import Images

Setting = Literal["classes", "data", "architecture", "series", "steps", "subgroups", "elsewhere", "disjoint", "texts"]
SETTINGS: tuple[Setting, ...] = get_args(Setting)
ELSEWHERE: Setting = "elsewhere"
DISJOINT: Setting = "disjoint"
TEXTS: Setting = "texts"
STEPS = 6  # versions that know 50, 60, ..., 100 % of the classes
SHARE_OF_SOURCE = 0.3
FRESH_SHARE = 0.1
FEW = 10  # a biased source knows one in as many classes of the minority


@dataclass(frozen=True, kw_only=True, eq=False)
class Lesson:
    """One trial.

    Args:
        setting: "classes": the source knows every second class; "data": all classes, from 30 % of the images;
            "architecture": as "classes", and the target is a transformer; "series": three versions that know every
            fourth, every second and all classes; "steps": six that know the first 50, 60, ..., 100 % of them;
            "subgroups": every second class is of the majority, and the source knows all of these and every tenth of
            the others; "elsewhere": as "classes", and another set is searched; "disjoint": the source learns from
            another set alone; "texts": the source is a text model.
        sources: What the versions before the target learn from, oldest first; none where the source is a text model.
        target: What the target learns from.
        gallery: What is searched, of all classes.
        queries: What is searched with.
        size: How large.
        seed: Of the choice and of the models.
        flip: Whether training may mirror images.
        fresh: Images that no model learns from, to draw pairs from: at most as many as the target learns from, or None
            where there are less than a tenth of that.
        captions: (classes, n) float32, what a text model stores of each class; None where images are stored.
        groups: (q,) str, the subgroup of each query's class; None where a setting has none.
    """

    setting: Setting
    sources: tuple[Images, ...]
    target: Images
    gallery: Images
    queries: Images
    size: Size
    seed: int
    flip: bool = False
    fresh: Images | None = None
    captions: FloatArray | None = None
    groups: npt.NDArray[np.str_] | None = None


def lesson(data: ImageSet, setting: Setting, size: Size, seed: int) -> Lesson:
    """Draw a trial.

    Raises:
        InvalidInput: There is no such setting, or the set lacks what the setting needs.
    """
    if setting not in SETTINGS:
        raise InvalidInput("draw a trial", expected=f"one of {SETTINGS}", found=repr(setting))
    random = np.random.default_rng(seed)
    drawn = random.permutation(len(data.training))
    training = data.training.take(np.sort(drawn[: size.images]))
    others = np.sort(drawn[size.images :][: len(training)])
    wanted = size.gallery + size.queries
    searched = random.permutation(len(data.test))[:wanted]
    count = len(searched) * size.queries // wanted
    classes = range(len(training.class_names))
    sources: tuple[Images, ...]
    if setting == "data":
        sources = (training.take(np.flatnonzero(random.random(len(training)) < SHARE_OF_SOURCE)),)
    elif setting == "series":
        sources = (training.of_classes(classes[::4]), training.of_classes(classes[::2]))
    elif setting == "steps":
        known = [round(len(classes) * (STEPS - 1 + step) / (2 * STEPS - 2)) for step in range(STEPS - 1)]
        sources = tuple(training.of_classes(classes[:count]) for count in known)
    elif setting == "disjoint":
        if data.others is None:
            raise InvalidInput("draw a trial", expected="a set that follows another", found=data.name)
        drawn = np.random.default_rng(seed).permutation(len(data.others))
        sources = (data.others.take(np.sort(drawn[: size.images])),)
    elif setting == "texts":
        if data.captions is None:
            raise InvalidInput("draw a trial", expected="a set with captions", found=data.name)
        sources, size = (), replace(size, dim=data.captions.shape[1])
    elif setting == "subgroups":
        sources = (training.of_classes(sorted((*classes[::2], *classes[1 :: 2 * FEW]))),)
    else:
        sources = (training.of_classes(classes[::2]),)
    queries = data.test.take(searched[:count])
    grouped = np.where(np.asarray(queries.labels) % 2, "minority", "majority") if setting == "subgroups" else None
    return Lesson(
        setting=setting,
        sources=sources,
        target=training,
        gallery=data.test.take(searched[count:]),
        queries=queries,
        size=size,
        seed=seed,
        flip=data.flip,
        fresh=data.training.take(others) if len(others) >= FRESH_SHARE * len(training) else None,
        captions=data.captions if setting == "texts" else None,
        groups=grouped,
    )
