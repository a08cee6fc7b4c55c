"""The registry: versions, artifacts, upgrade runs and the active version, in the table's own atomic metadata.

All of it is one JSON value in the table's configuration, so a reader sees one consistent state and an edit is a
compare-and-swap: of two edits made from the same state Lance lets one through. Each edit may carry one entry of the
history, which lands in the same commit.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowType
from compatstore.artifacts.kinds import kind_named
from compatstore.documents import Malformed, parse, read_record
from compatstore.errors import (
    CompatStoreError,
    CorruptArtifact,
    InvalidInput,
    NotFound,
    StorageError,
    first_offenders,
    meant,
)
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge
from compatstore.storage.columns import VersionColumns
from compatstore.storage.files import Blobs
from compatstore.storage.history import PREFIX, HistoryEntry, pages, read_entries, turn_page
from compatstore.storage.records import ArtifactRecord, MergeRecord, RunRecord, ServingRecord, VersionRecord
from compatstore.storage.snapshot import Snapshot, lance
from compatstore.storage.store import Store, is_begun

FORMAT = 1
KEY = "compatstore.registry"
ID_TYPES: Mapping[str, ArrowType] = {"string": pa.string(), "int64": pa.int64()}


def id_type_of(kind: ArrowType) -> str | None:
    """The type of ids of an Arrow type, a key of `ID_TYPES`; None if ids have no such type."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    return "int64" if pa.types.is_integer(kind) else None


