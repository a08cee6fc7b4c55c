"""Records and files: versions, runs, history, tags, staged natives, accounts, leases; files of and beside the table."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from compatstore import next_step
from compatstore.artifacts import Artifact
from compatstore.errors import CompatStoreError, CorruptArtifact, StorageError, first_offenders
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import read_head
from compatstore.storage.failures import ends_whole, is_failure, text_of
from compatstore.storage.files import FOLDER, Files, is_blob
from compatstore.storage.ids import NAMED
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.ledger import ledger_of
from compatstore.storage.records import ArtifactRecord, RunRecord
from compatstore.storage.registry import Registry, referenced
from compatstore.storage.staging import Staging, removal, staged_version
from compatstore.upgrade.leases.lease import lease_in, leases_in, requests_in
from compatstore.upgrade.states import STATES, tag_of
from compatstore.verification.context import CheckContext, Observation

RESTORE = "Restore an earlier table version."


def check_versions(context: CheckContext) -> Iterator[Observation]:
    """Every version's record makes sense, and the active one has vectors."""
    for what in context.registry.contradictions:
        yield "error", what, RESTORE


def check_runs(context: CheckContext) -> Iterator[Observation]:
    """Every upgrade is in a known state, between versions and over artifacts that are there."""
    for target, run in context.registry.runs.items():
        for why in _complaints(context.registry, target, run):
            yield "error", f"the upgrade to {target} {why}", f"Begin it again: {context.call('retire', target)}"


def _complaints(registry: Registry, target: str, run: RunRecord) -> Iterator[str]:
    if run.state not in STATES:
        yield f"is in the unknown state {run.state!r}"
    gone = [name for name in (run.target, run.source, run.previous) if name not in registry.versions]
    if gone:
        yield f"names versions that are not registered: {', '.join(gone)}"
    unlinked = [artifact[:12] for artifact in run.path if artifact not in registry.artifacts]
    if unlinked:
        yield f"applies artifacts that are not linked: {', '.join(unlinked)}"
    if run.open and target in registry.versions and registry.versions[target].columns is None:
        yield f"is in state {run.state}, but {target} has no columns"


def check_history(context: CheckContext) -> Iterator[Observation]:
    """The history's steps are numbered from 1 without a gap, up to the number in the registry."""
    numbers = [entry.number for entry in registry_module.history(context.catalog.store, context.snapshot)]
    counted = context.registry.history
    if len(numbers) != counted or any(number != place for place, number in enumerate(numbers, 1)):
        there = set(numbers)
        lost = list(islice((number for number in range(1, counted + 1) if number not in there), NAMED))
        found = f"steps {', '.join(map(str, lost))} are gone" if lost else f"it has {len(numbers)} steps"
        yield "warning", f"{found}; the registry counts {counted}", f"Nothing that searches need is lost. {RESTORE}"


def check_tags(context: CheckContext) -> Iterator[Observation]:
    """Our tags pin table versions that are there, for versions that have vectors; the active one has its tag."""
    registry, store = context.registry, context.catalog.store
    tags = store.tags()
    names = {tag_of(name): name for name in registry.versions}
    for tag in sorted(tags.keys() & names.keys()):
        version = names[tag]
        if registry.versions[version].columns is None:
            yield "warning", f"tag {tag} pins a version without vectors", f"Drop it: {context.call('retire', version)}"
        if not store.has_version(tags[tag]):
            what = f"tag {tag} pins table version {tags[tag]}, which cannot be read"
            yield "warning", what, f'Drop it: lance.dataset("{store.location.uri}").tags.delete("{tag}")'
    if not registry.adopted and tag_of(registry.active) not in tags:
        what = f"the active version {registry.active} has no tag that keeps the table as it was when it became active"
        yield "warning", what, f"Set it: {_tagging(context)}"


