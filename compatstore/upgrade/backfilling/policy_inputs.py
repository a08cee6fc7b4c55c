"""Inputs of backfill policies: items from a gallery or from arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_floating, is_integer

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowType, BoolArray, Doubles, FloatArray, Positions, RowNumbers
from compatstore.errors import InvalidInput
from compatstore.storage.columns import NATIVE
from compatstore.storage.fragments import list_fragments
from compatstore.storage.ids import ADDRESS
from compatstore.storage.snapshot import READ_AHEAD
from compatstore.storage.vector_form import to_matrix
from compatstore.upgrade.backfilling.cells import SAMPLED, cells_of, random_scores, require_column
from compatstore.upgrade.context import UpgradeContext

BATCH_ROWS = 4096
PART_ROWS = 1 << 20  # number of items whose scores are in memory at once
CELLS = "cells"  # domain of the draw that finds cell centres


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayRows:
    """Items in memory, for measurements.

    Args:
        ids: n ids, integers or strings, or an Arrow array of them.
        sigma2: (n,) floats, predicted uncertainty, or None.
        columns: Name -> (n,) numbers.
        source: (n, source dim) floats, or None.
    """

    ids: Any
    sigma2: npt.ArrayLike | None = None
    columns: Mapping[str, npt.ArrayLike] = field(default_factory=dict)
    source: FloatArray | None = None

    def uncertainty(self) -> Doubles:
        """(n,) float64, as given.

        Raises:
            InvalidInput: None was given.
        """
        return np.asarray(_given(self.sigma2, "sigma2"), np.float64)

    def column(self, name: str) -> Doubles:
        """(n,) float64, a column; NaN is 0.

        Raises:
            InvalidInput: None of that name was given.
        """
        values = np.asarray(_given(self.columns.get(name), f"column {name}"), np.float64)
        return np.where(np.isnan(values), 0.0, values)

    def cells(self, seed: int) -> npt.NDArray[np.int64]:
        """(n,) int64, cells of the source vectors.

        Raises:
            InvalidInput: None were given.
        """
        vectors = np.asarray(_given(self.source, "source"), np.float32)
        known = np.asarray(np.isfinite(vectors).all(axis=1))
        drawn = np.argsort(-random_scores(self.ids, CELLS, seed), kind="stable")
        return cells_of([(vectors, known)], vectors[drawn[known[drawn]][:SAMPLED]], len(vectors), seed)


@dataclass(frozen=True, eq=False)
class TableRows:
    """A gallery's items as of one table version, in the order of the table; read-only.

    Args:
        context: The upgrade, and the table version.
        fragments: Numbers of the fragments whose items they are, in the order of the table; None for all of them.
    """

    context: UpgradeContext
    fragments: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, rows: int = PART_ROWS) -> Iterator[TableRows]:
        """The same items, some fragments at a time, of about that many rows."""
        numbers, held = list[int](), 0
        for fragment in list_fragments(self.context.snapshot):
            if numbers and held + fragment.rows > rows:
                yield TableRows(self.context, tuple(numbers))
                numbers, held = [], 0
            numbers.append(fragment.id)
            held += fragment.rows
        yield TableRows(self.context, tuple(numbers) or None)  # None: of an empty table

    def named_at(self, positions: Positions) -> tuple[ArrowArray, RowNumbers]:
        """Arrow array of the ids of some of all items, and the rows' addresses: (k,) intp -> k ids, (k,) int64."""
        key = self.context.registry.id_column
        taken = self.context.snapshot.take(positions.tolist(), columns=[key, ADDRESS])
        return taken.column(key).combine_chunks(), taken.column(ADDRESS).to_numpy().astype(np.int64)

    @cached_property
    def id_type(self) -> ArrowType:
        """Arrow type of the ids."""
        return self.context.snapshot.schema.field(self.context.registry.id_column).type

    @cached_property
    def ids(self) -> ArrowArray:
        """Arrow array of n ids."""
        return self._read(self.context.registry.id_column)

    def none(self) -> ArrowArray:
        """Arrow array of no ids."""
        return pa.array([], self.id_type)

    def native(self) -> BoolArray:
        """(n,) bool, whether an item's vector in the target is native; read in batches."""
        column = self.context.target.origin or ""
        batches = self._scan([column]).to_batches()
        found = (pc.equal(batch[column], NATIVE).fill_null(False).to_numpy(zero_copy_only=False) for batch in batches)
        return np.concatenate([np.zeros(0, bool), *found])

    def uncertainty(self) -> Doubles:
        """(n,) float64, sigma^2 of the transformed vectors; NaN for native ones and for items without a vector."""
        return _numbers(self._read(self.context.target.uncertainty or ""))

    def column(self, name: str) -> Doubles:
        """(n,) float64, a column of the user's numbers; null and NaN are 0.

        Raises:
            InvalidInput: The table has no such column, or it does not hold numbers.
        """
        self.require_column(name)
        values = _numbers(self._read(name))
        return np.where(np.isnan(values), 0.0, values)

    def cells(self, seed: int) -> npt.NDArray[np.int64]:
        """(n,) int64, cells of the source's vectors, wherever the items stand; read in batches."""
        columns, snapshot = self.context.source, self.context.snapshot

        def decoded(batch: Any) -> tuple[FloatArray, BoolArray]:
            vectors, valid = to_matrix(batch[columns.vector], columns.dim)
            return vectors, valid & np.isfinite(vectors).all(axis=1)

        drawn = np.argsort(-random_scores(self.ids, CELLS, seed), kind="stable")[:SAMPLED]
        sample, known = decoded(snapshot.take(drawn.tolist(), columns=[columns.vector]))
        batches = snapshot.to_batches(columns=[columns.vector], batch_size=BATCH_ROWS, **READ_AHEAD)
        return cells_of(map(decoded, batches), sample[known], len(self.ids), seed)

    def require_column(self, name: str) -> None:
        """Refuse a column that cannot order items.

        Raises:
            InvalidInput: The table has no such column, or it does not hold numbers.
        """
        operation, schema = f"order the backfill by column {name}", self.context.snapshot.schema
        require_column(operation, schema, name, lambda kind: is_integer(kind) or is_floating(kind), "numbers")

    @property
    def predicts_uncertainty(self) -> bool:
        """True if the last artifact of the upgrade's path has a sigma head."""
        path = self.context.run.path
        networks = self.context.catalog.artifact(path[-1]).manifest.networks if path else {}
        return any(network.uncertainty for network in networks.values())

    def require_uncertainty(self) -> None:
        """Refuse to use an uncertainty that no artifact predicts.

        Raises:
            InvalidInput: The last artifact of the upgrade's path has no sigma head.
        """
        path = self.context.run.path
        if not self.predicts_uncertainty:
            expected = "an artifact that predicts its uncertainty"
            found = f"{path[-1][:12]}, which does not" if path else "no artifact"
            fix = f"Train FastFill ({next_step.training('fastfill')}), or choose another order, such as spread."
            raise InvalidInput("order the backfill by sigma", expected=expected, found=found, fix=fix)

    def _read(self, column: str) -> Any:
        return self._scan([column]).to_table().column(0).combine_chunks()

    def _scan(self, columns: list[str]) -> Any:
        snapshot = self.context.snapshot
        chosen = None if self.fragments is None else [snapshot.get_fragment(number) for number in self.fragments]
        return snapshot.scanner(columns=columns, fragments=chosen, scan_in_order=True)


# Inputs of a policy for n items, read lazily.
PolicyInputs: TypeAlias = ArrayRows | TableRows


def _numbers(array: ArrowArray) -> Doubles:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise InvalidInput("order items in memory", expected=name, found="none given")
    return value
