"""The demo's data and the folder that it fills: scikit-learn's digits, split in three, two parts as image files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from compatstore.errors import AlreadyExists, StorageError
from compatstore.paths import exists, is_folder
from compatstore.trainers import Images

NOT_TRAINED_ON = 0.6  # of all images; two thirds of these are the gallery, the others queries
QUERIES = 1 / 3


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageFiles:
    """n image files with their digits.

    Args:
        ids: (n,) strings, the image's number in the data set, each once.
        paths: Paths of the images.
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
        training: Images that models and transforms are trained on.
        gallery: Items that are searched; no model sees them in training.
        queries: Queries; no model sees them in training either.
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


class DemoDirectory:
    """Paths of the files that the demo writes.

    Args:
        root: The folder, an absolute path.
        is_new: True if the demo made it.

    Attributes:
        gallery: The gallery: one Lance table.
        images: Images of the gallery, in one folder a class.
        queries: Images to search with, in one folder a class; none of them is in the gallery.
        artifacts: Folder of the trained artifacts, `without_side` and `with_side`.
        curve: Picture of quality during the backfill.
        report: The report of the upgrade, one page.
        files: All files beside the images and the gallery.
    """

    def __init__(self, root: Path, is_new: bool = False) -> None:
        self.root, self.is_new = root, is_new
        self.gallery, self.images, self.queries = root / "gallery.lance", root / "images", root / "queries"
        self.artifacts, self.curve, self.report = root / "artifacts", root / "backfill_curve.png", root / "report.html"
        names = ("without_side", "with_side")
        self.without_side, self.with_side = (self.artifacts / f"{name}.compat" for name in names)
        self.files = (self.report, self.curve, self.without_side, self.with_side)

    @classmethod
    def prepare(cls, path: str | Path) -> DemoDirectory:
        """Make the folder, or take an empty one, and begin to fill it.

        If several demos get one folder at once, the first to make `images` has it.

        Raises:
            AlreadyExists: It is a file, or a folder that holds something: an earlier demo, or other files.
            StorageError: It cannot be made or written.
        """
        root = Path(path).expanduser().absolute()
        operation = f"run the demo in {root}"
        try:
            is_new = not exists(root)
            if not is_new:
                _require_empty(root, operation)
            root.mkdir(parents=True, exist_ok=True)
            place = cls(root, is_new)
            place.images.mkdir()
            return place
        except StorageError:
            raise
        except OSError as error:
            if isinstance(error, FileExistsError):
                _require_empty(root, operation)
            fix = "Choose another folder: compatstore demo DIR"
            raise StorageError(operation, expected="a folder that can be written", found=str(error), fix=fix) from error

    @contextmanager
    def emptied_if_stopped(self) -> Iterator[None]:
        """Remove the files of a demo that does not finish, so that the same command can be given again."""
        try:
            yield
        except BaseException:
            for made in (self.gallery, self.images, self.queries, self.artifacts):
                shutil.rmtree(made, ignore_errors=True)
            with suppress(OSError):
                for file in self.files:
                    file.unlink(missing_ok=True)
                if self.is_new:
                    self.root.rmdir()  # refused while anything else is there
            raise


def _require_empty(root: Path, operation: str) -> None:
    gallery = root / "gallery.lance"
    if not is_folder(root):
        found, fix = "a file", "Choose another folder: compatstore demo DIR"
    elif exists(gallery):
        found = "an earlier demo"
        fix = f"Look at it: compatstore status {gallery}; or choose another folder, or remove this one."
    elif any(root.iterdir()):
        found, fix = "files, which the demo does not touch", "Choose another folder, or empty this one."
    else:
        return
    raise AlreadyExists(operation, expected="a new or an empty folder", found=found, fix=fix)
