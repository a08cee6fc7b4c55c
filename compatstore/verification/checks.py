"""Check a gallery's table, registry, artifacts, tags and indexes against each other; read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from compatstore import next_step
from compatstore.errors import CompatStoreError, NotFound
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.failures import answering, is_panic, of_orphans, told
from compatstore.storage.location import Location
from compatstore.storage.registry import last_readable
from compatstore.storage.store import Store, newest_manifest
from compatstore.verification.columns import (
    check_columns,
    check_ids,
    check_indexes,
    check_missing,
    check_origins,
    check_overwritten,
    check_rows,
    check_unused_columns,
    check_vectors,
)
from compatstore.verification.context import CheckContext, Finding, Observation, Verification
from compatstore.verification.records import (
    check_accounts,
    check_artifacts,
    check_data_files,
    check_history,
    check_index_files,
    check_leases,
    check_leftovers,
    check_models,
    check_runs,
    check_staged,
    check_tags,
    check_versions,
)

ATTEMPTS = 5
Check = Callable[[CheckContext], Iterable[Observation]]

CHECKS: dict[str, Check] = {
    "versions": check_versions,
    "columns": check_columns,
    "overwritten": check_overwritten,
    "unused columns": check_unused_columns,
    "data files": check_data_files,
    "index files": check_index_files,
    "ids": check_ids,
    "rows": check_rows,
    "missing": check_missing,
    "origins": check_origins,
    "artifacts": check_artifacts,
    "models": check_models,
    "upgrades": check_runs,
    "staged natives": check_staged,
    "accounts": check_accounts,
    "leases": check_leases,
    "history": check_history,
    "tags": check_tags,
    "indexes": check_indexes,
    "files beside the table": check_leftovers,
}


def verify(catalog: Catalog, *, embed: bool = False) -> Verification:
    """Make all checks, of one table version; read-only, in bounded memory.

    Args:
        catalog: The gallery.
        embed: Whether a few items of each version are embedded again too, and compared with what is stored.

    Whatever is wrong becomes a finding; also a check that cannot be carried out, because a file is gone or unreadable.
    Where others wrote meanwhile, checks that found something wrong are made again of the latest version: files beside
    the table, and those of an old version that a clean-up removed, may be gone for a good reason.
    """
    checks = CHECKS | ({"vectors": check_vectors} if embed else {})
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
    """What can be said of a table that does not open, or has a registry that cannot be read."""
    finding = Finding(check="registry", severity="error", what=str(error), repair=_way_back(location) or error.fix)
    return Verification(gallery=location.uri, table_version=0, rows=0, checks=("registry",), findings=(finding,))


def _way_back(location: Location) -> str:
    """How to get the last registry that can be read, of this table version or one before it; "" where there is none."""
    try:
        with answering("open", location):
            store = Store.open(location)
    except CompatStoreError:
        newest = newest_manifest(location)
        back = f"the table is then as it was before its last commit: rm {newest}" if newest else ""
        return f"Restore the table's files from a backup, or remove the file of the last commit; {back}" if back else ""
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
    except CompatStoreError as error:
        yield _unreadable(name, error, error.fix)
    except BaseException as error:  # what Lance and Arrow raise for files they cannot read, panics among it
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        yield _unreadable(name, error, "")


def _unreadable(name: str, error: BaseException, fix: str) -> Finding:
    if of_orphans(error):
        what = "an index is on a column that is gone, and Lance reads the table by no condition"
        return Finding(check=name, severity="error", what=what, repair=f"Any call drops it: {next_step.call('status')}")
    kind = "" if isinstance(error, CompatStoreError) else f"{type(error).__name__}: "
    what = f"the check could not be carried out: {kind}{told(error)}"
    return Finding(check=name, severity="error", what=what, repair=fix or "Restore the table's files from a backup.")
