"""Columns of an app in a table: names and types that Lance can keep, and later changes by the app.

An app may drop, rename or replace columns of its table. They are compared with the registry when a snapshot and its
registry are read together (`catalog.py`). Every verb then raises the same error, which names the missing column and
the fix, instead of a later failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowSchema, ArrowTable, ArrowType
from compatstore.errors import InvalidInput, TableChanged
from compatstore.storage.failures import is_failure, text_of
from compatstore.storage.location import Location
from compatstore.storage.registry import Registry, id_type_of
from compatstore.storage.snapshot import Snapshot, lance
from compatstore.storage.vector_form import stored_type

# Lance resolves names as paths: a dot goes into a struct and a backtick quotes. A star is all columns.
_LANCE_TAKES = ("`", ".")
# Columns that Lance adds to rows, and columns that a search adds.
_OF_LANCE = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
OF_RESULTS = frozenset({"_distance", "_version", "_origin", "_query"})


def fault_of(name: str) -> str:
    """The reason why a column cannot have this name, as text for a message; "" if it can."""
    if not name or name == "*":
        return "Lance does not read columns of such a name"
    taken = [character for character in _LANCE_TAKES if character in name]
    if taken:
        return f"Lance reads {taken[0]!r} in a name as its own"
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "Lance does not keep all of its characters"
    if name in _OF_LANCE or name in OF_RESULTS:
        return "results have a column of that name"
    return ""


ROWS = 100


def require_storable(columns: ArrowTable, operation: str) -> None:
    """Refuse columns that Lance cannot write, or not read back.

    Args:
        columns: Arrow table; its first rows are tried, and a row of nulls, as the gallery's other rows have.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: Lance refuses a column; the message has its name and the reason.
    """
    for name in columns.column_names:
        one = columns.select([name])
        sample = pa.concat_tables([one.slice(0, ROWS), pa.table([pa.nulls(1, one.schema[0].type)], schema=one.schema)])
        try:
            lance.write_dataset(sample, "memory://rehearsal").to_table()
        except BaseException as error:
            if not is_failure(error):
                raise
            expected = "metadata of types that Lance can keep"
            found = f"column {name!r} of type {one.schema[0].type}: {text_of(error)}"
            fix = "Convert the column, to text for one, or leave it out."
            raise InvalidInput(operation, expected=expected, found=found, fix=fix) from error


DISTANCE = "_distance"
TRANSACTIONS_LOOKED_AT = 1_000
VERSIONS_LOOKED_AT = 200  # earlier table versions, to find the new name of a column


@dataclass(frozen=True)
class Misfit:
    """A column that the registry names and the table has not, or has of another type.

    Attributes:
        column: Its name.
        version: The embedding version that it belongs to; None for a column of the items.
        expected: Arrow type, or its name.
        found: Arrow type, or None if the column is gone.
    """

    column: str
    version: str | None
    expected: Any
    found: Any

    def __str__(self) -> str:
        whose = "of the items" if self.version is None else f"of {self.version}"
        is_found = "is gone" if self.found is None else f"is {self.found}, expected {self.expected}"
        return f"column {self.column} {whose} {is_found}"


def misfits(registry: Registry, schema: ArrowSchema) -> tuple[Misfit, ...]:
    """Columns of a registry that are missing in an Arrow schema, or have another type there."""
    return tuple(_of_items(registry, schema)) + tuple(
        Misfit(field.name, name, field.type, found)
        for name, columns in registry.stored.items()
        for field in columns.fields
        for found in [_type_of(schema, field.name)]
        if found is None or not _same_type(found, field.type)
    )


def _of_items(registry: Registry, schema: ArrowSchema) -> Iterator[Misfit]:
    found = _type_of(schema, registry.id_column)
    if found is None or id_type_of(found) != registry.id_type:
        yield Misfit(registry.id_column, None, registry.id_type, found)
    if registry.source_column is not None and _type_of(schema, registry.source_column) is None:
        yield Misfit(registry.source_column, None, "any type", None)


def refuse(found: Sequence[Misfit], registry: Registry, snapshot: Snapshot, location: Location) -> None:
    """Refuse to go on with a table that lacks columns.

    Raises:
        TableChanged: It does; the error names the first of them, and the way out.
    """
    if not found:
        return
    operation = f"use {location.name}"
    if len(found) > 1:
        operation += f", which lacks {len(found)} columns"
    expected, fix = "the columns that the gallery was made of", way_out(found[0], found, registry, snapshot, location)
    raise TableChanged(operation, expected=expected, found="; ".join(str(misfit) for misfit in found[:3]), fix=fix)


def refuse_distance(names: Sequence[str], location: Location) -> None:
    """Refuse to search a table with a column of an app's that is called `_distance`: Lance cannot.

    Raises:
        TableChanged: There is one.
    """
    if DISTANCE in names:
        expected = f"no column called {DISTANCE}, the name of the distances in search results"
        found = f"the table's own column {DISTANCE}"
        raise TableChanged(f"search {location.name}", expected=expected, found=found, fix=renaming(DISTANCE, location))


def renaming(name: str, location: Location) -> str:
    """The fix for the name of an app's column: a command that renames it."""
    plain = "".join(character for character in name if character.isalnum() or character == "_").strip("_") or "column"
    change = f'{{"path": "{name}", "name": "{plain}"}}'
    return f'Give it another name: lance.dataset("{location.uri}").alter_columns({change})'