def _tagging(context: CheckContext) -> str:
    """The command that tags the active version."""
    active, store = context.registry.active, context.catalog.store
    if context.run(active) is not None:
        return context.call("cutover", active)
    return f'lance.dataset("{store.location.uri}").tags.create("{tag_of(active)}", {context.snapshot.version})'


def check_staged(context: CheckContext) -> Iterator[Observation]:
    """Natives that wait to be folded into the table can be read, are unchanged, and belong to an open upgrade."""
    names = {name: version for name in context.catalog.blobs.names() if (version := staged_version(name))}
    unsound = set[str]()
    for name, version in names.items():
        staging = _staging(context, version)
        if not staging.counts(name):
            what = f"{name} was written by a worker that had lost its lease to {version}; nothing reads it"
            yield "note", what, f"Remove it: rm -r {shlex.quote(staging.address(name))}"
            continue
        try:
            lost, why = staging.examine(name), ""
        except BaseException as error:
            lost, why = 0, _why(error)
        if why:
            unsound.add(version)
            what = f"natives of {version} in {name} cannot be used: {why}"
            yield "error", what, removal(staging.address(name))
        elif lost:
            what = f"{lost} data files of natives of {version} in {name} belong to no batch that was finished"
            yield "note", what, removal(staging.address(name))
    for version in dict.fromkeys(names.values()):
        if version not in unsound:
            yield from _waiting(context, version)


def _staging(context: CheckContext, version: str) -> Staging:
    return Staging.of(context.catalog.store, context.registry, version, context.run(version))


def _waiting(context: CheckContext, version: str) -> Iterator[Observation]:
    """Staged natives of a version, and the upgrade that they wait for."""
    rows = len(_staging(context, version))
    use, drop = context.call("upgrade", version), context.call("retire", version)
    if rows and context.run(version) is not None:
        yield "note", f"{rows} natives of {version} are stored, but not in its column yet", f"Go on: {use}"
    elif rows:
        what = f"{rows} natives of {version} wait for an upgrade that is not open"
        yield "warning", what, f"Use them: {use}; or drop them: {drop}"


def _why(error: BaseException) -> str:
    """The text of a failure to read; any other exception is raised again."""
    if isinstance(error, CompatStoreError):
        return error.found
    if not is_failure(error):
        raise error
    return text_of(error)


def check_accounts(context: CheckContext) -> Iterator[Observation]:
    """The ledger of each upgrade can be read."""
    for run in context.registry.runs.values():
        try:
            ledger_of(context.catalog, context.registry, run).load()
        except StorageError as error:
            yield "error", f"the ledger of the upgrade to {run.target} cannot be read: {error.found}", error.fix


def check_leases(context: CheckContext) -> Iterator[Observation]:
    """Leases of workers and requests to stop can be read."""
    location = context.catalog.store.location
    try:
        records = LeaseTable(location).read()
        requests_in(records)
        misnamed = [lease.target for lease in leases_in(records) if lease_in(records, lease.target) != lease]
        why = f"records of {first_offenders(misnamed)} under other names" if misnamed else ""
    except BaseException as error:
        why = _why(error)
    if why:
        path = shlex.quote(location.child(FOLDER, "leases.lance"))
        yield "error", f"leases of workers cannot be read: {why}", f"Remove them when no worker is active: rm -r {path}"


def check_data_files(context: CheckContext) -> Iterator[Observation]:
    """No data file is gone or cut short."""
    wrong, files = defaultdict[str, list[str]](list), Files(context.catalog.store.location, "data")
    for file in (file for fragment in context.snapshot.get_fragments() for file in fragment.metadata.files):
        if getattr(file, "base_id", None) is not None:  # it lies with another table, which this one was cloned from
            continue
        if not files.exists(file.path):
            wrong["gone"].append(file.path)
        elif not ends_whole(files, file.path, file.file_size_bytes):
            wrong["cut short"].append(file.path)
    repair = f"Put them back from a backup, or restore a table version before {context.snapshot.version}."
    for found, names in wrong.items():
        yield "error", f"{len(names)} data files are {found}: {first_offenders(names)}", repair


