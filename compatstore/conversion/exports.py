"""Exports of vector databases: files with one record an item, read batch by batch and written in the same shape.

A vector may lie anywhere in a record: in a column of lists, as Pinecone's `values`, in OpenSearch's `_source`, in
Weaviate's `vectors`. A path names it, fields of objects separated by dots: `_source.embedding`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, BoolArray, FloatArray
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, meant

BATCH = 8_192  # records
IDS = ("id", "_id", "ids", "uuid", "key", "pk", "uri")
VECTORS = ("vector", "vectors", "embedding", "embeddings", "values")
TEXTS = ("source", "text", "texts", "content", "page_content", "document", "body", "chunk", "path", "file", "url")
Batch = TypeVar("Batch")


class Leaf(NamedTuple):
    """A value in a record.

    Attributes:
        path: Its path.
        kind: Its kind.
        dim: Values of a vector, 0 for other kinds.
    """

    path: str
    kind: Literal["vector", "text", "number"]
    dim: int = 0


@dataclass(frozen=True)
class Places:
    """Paths of an item's parts in a record.

    Attributes:
        vector: Of its vector.
        dim: Values of a vector.
        id: Of its id, or None: items are numbered from 0.
        text: Of the text or path that a model embeds, or None.
    """

    vector: str
    dim: int
    id: str | None
    text: str | None


@dataclass(frozen=True)
class NewVectors:
    """Target vectors of n records.

    Attributes:
        vectors: (n, dim) float32; rows that are not valid hold anything.
        valid: (n,) bool, whether a record has a vector.
        origin: Arrow array of n strings: "native", the id of the artifact that made the vector, or null.
        uncertainty: Arrow array of n float32, the predicted squared error of a transformed vector, or null.
    """

    vectors: FloatArray
    valid: BoolArray
    origin: ArrowArray
    uncertainty: ArrowArray


Write = Callable[[Batch, NewVectors], None]


class Export(ABC, Generic[Batch]):
    """Records of a file.

    Attributes:
        path: The file.
        operation: The caller's operation, for messages.
    """

    def __init__(self, path: Path, operation: str) -> None:
        self.path, self.operation = path, operation

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Records in the order of the file, at most `BATCH` at once."""

    @abstractmethod
    def column(self, batch: Batch, path: str) -> ArrowArray:
        """Values of a batch at a path; null where a record lacks it."""

    @abstractmethod
    def leaves(self, batch: Batch) -> Iterable[Leaf]:
        """What could be an id, a text or a vector, in the order of the records."""

    @abstractmethod
    def writing(self, out: Path, places: Places) -> AbstractContextManager[Write[Batch]]:
        """A function that writes the next batch with its new vectors to a file of one of this export's kinds.

        The new vector takes the place of the old one; beside it lie its origin and its uncertainty, under the
        vector's name with `_origin` and `_uncertainty` behind.
        """

    def locate(self, vector: str | None, id: str | None, text: str | None) -> Places:
        """Find the parts of an item: those that are named, else the ones of a usual name.

        Raises:
            InvalidInput: There is no record. There is no vector, or several could be meant. A path is not in the
                records.
        """
        first = next(self.batches(), None)
        if first is None:
            raise InvalidInput(self.operation, expected="at least one record", found="none")
        leaves = list(self.leaves(first))
        vectors = {leaf.path: leaf.dim for leaf in leaves if leaf.kind == "vector"}
        others = {leaf.path: leaf.kind for leaf in leaves if leaf.kind != "vector"}
        vector = self._named(vector, vectors, "vector") or self._only_vector(vectors)
        id = self._named(id, others, "id") or _usual([path for path in others if "." not in path], IDS)
        texts = [path for path, kind in others.items() if kind == "text" and path != id]
        return Places(vector, vectors[vector], id, self._named(text, others, "text") or _usual(texts, TEXTS))

    def _named(self, path: str | None, known: Iterable[str], what: str) -> str | None:
        if path is not None and path not in known:
            found = ", ".join(map(shown, known)) or "none"
            fix = meant(path, known)
            raise InvalidInput(self.operation, expected=f"a {what} at {shown(path)}", found=found, fix=fix)
        return path

    def _only_vector(self, vectors: Sequence[str] | dict[str, int]) -> str:
        usual = _usual(list(vectors), VECTORS)
        if usual is None and len(vectors) == 1:
            (usual,) = vectors
        if usual is None:
            found = f"{len(vectors)}: {', '.join(map(shown, vectors))}" if vectors else "no list of numbers"
            fix = f"Name one: vector={next(iter(vectors))!r}." if vectors else ""
            raise InvalidInput(self.operation, expected="one vector in a record", found=found, fix=fix)
        return usual


def _usual(paths: Iterable[str], names: Sequence[str]) -> str | None:
    """The path whose last name comes first among usual names, the shallowest of several; None if there is none."""
    last = {path: path.rpartition(".")[2] for path in paths}
    fits = [path for path in last if last[path] in names]
    return min(fits, key=lambda path: (path.count("."), names.index(last[path])), default=None)


def to_lists(new: NewVectors, kind: pa.DataType) -> ArrowArray:
    """New vectors as an Arrow array of lists as the old ones were: of fixed length or not, of their type of numbers."""
    values = pa.array(np.ascontiguousarray(new.vectors).reshape(-1)).cast(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, new.vectors.shape[1], mask=pa.array(~new.valid))
    lists = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = np.arange(len(new.valid) + 1) * new.vectors.shape[1]
    return lists.from_arrays(
        pa.array(offsets, pa.int64() if lists is pa.LargeListArray else pa.int32()), values, mask=pa.array(~new.valid)
    )