def way_out(
    misfit: Misfit, others: Sequence[Misfit], registry: Registry, snapshot: Snapshot, location: Location
) -> str:
    """The fix for a column that is gone: rename it back, make it again, or restore the table."""
    uri = location.uri
    if registry.adopted and overwritten_at(registry, snapshot) is not None:
        return f"The app has overwritten the table. Adopt it again, as it is now: {next_step.adopting(uri, again=True)}"
    before = _last_with(misfit, snapshot)
    renamed = None if before is None else _now_called(misfit, before, snapshot)
    if renamed is not None:
        change = f'{{"path": "{renamed}", "name": "{misfit.column}"}}'
        return f'It is called {renamed} now. Give it its name back: lance.dataset("{uri}").alter_columns({change})'
    if misfit.version is not None:
        made = (next_step.call(verb, misfit.version, at=uri) for verb in ("retire", "upgrade"))
        again = next_step.both(*made)
        if misfit.version != registry.active:
            return f"Make it again: {again}"
        if _can_go_back(registry, {other.version for other in others}):
            back = next_step.both(next_step.call("rollback", at=uri), again)
            return f"Go back to the version before and make it again: {back}"
    if before is None:
        return f"Restore {uri} from a backup, or drop it and make the gallery again."
    later = "rows and columns written since are undone"
    return f'Restore the table version before ({later}): lance.dataset("{uri}", version={before.version}).restore()'


def overwritten_at(registry: Registry, snapshot: Snapshot) -> int | None:
    """The last table version, of those that are kept, in which all rows were replaced since the gallery was made."""
    if not registry.made_at:
        return None
    for version in range(snapshot.version, max(registry.made_at, snapshot.version - TRANSACTIONS_LOOKED_AT), -1):
        # pylance cannot make an object of a compaction that moved rows of an index, and some versions were cleaned up.
        with suppress(TypeError, OSError, ValueError):
            transaction = snapshot.read_transaction(version)
            if transaction is not None and type(transaction.operation).__name__ == "Overwrite":
                return version
    return None


def _can_go_back(registry: Registry, lost: Set[str | None]) -> bool:
    run = registry.runs.get(registry.active)
    back = "" if run is None or not run.open else run.previous
    return back in registry.stored and not {back, None} & lost


def _last_with(misfit: Misfit, snapshot: Snapshot) -> Snapshot | None:
    """The last table version that has the column as it should be, or None."""
    for version in range(snapshot.version - 1, max(0, snapshot.version - 1 - VERSIONS_LOOKED_AT), -1):
        try:
            earlier = snapshot.checkout_version(version)
        except (OSError, ValueError):  # cleaned up
            continue
        found = _type_of(earlier.schema, misfit.column)
        if found is not None and found != misfit.found:
            return earlier
    return None


def _now_called(misfit: Misfit, before: Any, snapshot: Snapshot) -> str | None:
    """Another name that the very column has now; Lance's ids of columns stay when these are renamed."""
    files = [
        {file.path for part in table.get_fragments() for file in part.data_files()} for table in (before, snapshot)
    ]
    if files[0] and not files[0] & files[1]:  # the table was overwritten, and fragments were numbered from the start
        return None
    ids = {field.name(): field.id() for field in before.lance_schema.fields()}
    names = {field.id(): str(field.name()) for field in snapshot.lance_schema.fields()}
    name = names.get(ids[misfit.column])
    same = name is not None and _type_of(snapshot.schema, name) == _type_of(before.schema, misfit.column)
    return name if same and name != misfit.column else None


def _type_of(schema: ArrowSchema, name: str) -> ArrowType | None:
    return schema.field(name).type if name in schema.names else None


def _same_type(found: ArrowType, expected: ArrowType) -> bool:
    """True if two Arrow types hold the same; the name of a list's item field does not count."""
    if type(found) is not type(expected):
        return False
    found, expected = stored_type(found), stored_type(expected)
    if pa.types.is_fixed_size_list(found) and pa.types.is_fixed_size_list(expected):
        return bool(found.list_size == expected.list_size and found.value_type == expected.value_type)
    return bool(found == expected)
