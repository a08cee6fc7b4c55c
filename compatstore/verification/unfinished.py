"""What upgrades keep beside the table while they are under way: staged natives, accounts of what was spent, leases."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from compatstore.errors import StorageError
from compatstore.storage.blobs import FOLDER
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.staging import Staging, staged_version
from compatstore.upgrade.backfilling.account import ledger_of
from compatstore.verification.finding import Finding, Severity
from compatstore.verification.scene import Scene


def check_staged(scene: Scene) -> Iterator[Finding]:
    """Natives that wait to be folded into the table can be read, and belong to an upgrade that is open."""
    for version in dict.fromkeys(filter(None, map(staged_version, scene.catalog.blobs.names()))):
        run, record = scene.run(version), scene.registry.versions.get(version)
        dim = 1 if record is None else record.dim
        since = 0 if run is None else run.lease
        rows = len(Staging(scene.catalog.store.location, version, dim, id_arrow_type(scene.registry), since=since))
        use, drop = scene.command("upgrade", version), scene.command("retire", version)
        if rows and run is not None:
            yield _staged("note", f"{rows} natives of {version} are stored, but not in its column yet", f"Go on: {use}")
        elif rows:
            what = f"{rows} natives of {version} wait for an upgrade that is not open"
            yield _staged("warning", what, f"Use them: {use}; or drop them: {drop}")


def _staged(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="staged natives", severity=severity, what=what, repair=repair)


def check_accounts(scene: Scene) -> Iterator[Finding]:
    """What an open upgrade has spent, and could not embed, can be read."""
    for run in scene.registry.runs.values():
        if not run.open:
            continue
        try:
            ledger_of(scene.catalog, scene.registry, run).load()
        except StorageError as error:
            what = f"what the upgrade to {run.target} has spent cannot be read: {error.found}"
            yield Finding(check="accounts", severity="error", what=what, repair=error.fix)


def check_leases(scene: Scene) -> Iterator[Finding]:
    """Who works on the gallery can be read."""
    location = scene.catalog.store.location
    try:
        LeaseTable(location).read()
    except StorageError as error:
        path = shlex.quote(location.child(FOLDER, "leases.lance"))
        what = f"who works on the gallery cannot be read: {error.found}"
        yield Finding(
            check="leases", severity="error", what=what, repair=f"Remove it when nobody is at work: rm -r {path}"
        )
