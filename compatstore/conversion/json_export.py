"""Exports in JSON: lines with a record each, a list of records, or records by their ids.

Pinecone, Weaviate, OpenSearch and Elasticsearch export lines; LangChain dumps a store in memory as records by ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from compatstore.arrays import ArrowArray
from compatstore.boundary import shown
from compatstore.conversion.exports import BATCH, Export, Leaf, NewVectors, Places, Write
from compatstore.data_files import readable
from compatstore.errors import InvalidInput

LINES = (".jsonl", ".ndjson")
WHOLE = (".json",)  # read as a whole into memory
FIRST = 100  # records that are looked at for their fields

Objects = list[dict[str, Any]]


class JsonExport(Export[Objects]):
    """Objects that are JSON objects."""

    def batches(self) -> Iterator[Objects]:
        """Lists of records."""
        with readable(self.path, self.operation):
            records = self._records()
            while batch := list(islice(records, BATCH)):
                yield batch

    def _records(self) -> Iterator[dict[str, Any]]:
        for number, record in enumerate(self._values(), 1):
            if not isinstance(record, dict):
                found = f"{shown(record)} as record {number}"
                raise InvalidInput(self.operation, expected="records that are JSON objects", found=found)
            yield record

    def _values(self) -> Iterator[Any]:
        if self.path.suffix.lower() in WHOLE:
            yield from self._whole.values() if isinstance(self._whole, dict) else self._whole
            return
        with self.path.open(encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if not line.isspace())

    @cached_property
    def _whole(self) -> Any:
        return json.loads(self.path.read_text(encoding="utf-8"))

    def column(self, batch: Objects, path: str) -> ArrowArray:
        """Values at a path."""
        with readable(self.path, self.operation):
            return pa.array([_at(record, path) for record in batch])

    def leaves(self, batch: Objects) -> Iterable[Leaf]:
        """Leaves of the first records; of a path the first value that is there decides on the kind."""
        found: dict[str, Leaf] = {}
        for record in batch[:FIRST]:
            for leaf in _leaves(record):
                found.setdefault(leaf.path, leaf)
        return found.values()

    @contextmanager
    def writing(self, out: Path, places: Places) -> Iterator[Write[Objects]]:
        """Write lines, or the list or mapping that the file was."""
        above, _, name = places.vector.rpartition(".")
        with out.open("w", encoding="utf-8") as file:

            def write(batch: Objects, new: NewVectors) -> None:
                vectors = (row.tolist() if there else None for row, there in zip(new.vectors, new.valid, strict=True))
                origins, uncertainties = new.origin.to_pylist(), new.uncertainty.to_pylist()
                beside = zip(batch, vectors, origins, uncertainties, strict=True)
                for record, vector, origin, uncertainty in beside:
                    holder = _at(record, above) if above else record
                    if isinstance(holder, dict):  # else the record lacks what holds vectors
                        holder |= {name: vector, f"{name}_origin": origin, f"{name}_uncertainty": uncertainty}
                    if self.path.suffix.lower() in LINES:
                        file.write(json.dumps(record, ensure_ascii=False) + "\n")

            yield write
            if self.path.suffix.lower() in WHOLE:
                json.dump(self._whole, file, ensure_ascii=False)


def _at(record: Any, path: str) -> Any:
    """The value at a path, or None; a name that holds dots itself goes before."""
    if not isinstance(record, dict):
        return None
    if path in record:
        return record[path]
    name, mark, rest = path.partition(".")
    return _at(record.get(name), rest) if mark else None


def _leaves(value: dict[str, Any], above: str = "") -> Iterator[Leaf]:
    for name, item in value.items():
        path = f"{above}{name}"
        if isinstance(item, dict):
            yield from _leaves(item, f"{path}.")
        elif isinstance(item, str):
            yield Leaf(path, "text")
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield Leaf(path, "number")
        elif isinstance(item, list) and item and all(type(each) in (int, float) for each in item):
            yield Leaf(path, "vector", len(item))
