"""Data files: all that the table names are there, as long as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatstore.errors import first_offenders
from compatstore.storage.files import Files
from compatstore.storage.full_disk import ends_whole
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding


def check_data_files(context: CheckContext) -> Iterator[Finding]:
    """No data file is gone or cut short."""
    wrong: dict[str, list[str]] = {}
    for fragment in context.snapshot.get_fragments():
        for file in fragment.metadata.files:
            found = _objection(context, file)
            if found:
                wrong.setdefault(found, []).append(file.path)
    for found, names in wrong.items():
        yield Finding(
            check="data files",
            severity="error",
            what=f"{len(names)} data files are {found}: {first_offenders(names)}",
            repair=f"Put them back from a backup, or restore a table version before {context.snapshot.version}.",
        )


def check_index_files(context: CheckContext) -> Iterator[Finding]:
    """No file of an index is gone or cut short."""
    store = context.catalog.store
    for index in context.snapshot.describe_indices():
        for segment in index.segments:
            if getattr(segment, "base_id", None) is not None:
                continue
            files = Files(store.location, "_indices", str(segment.uuid))
            sizes = [files.size(name) for name in files.names()]
            kept = sum(size for size in sizes if size is not None)
            short = [name for name in files.names() if not ends_whole(files, name)]
            lacking = None not in sizes and segment.size_bytes is not None and kept != segment.size_bytes
            if short or lacking or not sizes:
                yield Finding(
                    check="index files",
                    severity="error",
                    what=f"files of the index {index.name} are gone or cut short: {first_offenders(short)}",
                    repair=f"Build it again: {_building(context, list(index.field_names))}",
                )


def _building(context: CheckContext, columns: list[str]) -> str:
    """How to build the index on a column again."""
    uri, registry = context.catalog.store.location.uri, context.registry
    if columns == [registry.id_column]:
        return f'lance.dataset("{uri}").create_scalar_index("{columns[0]}", "BTREE", replace=True)'
    for record in registry.live:
        if record.columns is not None and columns == [record.columns.vector]:
            return f'compatstore.Gallery.open("{uri}").create_index("{record.name}")'
    return f'as it was built: lance.dataset("{uri}").create_index("{columns[0]}", ..., replace=True)'


def _objection(context: CheckContext, file: Any) -> str:
    """What is wrong with a file, by Lance's metadata of it; "" where nothing is."""
    if getattr(file, "base_id", None) is not None:  # it lies with another table, which this one was cloned from
        return ""
    files = Files(context.catalog.store.location, "data")
    if not files.exists(file.path):
        return "gone"
    return "" if ends_whole(files, file.path, file.file_size_bytes) else "cut short"
