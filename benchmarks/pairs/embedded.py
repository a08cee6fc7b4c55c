"""Items, and queries that ask for them, embedded by several models: what the benchmarks on pairs read, as npz files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput, NotFound

SOURCE, MIDDLE, TARGET = "source", "middle", "target"
_PARTS = ("vectors", "sides", "heads")


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedSet:
    """n items, row i of each array belonging to item i.

    Args:
        name: What the tables call it.
        labels: (n,) int64 classes from 0.
        fresh: (n,) bool, items that no model was trained on: only these are searched.
        vectors: Version -> (n, dim) float32.
        sides: Version -> (n, side dim) float32 side-information, where there is any.
        heads: Version -> (classes, dim) float32, row i for class i, where its model came with one.

    Raises:
        InvalidInput: Arrays of different lengths.
    """

    name: str
    labels: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    vectors: Mapping[str, FloatArray]
    sides: Mapping[str, FloatArray] = field(default_factory=dict)
    heads: Mapping[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(array) for array in (self.labels, self.fresh, *self.vectors.values(), *self.sides.values())}
        if len(lengths) > 1:
            found = ", ".join(map(str, sorted(lengths)))
            raise InvalidInput(f"read the set {self.name}", expected="as many rows in each array", found=found)

    def save(self, path: Path) -> None:
        """Write all arrays to one npz file."""
        arrays: dict[str, Any] = {"name": np.array(self.name), "labels": self.labels, "fresh": self.fresh}
        for part in _PARTS:
            arrays |= {f"{part}:{version}": array for version, array in getattr(self, part).items()}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> EmbeddedSet:
        """Read what `save` wrote.

        Raises:
            NotFound: There is no such file.
        """
        if not path.is_file():
            fix = "Make it with benchmarks.pairs.glyphs or benchmarks.pairs.images."
            raise NotFound("read an embedded set", expected="an npz file", found=str(path), fix=fix)
        parts: dict[str, dict[str, FloatArray]] = {part: {} for part in _PARTS}
        with np.load(path) as file:
            for key in file.files:
                part, _, version = key.partition(":")
                if version:
                    parts[part][version] = file[key]
            return cls(name=str(file["name"]), labels=file["labels"], fresh=file["fresh"], **parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedSet:
    """q queries that are no items of a set, and which of its items are correct for each.

    Args:
        name: What the queries are.
        vectors: Version -> (q, dim) float32.
        queries: (m,) int64, rows of the queries, each of which has one at least.
        items: (m,) int64, rows of the set, correct for these queries.
    """

    name: str
    vectors: Mapping[str, FloatArray]
    queries: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write all arrays to one npz file."""
        np.savez(path, name=np.str_(self.name), queries=self.queries, items=self.items, **self.vectors)

    @classmethod
    def load(cls, path: Path) -> AskedSet:
        """Read what `save` wrote.

        Raises:
            NotFound: There is no such file.
        """
        if not path.is_file():
            fix = "Make it with benchmarks.pairs.texts --asked."
            raise NotFound("read queries", expected="an npz file", found=str(path), fix=fix)
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        return cls(
            name=str(arrays.pop("name")), queries=arrays.pop("queries"), items=arrays.pop("items"), vectors=arrays
        )
