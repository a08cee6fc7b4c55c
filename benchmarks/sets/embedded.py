"""Items embedded by several models, and queries that are no items, as npz files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray, Positions
from compatstore.errors import NotFound

SOURCE, MIDDLE, TARGET = "source", "middle", "target"
_PARTS = ("vectors", "sides", "heads")


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedSet:
    """n items; row i of each array belongs to item i.

    Args:
        name: Name in tables.
        labels: (n,) int64 classes from 0.
        fresh: (n,) bool, items that no model was trained on: only these are searched.
        vectors: Version -> (n, dim) float32.
        sides: Version -> (n, side dim) float32 side-information, if there is any.
        heads: Version -> (classes, dim) float32, row i for class i, if its model came with one.
    """

    name: str
    labels: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    vectors: Mapping[str, FloatArray]
    sides: Mapping[str, FloatArray] = field(default_factory=dict)
    heads: Mapping[str, FloatArray] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write all arrays to one npz file."""
        arrays: dict[str, Any] = {"name": np.array(self.name), "labels": self.labels, "fresh": self.fresh}
        for part in _PARTS:
            arrays |= {f"{part}:{version}": array for version, array in getattr(self, part).items()}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> EmbeddedSet:
        """Read what `save` wrote."""
        if not path.is_file():
            fix = "Make it with benchmarks.sets.glyphs, benchmarks.sets.photographs or benchmarks.sets.texts."
            raise NotFound("read an embedded set", expected="an npz file", found=str(path), fix=fix)
        parts: dict[str, dict[str, FloatArray]] = {part: {} for part in _PARTS}
        with np.load(path) as file:
            for key in file.files:
                part, _, version = key.partition(":")
                if version:
                    parts[part][version] = file[key]
            return cls(name=str(file["name"]), labels=file["labels"], fresh=file["fresh"], **parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuerySet:
    """q queries that are no items of a set, and the items that are correct for each.

    Args:
        name: Kind of the queries.
        vectors: Version -> (q, dim) float32.
        queries: (m,) int64, rows of the queries.
        items: (m,) int64, rows of the set that are correct for these.
    """

    name: str
    vectors: Mapping[str, FloatArray]
    queries: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write all arrays to one npz file."""
        np.savez(path, name=np.str_(self.name), queries=self.queries, items=self.items, **self.vectors)

    @classmethod
    def load(cls, path: Path) -> QuerySet:
        """Read what `save` wrote."""
        with np.load(path) as file:
            arrays = dict(file)
        parts = {name: arrays.pop(name) for name in ("queries", "items")}
        return cls(name=str(arrays.pop("name")), vectors=arrays, **parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Rows of a set, by their part in one trial.

    Args:
        data: The set.
        pairs: Rows to learn from.
        gallery: Rows that are searched.
        queries: Rows that are searched with, of the gallery's classes.
        seed: Of the choice, and of the methods.
    """

    data: EmbeddedSet
    pairs: Positions
    gallery: Positions
    queries: Positions
    seed: int


def read(paths: Sequence[Path]) -> Iterator[EmbeddedSet]:
    """The sets of some files; scikit-learn's digits if none is named."""
    yield from map(EmbeddedSet.load, paths) if paths else [digits()]


def draw(
    data: EmbeddedSet, seed: int, *, unseen: bool | tuple[int, int] = False, pairs: int, gallery: int, queries: int
) -> Trial:
    """Draw a trial: gallery and queries are fresh items, pairs are others.

    If all items are fresh, as with models that were trained elsewhere, pairs are of all that is left.

    Args:
        data: The set.
        seed: Of the choice.
        unseen: Pairs are of a random half of the classes, gallery and queries of the other half; or as many classes of
            either.
        pairs: Pairs at most.
        gallery: Items at most.
        queries: Queries at most.
    """
    random, names = np.random.default_rng(seed), np.unique(data.labels)
    shuffled = random.permutation(names)
    known, others = unseen if isinstance(unseen, tuple) else (len(names) // 2, len(names))
    to_learn, to_search = (shuffled[:known], shuffled[known:][:others]) if unseen else (names, names)
    fresh = random.permutation(np.flatnonzero(data.fresh & np.isin(data.labels, to_search)))
    wanted = queries + gallery
    # At least half of what is fresh stays with the pairs if both are of the same classes.
    searched = fresh[: min(wanted, len(fresh) if unseen else len(fresh) // 2)]
    count = len(searched) * queries // wanted
    left = np.setdiff1d(np.flatnonzero(np.isin(data.labels, to_learn)), searched)
    trained = left[~data.fresh[left]]
    rows = np.sort(random.permutation(trained if len(trained) else left)[:pairs])
    return Trial(data=data, pairs=rows, gallery=searched[count:], queries=searched[:count], seed=seed)


def trials(data: EmbeddedSet, seeds: int, **size: int) -> Iterator[tuple[dict[str, Any], Trial]]:
    """A trial of classes that the pairs have and of classes that they lack, seed by seed; with what rows say of it."""
    for seed in range(seeds):
        for classes in ("seen", "unseen"):
            about = {"set": data.name, "classes": classes, "seed": seed}
            yield about, draw(data, seed, unseen=classes == "unseen", **size)


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of unit length: (n, d) floats -> (n, d) float32; those of length 0 stay."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def digits() -> EmbeddedSet:
    """scikit-learn's digits by principal components and by discriminants, which know other digits; for smoke runs."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    pixels, labels = load_digits(return_X_y=True)
    fresh = np.arange(len(pixels)) >= 500
    vectors = {
        SOURCE: PCA(8, random_state=0).fit_transform(pixels),
        MIDDLE: PCA(12, random_state=0).fit_transform(pixels),
    }
    vectors[TARGET] = LinearDiscriminantAnalysis().fit(pixels[~fresh], labels[~fresh]).transform(pixels)
    floats = {name: np.asarray(values, np.float32) for name, values in vectors.items()}
    sides = {name: np.asarray(pixels[:, 20:28], np.float32) for name in (SOURCE, MIDDLE)}
    return EmbeddedSet(name="Digits", labels=labels.astype(np.int64), fresh=fresh, vectors=floats, sides=sides)
