"""Labelled images, and one draw of them: images that each model is trained on, gallery and queries."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.images.sizes import Size
from benchmarks.sets import glyphs
from benchmarks.sets.embedded import unit
from compatstore.trainers import Images
from compatstore.versions import Metric

Setting = Literal["classes", "data", "architecture", "subgroups"]
TEST_SHARE, SHARE_OF_SOURCE = 0.3, 0.3
FEW = 10  # a biased source knows one in as many classes of the minority


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """One set.

    Args:
        name: Name in tables.
        training: Images that models are trained on.
        test: Gallery and queries, which no model is trained on.
        flip: True if a mirrored image is one of its class, as photographs are.
    """

    name: str
    training: Images
    test: Images
    flip: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One draw.

    Args:
        setting: "classes": the source knows every second class; "data": all classes, from 30 % of the images;
            "architecture": as "classes", and the target is another network; "subgroups": the minority is the harder
            half of all classes, and the source knows every tenth of it and all of the majority.
        source: Images of the source.
        target: Images of the target.
        gallery: Images that are searched, of all classes.
        queries: Images that are searched with.
        size: How large.
        seed: Of the draw and of the models.
        metric: Distance of all spaces.
        flip: True if training may mirror images.
        groups: (q,) str, the subgroup of each query's class; None if a setting has none.
    """

    setting: Setting
    source: Images
    target: Images
    gallery: Images
    queries: Images
    size: Size
    seed: int
    metric: Metric = "cosine"
    flip: bool = False
    groups: npt.NDArray[np.str_] | None = None


def read(path: Path | None, name: str, pixels: int, leave_out: Sequence[str] = ()) -> ImageSet:
    """Read a set.

    Args:
        path: An npz file of glyphs; a folder with the folders `train` and `test` of class folders; or a folder of class
            folders, 30 % for the test. None for scikit-learn's digits.
        name: Name in tables.
        pixels: Side that photographs are resized to.
        leave_out: Class folders to leave out.
    """
    if path is None:
        digits = load_digits()
        pixels = (digits.images * 255 / 16).astype(np.uint8)
        training, test = Images(pixels, digits.target).split(0.4, seed=0)
        return ImageSet(name="Digits", training=training, test=test)
    if path.is_file():
        images, fresh = glyphs.read(path)
        parts = [images.take(np.flatnonzero(rows)) for rows in (~fresh, fresh)]
        return ImageSet(name=name, training=parts[0], test=parts[1])
    if (path / "train").is_dir():
        training, test = (_folder(path / part, pixels, leave_out) for part in ("train", "test"))
    else:
        training, test = _folder(path, pixels, leave_out).split(TEST_SHARE, seed=0)
    return ImageSet(name=name, training=training, test=test, flip=True)


def draw(data: ImageSet, setting: Setting, size: Size, seed: int, metric: Metric = "cosine") -> Trial:
    """Draw a trial of a set."""
    random = np.random.default_rng(seed)
    training = data.training.take(np.sort(random.permutation(len(data.training))[: size.images]))
    wanted = size.gallery + size.queries
    searched = random.permutation(len(data.test))[:wanted]
    count = len(searched) * size.queries // wanted
    classes = range(len(training.class_names))
    source = training.of_classes(classes[::2])
    if setting == "data":
        source = training.take(np.flatnonzero(random.random(len(training)) < SHARE_OF_SOURCE))
    queries, grouped = data.test.take(searched[:count]), None
    if setting == "subgroups":
        hard = hard_classes(training)
        source = training.of_classes(sorted((*np.flatnonzero(~hard), *np.flatnonzero(hard)[::FEW])))
        grouped = np.where(hard[np.asarray(queries.labels)], "minority", "majority")
    parts = {"source": source, "target": training, "gallery": data.test.take(searched[count:]), "queries": queries}
    return Trial(setting=setting, size=size, seed=seed, metric=metric, flip=data.flip, groups=grouped, **parts)


def hard_classes(images: Images) -> npt.NDArray[np.bool_]:
    """The half of the classes, (classes,), whose images are least often nearest to their own class by their pixels."""
    pixels = np.asarray(images.images, np.float32).reshape(len(images), -1)
    near = unit(pixels - pixels.mean(axis=0)) @ unit(pixels - pixels.mean(axis=0)).T
    np.fill_diagonal(near, -1)
    labels = np.asarray(images.labels)
    right = np.bincount(labels, labels[near.argmax(axis=1)] == labels) / np.bincount(labels)
    hard = np.zeros(len(right), bool)
    hard[right.argsort()[: len(right) // 2]] = True
    return hard


def _folder(path: Path, pixels: int, leave_out: Sequence[str]) -> Images:
    """Read a folder of class folders into memory, resized."""
    files = Images.from_folder(path)
    files = files.of_classes([name for name in files.class_names if name not in leave_out])

    def pixels_of(file: Any) -> np.ndarray:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB").resize((pixels, pixels), Image.Resampling.BILINEAR))

    with ThreadPoolExecutor() as pool:
        array = np.stack(list(pool.map(pixels_of, files.images)))
    return replace(files, images=array)
