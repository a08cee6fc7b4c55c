"""What the registry and the files of upgrades say: versions, runs, history, tags; staged natives, accounts, leases."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice

from compatstore.errors import CompatStoreError, StorageError, first_offenders
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.failures import is_panic, told
from compatstore.storage.files import FOLDER
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.ledger import ledger_of
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.storage.row_digests import removal
from compatstore.storage.staging import Staging, staged_version
from compatstore.upgrade.leases.lease import lease_in, leases_in
from compatstore.upgrade.leases.stop_request import requests_in
from compatstore.upgrade.states import STATES, tag_of
from compatstore.verification.context import CheckContext, Finding, Severity

NAMED = 5
RESTORE = "Restore an earlier table version."


def check_versions(context: CheckContext) -> Iterator[Finding]:
    """Every version's record makes sense, and the active one has vectors."""
    for what in context.registry.contradictions:
        yield _wrong("versions", what, RESTORE)


def check_runs(context: CheckContext) -> Iterator[Finding]:
    """Every upgrade is in a known state, between versions and over artifacts that are there."""
    for target, run in context.registry.runs.items():
        for why in _complaints(context.registry, target, run):
            yield _wrong(
                "upgrades", f"the upgrade to {target} {why}", f"Begin it again: {context.call('retire', target)}"
            )


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


def check_history(context: CheckContext) -> Iterator[Finding]:
    """The history's steps are numbered from 1 without a gap, up to the number that the registry knows."""
    numbers = [entry.number for entry in registry_module.history(context.catalog.store, context.snapshot)]
    counted = context.registry.history
    if len(numbers) != counted or any(number != place for place, number in enumerate(numbers, 1)):
        there = set(numbers)
        lost = list(islice((number for number in range(1, counted + 1) if number not in there), NAMED))
        found = f"steps {', '.join(map(str, lost))} are gone" if lost else f"it has {len(numbers)} steps"
        yield Finding(
            check="history",
            severity="warning",
            what=f"{found}; the registry counts {context.registry.history}",
            repair="Nothing that searches need is lost. " + RESTORE,
        )


def check_tags(context: CheckContext) -> Iterator[Finding]:
    """Our tags pin table versions that are there, for versions that have vectors; the active one has its tag."""
    registry, store = context.registry, context.catalog.store
    tags = store.tags()
    names = {tag_of(name): name for name in registry.versions}
    for tag in sorted(tags.keys() & names.keys()):
        version = names[tag]
        if registry.versions[version].columns is None:
            yield _odd(f"tag {tag} pins a version without vectors", f"Drop it: {context.call('retire', version)}")
        if not store.has_version(tags[tag]):
            what = f"tag {tag} pins table version {tags[tag]}, which cannot be read"
            yield _odd(what, f'Drop it: lance.dataset("{store.location.uri}").tags.delete("{tag}")')
    if not registry.adopted and tag_of(registry.active) not in tags:
        yield _odd(
            f"the active version {registry.active} has no tag that keeps the table as it was when it became active",
            f"Set it: {_tagging(context)}",
        )


def _tagging(context: CheckContext) -> str:
    """How to tag the active version."""
    active, store = context.registry.active, context.catalog.store
    if context.run(active) is not None:
        return context.call("cutover", active)
    return f'lance.dataset("{store.location.uri}").tags.create("{tag_of(active)}", {context.snapshot.version})'


def _odd(what: str, repair: str) -> Finding:
    return Finding(check="tags", severity="warning", what=what, repair=repair)


def _wrong(check: str, what: str, repair: str) -> Finding:
    return Finding(check=check, severity="error", what=what, repair=repair)


def check_staged(context: CheckContext) -> Iterator[Finding]:
    """Natives that wait to be folded into the table can be read, are what was staged, and belong to an open upgrade."""
    names = [name for name in context.catalog.blobs.names() if staged_version(name)]
    sound = set(names)
    for name in names:
        version = str(staged_version(name))
        staging = _staging(context, version)
        if not staging.counts(name):
            what = f"{name} was written by a manager that had lost its lease to {version}; nothing reads it"
            yield _staged("note", what, f"Remove it: rm -r {shlex.quote(staging.address(name))}")
            continue
        try:
            lost, why = staging.examine(name), ""
        except BaseException as error:
            lost, why = 0, _why(error)
        if why:
            sound.remove(name)
            what = f"natives of {version} in {name} cannot be used: {why}"
            yield _staged("error", what, removal(staging.address(name)))
        elif lost:
            what = f"{lost} data files of natives of {version} in {name} belong to no batch that was finished"
            yield _staged("note", what, removal(staging.address(name)))
    for version in dict.fromkeys(str(staged_version(name)) for name in names):
        if all(name in sound for name in names if staged_version(name) == version):
            yield from _waiting(context, version)


def _staging(context: CheckContext, version: str) -> Staging:
    run, record = context.run(version), context.registry.versions.get(version)
    dim, side_dim = (1, None) if record is None else (record.dim, record.side_dim)
    since = 0 if run is None else run.lease
    id_type = id_arrow_type(context.registry)
    return Staging(context.catalog.store.location, version, dim, id_type, side_dim, since=since)


def _waiting(context: CheckContext, version: str) -> Iterator[Finding]:
    """Whether natives of a version wait, and for what."""
    rows = len(_staging(context, version))
    use, drop = context.call("upgrade", version), context.call("retire", version)
    if rows and context.run(version) is not None:
        yield _staged("note", f"{rows} natives of {version} are stored, but not in its column yet", f"Go on: {use}")
    elif rows:
        what = f"{rows} natives of {version} wait for an upgrade that is not open"
        yield _staged("warning", what, f"Use them: {use}; or drop them: {drop}")


def _why(error: BaseException) -> str:
    """What is wrong with what could not be read; anything but a failure to read it goes on."""
    if isinstance(error, CompatStoreError):
        return error.found
    if not isinstance(error, Exception) and not is_panic(error):
        raise error
    return told(error)


def _staged(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="staged natives", severity=severity, what=what, repair=repair)


def check_accounts(context: CheckContext) -> Iterator[Finding]:
    """What an upgrade has spent, and could not embed, can be read."""
    for run in context.registry.runs.values():
        try:
            ledger_of(context.catalog, context.registry, run).load()
        except StorageError as error:
            what = f"what the upgrade to {run.target} has spent cannot be read: {error.found}"
            yield Finding(check="accounts", severity="error", what=what, repair=error.fix)


def check_leases(context: CheckContext) -> Iterator[Finding]:
    """Who works on the gallery, and who asks them to stop, can be read."""
    location = context.catalog.store.location
    try:
        records = LeaseTable(location).read()
        misnamed = [lease.target for lease in leases_in(records) if lease_in(records, lease.target) != lease]
        requests_in(records)
        why = f"records of {first_offenders(misnamed)} under other names" if misnamed else ""
    except BaseException as error:
        why = _why(error)
    if why:
        path = shlex.quote(location.child(FOLDER, "leases.lance"))
        repair = f"Remove it when nobody is at work: rm -r {path}"
        yield Finding(check="leases", severity="error", what=f"who works cannot be read: {why}", repair=repair)
