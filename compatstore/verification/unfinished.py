"""What upgrades keep beside the table while they are under way: staged natives, accounts of what was spent, leases."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from compatstore.errors import CompatStoreError, StorageError, first_offenders
from compatstore.storage.blobs import FOLDER
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.failures import is_panic, told
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.row_check import removal
from compatstore.storage.staging import Staging, staged_version
from compatstore.upgrade.backfilling.account import ledger_of
from compatstore.upgrade.leases.lease import lease_in, leases_in
from compatstore.upgrade.leases.stop_request import requests_in
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding, Severity


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
    use, drop = context.command("upgrade", version), context.command("retire", version)
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
