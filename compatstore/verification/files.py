"""Files: those of the table and its indexes are there and whole; those beside the table are used and unchanged."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from compatstore import next_step
from compatstore.artifacts import Artifact
from compatstore.errors import CompatStoreError, CorruptArtifact, StorageError, first_offenders
from compatstore.storage.catalog import read_head
from compatstore.storage.failures import ends_whole
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import referenced
from compatstore.verification.context import CheckContext, Finding


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


def _objection(context: CheckContext, file: Any) -> str:
    """What is wrong with a file, by Lance's metadata of it; "" where nothing is."""
    if getattr(file, "base_id", None) is not None:  # it lies with another table, which this one was cloned from
        return ""
    files = Files(context.catalog.store.location, "data")
    if not files.exists(file.path):
        return "gone"
    return "" if ends_whole(files, file.path, file.file_size_bytes) else "cut short"


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
            return context.call("index create", record.name)
    return f'as it was built: lance.dataset("{uri}").create_index("{columns[0]}", ..., replace=True)'


_BLOB = re.compile(r"[0-9a-f]{64}|tmp\w+|.+\.tmp")


def check_artifacts(context: CheckContext) -> Iterator[Finding]:
    """Every linked artifact can be loaded, and is made for the models of its two versions."""
    for record in context.registry.artifacts.values():
        try:
            _load(context, record)
        except CompatStoreError as error:
            what = f"artifact {record.id[:12]}, {record.source} -> {record.target}: {error.asked}; found {error.found}"
            again = f"Link it again: {context.call('link', next_step.ARTIFACT)}"
            yield _wrong("artifacts", what, error.fix if isinstance(error, StorageError) else again)


def _load(context: CheckContext, record: ArtifactRecord) -> None:
    """Load an artifact as an upgrade does.

    Raises:
        CompatStoreError: It cannot be loaded, or is not what the registry says.
    """
    blobs, registry = context.catalog.blobs, context.registry
    artifact = Artifact.from_bytes(blobs.get(record.manifest), blobs.get(record.weights))
    if (artifact.id, artifact.kind) != (record.id, record.kind):
        raise CorruptArtifact(
            f"load artifact {record.id[:12]}",
            expected=f"a {record.kind} of that id",
            found=f"a {artifact.kind} with id {artifact.short_id}",
        )
    artifact.check(registry.record(record.source).version(), registry.record(record.target).version())


def check_models(context: CheckContext) -> Iterator[Finding]:
    """Heads and encoders that are stored beside the table are there, unchanged and of the right dimension."""
    for record in context.registry.versions.values():
        for role, digest in record.stored_models.items():
            try:
                data = context.catalog.blobs.get(digest)
                if role == "head":
                    read_head(data, record.dim)
            except CompatStoreError as error:
                path = context.catalog.store.location.child(FOLDER, digest)
                what = f"the {role} of {record.name}: {error.asked}; found {error.found}"
                back = f"Put the file back from a backup: {shlex.quote(path)}"
                yield _wrong("models", what, error.fix if isinstance(error, StorageError) else back)


def check_leftovers(context: CheckContext) -> Iterator[Finding]:
    """No blob beside the table is without use; a process that was killed while it linked or registered leaves some."""
    try:
        used = referenced(context.registry, context.catalog.blobs)
    except CorruptArtifact:  # the check of the history says so; which files are pages cannot be known
        return
    for name in context.catalog.blobs.names():
        if _BLOB.fullmatch(name) and name not in used:
            path = context.catalog.store.location.child(FOLDER, name)
            yield Finding(
                check="files beside the table",
                severity="note",
                what=f"{name[:12]} is used by nothing; a process that was killed left it, or one is at work",
                repair=f"Remove it when nothing is at work: rm {shlex.quote(path)}",
            )


def _wrong(check: str, what: str, repair: str) -> Finding:
    return Finding(check=check, severity="error", what=what, repair=repair)
