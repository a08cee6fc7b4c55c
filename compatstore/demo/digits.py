"""The demo's data: scikit-learn's handwritten digits, split in three, two of them written as image files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from compatstore.demo.directory import DemoDirectory
from compatstore.trainers import Images

NOT_TRAINED_ON = 0.6  # of all images; two thirds of these are the gallery, the others queries
QUERIES = 1 / 3


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageFiles:
    """n image files with their digits.

    Args:
        ids: (n,) strings, the image's number in the data set, each once.
        paths: Where they lie.
        labels: (n,) int64, the digits.
    """

    ids: npt.NDArray[Any]
    paths: tuple[Path, ...]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def sources(self) -> list[str]:
        """The paths as a gallery stores them."""
        return [str(path) for path in self.paths]


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits:
    """Three disjoint parts of the data set, all ten digits in each.

    Args:
        training: What models and transforms learn from.
        gallery: What is searched; no model sees it in training.
        queries: What it is searched with; no model sees it in training either.
    """

    training: Images
    gallery: ImageFiles
    queries: ImageFiles


def write_digits(directory: DemoDirectory, seed: int) -> Digits:
    """Split the 1,797 images of 8 x 8 pixels at random and write gallery and queries as PNG files."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images, labels = (data.images * (255 / 16)).round().astype(np.uint8), data.target.astype(np.int64)
    training, rest = train_test_split(
        np.arange(len(images)), test_size=NOT_TRAINED_ON, stratify=labels, random_state=seed
    )
    gallery, queries = train_test_split(rest, test_size=QUERIES, stratify=labels[rest], random_state=seed)
    return Digits(
        training=Images(images[training], labels[training]),
        gallery=_write(directory.images, images, labels, np.sort(gallery)),
        queries=_write(directory.queries, images, labels, np.sort(queries)),
    )


def _write(
    folder: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> ImageFiles:
    """Write images as folder/DIGIT/NUMBER.png."""
    ids = np.array([f"{number:04d}" for number in numbers])
    paths = tuple(folder / str(labels[number]) / f"{name}.png" for number, name in zip(numbers, ids, strict=True))
    for number, path in zip(numbers, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number]).save(path)
    return ImageFiles(ids=ids, paths=paths, labels=labels[numbers])
