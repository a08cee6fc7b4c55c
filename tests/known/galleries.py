"""The galleries that lives begin with: one of our own, and the table of an app that was adopted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import compatstore as cs
from tests.known.vectors import ENCODERS, SOURCE, SOURCE_DIM, TARGET, bridge, label, source_vector

Place = str | Path


@dataclass(frozen=True)
class Kind:
    """How a gallery came about, and what its columns are called.

    Attributes:
        name: What a table of results calls it.
        id: Column of the ids.
        source: Column of the sources.
        vector: Column of the source version's vectors.
        indexed: Whether that column has an index, so that the target gets one too.
    """

    name: str
    id: str
    source: str
    vector: str
    indexed: bool = False

    @property
    def adopted(self) -> bool:
        """Whether the table is an app's."""
        return self.id != OWN.id

    def rows(self, items: dict[str, str], **more: Any) -> Any:
        """What a plain app writes: id -> source as an Arrow table."""
        matrix = np.stack([source_vector(source) for source in items.values()])
        columns = {
            self.id: pa.array(list(items)),
            self.source: pa.array(list(items.values())),
            self.vector: pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), SOURCE_DIM),
            "label": pa.array([label(source) for source in items.values()]),
        }
        if not self.adopted:
            columns["v1__origin"] = pa.array(["native"] * len(items))
        table = pa.table({**columns, **more})
        # LanceDB's merge_insert takes no nulls in what a gallery of our own has as its key.
        key = table.schema.field(0).with_nullable(self.adopted)
        return table.cast(table.schema.set(0, key))


def documents(items: dict[str, str]) -> dict[str, list[str]]:
    """What an app hands to the API: id -> source as columns, with its metadata."""
    sources = list(items.values())
    return {"id": list(items), "source": sources, "label": [label(source) for source in sources]}


OWN = Kind("own", "id", "source", "v1")
ADOPTED = Kind("adopted", "key", "uri", "embedding")
KINDS = (
    OWN,
    ADOPTED,
    replace(OWN, name="own, indexed", indexed=True),
    replace(ADOPTED, name="adopted, indexed", indexed=True),
)
PARTITIONS = 4  # fewer than a search probes, so that it stays exact


def next_revision(source: str) -> str:
    """The source of an item after one more change."""
    name, _, revision = source.rpartition("/")
    return f"{name}/{int(revision) + 1}"


def item_id(number: int) -> str:
    """Ids hold a quote, as a user's may."""
    return f"it'em-{number:05d}"


def initial_items(fragments: int, rows: int) -> dict[str, str]:
    """Id -> source, before anything happened; some of these were deleted again."""
    numbers = range(fragments * rows)
    return {item_id(number): f"{item_id(number)}/0" for number in numbers if number % 31}


def make_template(
    folder: Place, kind: Kind, fragments: int, rows: int, target: cs.EmbeddingVersion = TARGET, linked: bool = True
) -> Path:
    """A gallery of several fragments with deleted rows, the target registered and the artifact linked.

    Its path is that of a folder on a disk, or an address in an object store as a string.
    """
    import lancedb

    path: Any = f"{folder}/items.lance" if isinstance(folder, str) else folder / "items.lance"
    if not kind.adopted:
        gallery = cs.Gallery.create(str(path), SOURCE)
    items = {item_id(number): f"{item_id(number)}/0" for number in range(fragments * rows)}
    parts = [dict(list(items.items())[start : start + rows]) for start in range(0, len(items), rows)]
    if not kind.adopted:
        for part in parts:
            gallery.add(documents(part))
    else:
        table = lancedb.connect(str(folder)).create_table("items", kind.rows(parts[0]))
        for part in parts[1:]:
            table.add(kind.rows(part))
        gallery = cs.Gallery.adopt(str(path), SOURCE, vector=kind.vector, id=kind.id, source=kind.source)
    gallery = cs.Gallery.open(str(path), encoders={"v1": ENCODERS["v1"]})
    gallery.delete(list(items.keys() - initial_items(fragments, rows).keys()))
    if kind.indexed:
        gallery.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=PARTITIONS)
    gallery.register(target)
    if linked:
        gallery.artifacts.link(bridge())
    return path


class PlainTable:
    """A table as an app uses it through LanceDB alone.

    Args:
        path: Of the table.
        kind: Of the table.
        fresh: True to see the writes of others at once; an app's handle stays on a version by default.
    """

    def __init__(self, path: Place, kind: Kind, *, fresh: bool = False) -> None:
        import lancedb

        folder, _, name = str(path).rpartition("/")
        interval = timedelta(0) if fresh else None
        self.handle = lancedb.connect(folder, read_consistency_interval=interval).open_table(
            name.removesuffix(".lance")
        )
        self._kind = kind

    def add(self, items: dict[str, str]) -> None:
        """Append items: id -> source."""
        self.handle.add(self._kind.rows(items))

    def merge(self, items: dict[str, str]) -> None:
        """Add or replace items."""
        merge = self.handle.merge_insert(self._kind.id).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self._kind.rows(items))

    def update(self, item: str, source: str) -> None:
        """Change an item."""
        values = {self._kind.source: source, self._kind.vector: source_vector(source).tolist(), "label": label(source)}
        self.handle.update(self._among([item]), values)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items."""
        self.handle.delete(self._among(ids))

    def nearest(self, source: str, k: int) -> list[dict[str, Any]]:
        """Rows nearest to the source vector of a source, by a search that names no column."""
        columns = [self._kind.id, self._kind.source, "label", "_distance"]
        search = self.handle.search(source_vector(source)).nprobes(PARTITIONS).select(columns)
        return list(search.limit(k).to_list())

    def _among(self, ids: Sequence[str]) -> str:
        return f"{self._kind.id} IN ({', '.join(map(_quoted, ids))})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
