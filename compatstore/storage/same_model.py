"""Vectors of another model: an encoder is compared with a version's vectors, and errors name the versions that fit.

After a cutover a process may still send vectors of the version before; the errors name the versions that fit them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore import next_step
from compatstore.arrays import ArrowTable
from compatstore.encoders import Encoder, encode_readable
from compatstore.errors import Incompatible, InvalidInput
from compatstore.storage.columns import VersionColumns
from compatstore.storage.ids import column
from compatstore.storage.registry import Registry, bridge_to
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import to_matrix

ITEMS = 16
SAME = 0.99  # cosine of two vectors of one item by one model, at least; endpoints differ in the last digits
FEW = 0.5  # share of the items that must be alike: an app may have written some by hand


@dataclass(frozen=True)
class Recognition:
    """Items that were embedded again.

    Args:
        items: Number of items.
        same: Number of items that have the vector of the encoder.
    """

    items: int
    same: int

    @property
    def is_same(self) -> bool:
        """True if the vectors are the encoder's."""
        return self.same > FEW * self.items


def compare(snapshot: Snapshot, registry: Registry, columns: VersionColumns, encoder: Encoder) -> Recognition:
    """Embed some native items of a version again, spread over the table.

    Raises:
        InvalidInput: No item has both a source and a native vector.
    """
    read = registry.id_column if encoder.reads == "id" else registry.source_column
    rows, sources = list[ArrowTable](), list[object]()
    if read is not None:
        condition = f"({columns.native}) AND ({columns.present}) AND {column(read)} IS NOT NULL"
        n = snapshot.count_rows(condition)
        rows = [
            snapshot.to_table(columns=[read, columns.vector], filter=condition, limit=1, offset=offset)
            for offset in sorted({n * place // ITEMS for place in range(ITEMS)} if n else ())
        ]
        sources = [value for table in rows for value in table[read].to_pylist()]
    encoded = encode_readable(encoder, sources) if sources else None
    if encoded is None or not len(encoded.readable):
        operation = f"compare vectors of {columns.vector} with those of a model"
        expected = "an item that the encoder can embed again, and a column of sources if it reads them"
        fix = f"An adopted table names that column: {next_step.option('source', next_step.COLUMN)}."
        raise InvalidInput(operation, expected=expected, found="none", fix=fix)
    stored = np.concatenate([to_matrix(table[columns.vector], columns.dim)[0] for table in rows])[encoded.readable]
    lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(encoded.vectors, axis=1)
    alike = np.einsum("ij,ij->i", stored, encoded.vectors) >= SAME * lengths
    return Recognition(items=len(alike), same=int(alike.sum()))


def require_same_vectors(
    snapshot: Snapshot, registry: Registry, name: str, columns: VersionColumns, encoder: Encoder
) -> None:
    """Refuse an encoder whose vectors are not a version's.

    Raises:
        Incompatible: They are not.
        InvalidInput: No item can be embedded again.
    """
    found = compare(snapshot, registry, columns, encoder)
    if not found.is_same:
        raise Incompatible(
            f"use this encoder for version {name}",
            expected="the model of the vectors that the gallery has",
            found=f"another one: {found.items - found.same} of {found.items} items that were embedded again have other "
            "vectors",
            fix="Use that model, or upgrade to this one as a version of its own.",
        )


def of_another_length(registry: Registry, version: str, error: InvalidInput) -> InvalidInput:
    """The error of vectors that do not fit a version, with the versions that they fit.

    Args:
        registry: Its state.
        version: Version that the vectors were taken for.
        error: The original error; its `dim` is the length of the vectors.
    """
    dim, active = registry.record(version).dim, ", the active version" if version == registry.active else ""
    expected = f"vectors of {version}{active}, which are vectors of {dim} values"
    fits = [name for name, record in registry.versions.items() if record.dim == error.dim]
    usable = [name for name in fits if _searchable(registry, name)]
    embed = f"embed with the model of {version}."
    if usable:
        fix = f"{_has(usable, dim=error.dim)}: name it, {next_step.option('version', usable[0])}, or {embed}"
    elif fits:
        fix = f"{_has(fits, dim=error.dim)}, and no vectors in this gallery: {embed}"
    else:
        fix = f"No version of this gallery has {error.dim} values: {embed}"
    return InvalidInput(error.operation, expected=expected, found=error.found, fix=fix, dim=error.dim)


def of_fingerprint(registry: Registry, version: str, fingerprint: str) -> str:
    """The fix for vectors of a model that is not a version's."""
    same = [name for name, r in registry.versions.items() if r.version().fingerprint == fingerprint]
    usable = [name for name in same if _searchable(registry, name)]
    if not usable:
        return f"Embed with the model of {version}."
    named = next_step.option("version", usable[0])
    return f"That is the model of {usable[0]}: name it, {named}, or embed with the model of {version}."


def _searchable(registry: Registry, name: str) -> bool:
    return registry.record(name).columns is not None or bridge_to(registry, name) is not None


def _has(names: list[str], *, dim: int | None) -> str:
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} {dim} values"
