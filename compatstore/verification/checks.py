"""Check a gallery's table, registry, artifacts, tags and indexes against each other; read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from compatstore import next_step
from compatstore.errors import CompatStoreError, NotFound
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.failures import answering, is_failure, of_orphans, text_of
from compatstore.storage.location import Location
from compatstore.storage.registry import last_readable
from compatstore.storage.store import Store, newest_manifest
from compatstore.verification import columns, records
from compatstore.verification.context import CheckContext, Finding, Observation, Verification

ATTEMPTS = 5
Check = Callable[[CheckContext], Iterable[Observation]]

CHECKS: dict[str, Check] = {
    "versions": records.check_versions,
    "columns": columns.check_columns,
    "overwritten": columns.check_overwritten,
    "unused columns": columns.check_unused_columns,
    "data files": records.check_data_files,
    "index files": records.check_index_files,
    "ids": columns.check_ids,
    "rows": columns.check_rows,
    "missing": columns.check_missing,
    "origins": columns.check_origins,
    "artifacts": records.check_artifacts,
    "models": records.check_models,
    "upgrades": records.check_runs,
    "staged natives": records.check_staged,
    "accounts": records.check_accounts,
    "leases": records.check_leases,
    "history": records.check_history,
    "tags": records.check_tags,
    "indexes": columns.check_indexes,
    "files beside the table": records.check_leftovers,
}


def verify(catalog: Catalog, *, embed: bool = False) -> Verification:
    """Make all checks, of one table version; read-only, in bounded memory.

    Args:
        catalog: The gallery.
        embed: True to embed a few items of each version again, and compare them with the stored vectors.

    Every fault becomes a finding; also a check that cannot be carried out, because a file is gone or unreadable.
    If other processes wrote meanwhile, checks with findings are repeated on the latest version: files beside
    the table, and those of an old version that a clean-up removed, may be gone for a good reason.
    """
    checks = CHECKS | ({"vectors": columns.check_vectors} if embed else {})
    try:
        context = CheckContext.of(catalog)
        found = {name: tuple(_carry_out(name, check, context)) for name, check in checks.items()}
        for attempt in range(ATTEMPTS):
            doubtful = [name for name, findings in found.items() if any(one.severity != "note" for one in findings)]
            latest = CheckContext.of(catalog)
            if not doubtful or latest.snapshot is context.snapshot:
                break
            time.sleep(0.1 * attempt)
            context = CheckContext.of(catalog)
            found |= {name: tuple(_carry_out(name, checks[name], context)) for name in doubtful}
        findings = tuple(finding for name in checks for finding in found[name])
    except CompatStoreError as error:
        return _unopened(catalog.store.location, error)
    return Verification(
        gallery=catalog.store.location.uri,
        table_version=context.snapshot.version,
        rows=int(context.snapshot.count_rows()),
        checks=tuple(checks),
        findings=findings,
    )


def verify_at(location: Location) -> Verification:
    """Make all checks of a gallery that may be too damaged to be opened.

    Raises:
        NotFound: There is no table at all.
    """
    try:
        with answering("open", location):
            catalog = Catalog(Store.open(location))
    except CompatStoreError as error:
        if isinstance(error, NotFound) and error.kind == "gallery":
            raise
        return _unopened(location, error)
    return verify(catalog)


def _unopened(location: Location, error: CompatStoreError) -> Verification:
    """The one finding of a table that does not open, or has a registry that cannot be read."""
    finding = Finding(check="registry", severity="error", what=str(error), repair=_way_back(location) or error.fix)
    return Verification(gallery=location.uri, table_version=0, rows=0, checks=("registry",), findings=(finding,))


def _way_back(location: Location) -> str:
    """The way back to the last registry that can be read, of this table version or an earlier one; "" for none."""
    try:
        with answering("open", location):
            store = Store.open(location)
    except CompatStoreError:
        newest = newest_manifest(location)
        restored = "Restore the table's files from a backup, or remove the file of the last commit"
        return f"{restored}; the table is then as it was before its last commit: rm {newest}" if newest else ""
    before = last_readable(store)
    if before is None:
        return ""
    table, key = f'lance.dataset("{location.uri}")', registry_module.KEY
    last = f'lance.dataset("{location.uri}", version={before}).config()["{key}"]'
    return f'Put back that of table version {before}: {table}.update_config({{"{key}": {last}}})'


def _carry_out(name: str, check: Check, context: CheckContext) -> Iterator[Finding]:
    try:
        for severity, what, repair in check(context):
            yield Finding(check=name, severity=severity, what=what, repair=repair)
    except BaseException as error:
        if not is_failure(error):
            raise
        kind, repair = f"{type(error).__name__}: ", ""
        if isinstance(error, CompatStoreError):
            kind, repair = "", error.fix
        what = f"the check could not be carried out: {kind}{text_of(error)}"
        if of_orphans(error):
            what = "an index is on a column that is gone, and Lance reads the table by no condition"
            repair = f"Any call drops it: {next_step.call('status')}"
        repair = repair or "Restore the table's files from a backup."
        yield Finding(check=name, severity="error", what=what, repair=repair)