@dataclass(frozen=True)
class Registry:
    """State of a gallery, as of one commit.

    Attributes:
        id_column: Column of the items' ids.
        id_type: "string" or "int64".
        source_column: Column of the sources that items are embedded from, or None.
        active: Version that searches use.
        versions: By name, in order of registration.
        artifacts: By id, in order of linking.
        runs: Upgrades by their target.
        format: Format of this record.
        history: Steps of the history so far.
        history_page: SHA-256 of the last page of the history, "" while there is none.
        serving: Fused search of upgrades, by their target.
        merging: Merge of the two parts of upgrades without a hop, by their target.
        made: Random identity of the gallery, which changes if another gallery takes its place.
        made_at: Table version that it was made of; a later overwrite of the table is not the gallery's.
    """

    id_column: str
    id_type: str
    source_column: str | None
    active: str
    versions: Mapping[str, VersionRecord] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactRecord] = field(default_factory=dict)
    runs: Mapping[str, RunRecord] = field(default_factory=dict)
    format: int = FORMAT
    history: int = 0
    history_page: str = ""
    serving: Mapping[str, ServingRecord] = field(default_factory=dict)
    merging: Mapping[str, MergeRecord] = field(default_factory=dict)
    made: str = ""
    made_at: int = 0

    def __post_init__(self) -> None:
        """Refuse names that contradict each other: they become names of columns and of files beside the table."""
        by_target = (self.runs, self.serving, self.merging)
        names = [(name, record.name) for name, record in self.versions.items()]
        names += [(name, artifact.id) for name, artifact in self.artifacts.items()]
        names += [(name, record.target) for records in by_target for name, record in records.items()]
        misnamed = [f"{name!r} names itself {own!r}" for name, own in names if name != own]
        unregistered = [
            f"an upgrade to {name!r}, which is no version" for name in self.runs if name not in self.versions
        ]
        typed = [] if self.id_type in ID_TYPES else [f"ids of type {self.id_type!r}"]
        wrong = [*misnamed, *unregistered, *typed, *([] if self.history >= 0 else ["a negative history"])]
        if wrong:
            raise InvalidInput("make a registry", expected="records that fit each other", found=first_offenders(wrong))

    def record(self, name: str) -> VersionRecord:
        """The record of a version.

        Raises:
            NotFound: There is none.
        """
        if name not in self.versions:
            expected = f"one of {', '.join(self.versions)}"
            fix = f"{meant(name, self.versions)}Name one of these; or {_new_version(name)}"
            raise NotFound(
                f"use embedding version {name!r}", expected=expected, found="no such version", fix=fix, kind="version"
            )
        return self.versions[name]

    def columns(self, name: str) -> VersionColumns:
        """Columns of a version whose vectors the table keeps.

        Raises:
            NotFound: There is no such version, or none of its vectors is there.
        """
        columns = self.record(name).columns
        if columns is None:
            raise NotFound(
                f"read the vectors of version {name!r}",
                expected="a version with vectors in this gallery",
                found="it was retired" if self.versions[name].retired else "it is registered only",
                fix=f"Upgrade to it: {next_step.call('upgrade', name)}",
                kind="version",
            )
        return columns

    @property
    def live(self) -> list[VersionRecord]:
        """Versions whose vectors the table keeps, in order of registration."""
        return [record for record in self.versions.values() if record.columns is not None]

    @property
    def stored(self) -> dict[str, VersionColumns]:
        """Columns of the versions whose vectors the table keeps, by name."""
        return {name: record.columns for name, record in self.versions.items() if record.columns is not None}

    @property
    def contradictions(self) -> list[str]:
        """Contradictions between records."""
        wrong = []
        if self.active not in self.stored:
            why = "has no columns" if self.active in self.versions else "is not registered"
            wrong.append(f"the active version {self.active} {why}")
        for record in self.live:
            wrong += [f"the record of version {record.name} {why}" for why in record.contradictions]
            if record.input_version is not None and record.input_version not in self.stored:
                wrong.append(f"version {record.name} has vectors made from {record.input_version}, which has none")
        return wrong

    @property
    def adopted(self) -> bool:
        """True if the table is an app's that was adopted; it stays the app's when the adopted version is retired."""
        return any(record.adopted for record in self.versions.values())

    def unused(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those columns of a table that are ours and no version's any more, as a killed retire leaves them."""
        used = {column for columns in self.stored.values() for column in columns.names}
        ours = {column for record in self.versions.values() if not record.adopted for column in _names(record)}
        return tuple(name for name in names if name in ours - used)

    def droppable(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the unused columns that no upgrade has reserved."""
        reserved = {name for record in self.versions.values() if record.reserved for name in _names(record)}
        return tuple(name for name in self.unused(names) if name not in reserved)

    def with_version(self, record: VersionRecord) -> Registry:
        """A copy with a version added or replaced."""
        return replace(self, versions={**self.versions, record.name: record})

    def with_artifact(self, record: ArtifactRecord) -> Registry:
        """A copy with an artifact added or replaced."""
        return replace(self, artifacts={**self.artifacts, record.id: record})

    def with_run(self, run: RunRecord) -> Registry:
        """A copy with a run added or replaced; its lease number never decreases."""
        known = self.runs.get(run.target)
        if known is not None and known.lease > run.lease:
            run = replace(run, lease=known.lease)
        return replace(self, runs={**self.runs, run.target: run})

    def with_serving(self, serving: ServingRecord) -> Registry:
        """A copy with the way to serve an upgrade added or replaced."""
        return replace(self, serving={**self.serving, serving.target: serving})

    def fusion_of(self, target: str) -> Fusion | None:
        """The fusion of an open upgrade; None if none was chosen for it."""
        run, serving = self.runs.get(target), self.serving.get(target)
        if run is None or serving is None or not run.open or serving.began != run.identity:
            return None
        return serving.fusion

    def fusion_served(self, target: str) -> Fusion | None:
        """The fusion that searches use by default; None if they use one version alone."""
        fusion = self.fusion_of(target)
        return None if fusion is None or fusion.single or self.serving[target].serving != "fused" else fusion

    @property
    def answering(self) -> str:
        """Vectors that answer searches by default, for messages: "v1 alone", "the fusion of v1 and v2"."""
        for run in self.runs.values():
            if self.active in (run.source, run.target) and self.fusion_served(run.target) is not None:
                return f"the fusion of {run.source} and {run.target}"
        return f"{self.active} alone"

    def with_merging(self, merging: MergeRecord) -> Registry:
        """A copy with the merge of an upgrade added or replaced."""
        return replace(self, merging={**self.merging, merging.target: merging})

    def merge_of(self, target: str) -> Merge | None:
        """The merge of the two parts of an open upgrade; None if none was chosen for them as they are."""
        run, merging = self.runs.get(target), self.merging.get(target)
        if run is None or merging is None or not run.open or run.path or merging.began != run.identity:
            return None
        bridge = bridge_to(self, target)
        return merging.merge if merging.merge.bridge == (bridge.id if bridge is not None else "") else None

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str, where: str) -> Registry:
        """Read JSON text back.

        Raises:
            CorruptArtifact: It is not a registry, or one of a later format.
        """
        try:
            data = parse(text)
            if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
                expected, fix = f"registry format <= {FORMAT}", "Upgrade the package: pip install --upgrade compatstore"
                raise CorruptArtifact(f"open {where}", expected=expected, found=str(data["format"]), fix=fix)
            return read_record(cls, data, "registry")
        except Malformed as error:
            fix = f"Restore the last readable one, with the command of: {next_step.in_a_shell('verify', at=where)}"
            raise CorruptArtifact(f"open {where}", expected="a readable registry", found=str(error), fix=fix) from error


def _new_version(name: str) -> str:
    """The fix for a version that is not registered."""
    version = next_step.made("EmbeddingVersion", name, dim=next_step.DIM)
    register = f"register it: {next_step.call('register', version)}"
    upgrade = next_step.call("upgrade", name, encoder=next_step.ENCODER_IN_SHELL)
    return next_step.either(shell=f"upgrade to it: {upgrade}; or {register}", python=register)


def _names(record: VersionRecord) -> list[str]:
    """Columns that a version which the gallery keeps can have."""
    return list(VersionColumns.of(replace(record, side_dim=record.side_dim or 1).version()).names)


def read(snapshot: Snapshot, where: str) -> Registry:
    """The registry of an open table.

    Raises:
        StorageError: The table is a plain Lance table without one.
        NotFound: It is the table of a creation that was killed.
    """
    text = snapshot.config().get(KEY)
    if text is None and is_begun(snapshot):
        fix = "Create it again, in the same way."
        raise NotFound(f"open {where}", expected="a gallery", found="one whose creation was stopped", fix=fix)
    if text is None:
        expected, fix = "a table made by create or taken over by adopt", f"Adopt it: {next_step.adopting(where)}"
        raise StorageError(f"open {where} as a gallery", expected=expected, found="a plain Lance table", fix=fix)
    return Registry.loads(text, where)


def last_readable(store: Store) -> int | None:
    """Number of the last table version whose registry can be read, or None."""
    snapshot = store.snapshot()
    for version in range(snapshot.version, 0, -1):
        try:
            read(snapshot.checkout_version(version), store.location.uri)
        except (CompatStoreError, OSError, ValueError):  # none, none that can be read, or cleaned up
            continue
        return version
    return None


def history(store: Store, snapshot: Snapshot | None = None) -> list[HistoryEntry]:
    """Steps so far, or as of an open snapshot, oldest first.

    Raises:
        CorruptArtifact: A part of it is gone or was changed.
    """
    snapshot = store.snapshot() if snapshot is None else snapshot
    return read_entries(Blobs(store.location), snapshot.config(), read(snapshot, store.location.uri).history_page)


def start(store: Store, registry: Registry, entry: HistoryEntry, *, again: bool = False) -> None:
    """Write the first registry of a table.

    Args:
        store: The table.
        registry: The registry.
        entry: The first step of its history.
        again: In place of the registry that the table has, and of its history.

    Raises:
        InvalidInput: The table has one already, and it is not to be replaced.
    """
    snapshot = store.snapshot()
    if KEY in snapshot.config() and not again:
        raise InvalidInput(
            f"make {store.location.name} a gallery", found="it is one already", fix="Open it with Gallery.open."
        )
    registry = replace(registry, made=secrets.token_hex(8), made_at=int(snapshot.version))
    store.retry("write the registry", lambda: _swap(store, snapshot, registry, entry, anew=again))


def drop_unused(store: Store) -> tuple[str, ...]:
    """Drop the columns of ours that no version has and no upgrade has reserved, as one table version shows them.

    Returns:
        Their names.
    """
    return store.drop_columns(lambda table: read(table, store.location.uri).droppable(table.schema.names))


def edit(
    store: Store, change: Callable[[Registry], Registry], entry: HistoryEntry | None = None, *, always: bool = False
) -> Registry:
    """Change the registry atomically.

    Args:
        store: The table.
        change: Makes the new state from the one that it finds; runs again when another writer was faster, and
            raises to refuse.
        entry: Step for the history, written in the same commit.
        always: Commit an unchanged registry too, so that every edit that was made ready before is refused.

    Returns:
        The new state.
    """

    def commit() -> Registry:
        snapshot = store.snapshot()
        before = read(snapshot, store.location.uri)
        after = change(before)
        if after == before and entry is None and not always:
            return before
        return _swap(store, snapshot, after, entry)

    changed: Registry = store.retry("change the registry", commit)
    return changed


def edit_version(store: Store, name: str, entry: HistoryEntry | None = None, **fields: Any) -> None:
    """Change fields of a version's record, as `edit` does."""
    edit(store, lambda state: state.with_version(replace(state.record(name), **fields)), entry)


def _swap(
    store: Store, snapshot: Snapshot, registry: Registry, entry: HistoryEntry | None, *, anew: bool = False
) -> Registry:
    config = snapshot.config()
    updates: dict[str, str | None] = {key: None for key in config if anew and key.startswith(PREFIX)}
    if entry is not None:
        page, moved = turn_page(Blobs(store.location), {} if anew else config, registry.history_page)
        registry = replace(registry, history=registry.history + 1, history_page=page)
        record, run = registry.versions.get(entry.version), registry.runs.get(entry.version)
        signed = replace(
            entry.signed(registry.history),
            fingerprint=record.version().fingerprint if record is not None else "",
            source=entry.source or (run.source if run is not None else ""),
        )
        updates = {**updates, **moved, f"{PREFIX}{registry.history:06d}": signed.dumps()}
    updates[KEY] = registry.dumps()
    update = lance.LanceOperation.UpdateMap(updates, replace=False)
    store.commit(lance.LanceOperation.UpdateConfig(config_updates=update), snapshot.version)
    return registry


def bridge_to(registry: Registry, version: str) -> ArtifactRecord | None:
    """The last linked artifact that lets queries of a version search vectors of another version in the table."""
    for artifact in reversed(list(registry.artifacts.values())):
        adapts = kind_named(artifact.kind).acts_on == "query" and artifact.target == version
        if adapts and registry.record(artifact.source).columns is not None:
            return artifact
    return None


def comparable(registry: Registry, bridge: ArtifactRecord) -> bool:
    """True if distances of rows of both versions can be ranked together.

    With Identity both are in one space. With Prefix a source row is as near as the first values of the query are to
    it, and a native row as near as the whole query: these compare if all of them have unit length, by themselves or
    as the metric makes them. An adapted query lies in another space than the native rows.
    """
    source, target = registry.record(bridge.source), registry.record(bridge.target)
    if source.metric != target.metric:
        return False
    unit = target.metric == "cosine" or (source.normalised and target.normalised)
    return bridge.kind == "Identity" or (bridge.kind == "Prefix" and unit)


def unsearchable(registry: Registry, version: str) -> str:
    """SQL condition: the row has no vector that a query of the version finds.

    Raises:
        NotFound: The version has no vectors in the table.
    """
    missing = registry.columns(version).missing
    bridge = bridge_to(registry, version)
    return missing if bridge is None else f"({missing}) AND ({registry.columns(bridge.source).missing})"


def referenced(registry: Registry, blobs: Blobs) -> set[str]:
    """SHA-256 of all files beside the table that a registry names: artifacts, models and pages of the history.

    Raises:
        CorruptArtifact: A page is gone or was changed, so the pages before it cannot be known.
    """
    artifacts = {digest for artifact in registry.artifacts.values() for digest in (artifact.manifest, artifact.weights)}
    models = {digest for record in registry.versions.values() for digest in record.stored_models.values()}
    return artifacts | models | set(pages(blobs, registry.history_page))