def check_index_files(context: CheckContext) -> Iterator[Observation]:
    """No file of an index is gone or cut short."""
    store = context.catalog.store
    for index in context.snapshot.describe_indices():
        for segment in index.segments:
            if getattr(segment, "base_id", None) is not None:
                continue
            files = Files(store.location, "_indices", str(segment.uuid))
            sizes = {name: files.size(name) for name in files.names()}
            short = [name for name in sizes if not ends_whole(files, name)]
            known = segment.size_bytes is not None and None not in sizes.values()
            if short or not sizes or (known and sum(size or 0 for size in sizes.values()) != segment.size_bytes):
                what = f"files of the index {index.name} are gone or cut short: {first_offenders(short)}"
                yield "error", what, f"Build it again: {_building(context, list(index.field_names))}"


def _building(context: CheckContext, columns: list[str]) -> str:
    """The command that builds the index on a column again."""
    uri, registry = context.catalog.store.location.uri, context.registry
    if columns == [registry.id_column]:
        return f'lance.dataset("{uri}").create_scalar_index("{columns[0]}", "BTREE", replace=True)'
    for name, stored in registry.stored.items():
        if columns == [stored.vector]:
            return context.call("index create", name)
    return f'as it was built: lance.dataset("{uri}").create_index("{columns[0]}", ..., replace=True)'


def check_artifacts(context: CheckContext) -> Iterator[Observation]:
    """Every linked artifact can be loaded, and is made for the models of its two versions."""
    for record in context.registry.artifacts.values():
        try:
            _load(context, record)
        except CompatStoreError as error:
            what = (
                f"artifact {record.id[:12]}, {record.source} -> {record.target}: {error.operation}; found {error.found}"
            )
            again = f"Link it again: {context.call('link', next_step.ARTIFACT)}"
            yield "error", what, error.fix if isinstance(error, StorageError) else again


def _load(context: CheckContext, record: ArtifactRecord) -> None:
    """Load an artifact as an upgrade does.

    Raises:
        CompatStoreError: It cannot be loaded, or differs from its record in the registry.
    """
    blobs, registry = context.catalog.blobs, context.registry
    artifact = Artifact.from_bytes(blobs.get(record.manifest), blobs.get(record.weights))
    if (artifact.id, artifact.kind) != (record.id, record.kind):
        found = f"a {artifact.kind} with id {artifact.short_id}"
        raise CorruptArtifact(f"load artifact {record.id[:12]}", expected=f"a {record.kind} of that id", found=found)
    artifact.check(registry.record(record.source).version(), registry.record(record.target).version())


def check_models(context: CheckContext) -> Iterator[Observation]:
    """Heads and encoders that are stored beside the table are there, unchanged and of the right dimension."""
    for record in context.registry.versions.values():
        for role, digest in record.stored_models.items():
            try:
                data = context.catalog.blobs.get(digest)
                if role == "head":
                    read_head(data, record.dim)
            except CompatStoreError as error:
                path = context.catalog.store.location.child(FOLDER, digest)
                what = f"the {role} of {record.name}: {error.operation}; found {error.found}"
                back = f"Put the file back from a backup: {shlex.quote(path)}"
                yield "error", what, error.fix if isinstance(error, StorageError) else back


def check_leftovers(context: CheckContext) -> Iterator[Observation]:
    """No blob beside the table is without use; a process that was killed while it linked or registered leaves some."""
    try:
        used = referenced(context.registry, context.catalog.blobs)
    except CorruptArtifact:  # the check of the history reports it; the files of pages are unknown
        return
    for name in context.catalog.blobs.names():
        if is_blob(name) and name not in used:
            path = context.catalog.store.location.child(FOLDER, name)
            what = f"{name[:12]} is unused; it is left by a killed process, or another process is writing it"
            yield "note", what, f"Remove it when no process is at work: rm {shlex.quote(path)}"
