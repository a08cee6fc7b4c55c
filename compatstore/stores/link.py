"""The store behind a gallery: made by a mirror, and followed by the verbs of an upgrade.

An upgrade pulls before it begins, pushes as it goes, and syncs at its end. A cutover syncs, switches the gallery and
then the store; a rollback switches both back; `abort` and `retire` remove what was made in the store. Each can be
killed between any two steps: which vectors the app reads is asked of the store, and the same call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from compatstore import next_step
from compatstore.boundary import shown
from compatstore.errors import AlreadyExists, InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.location import Location
from compatstore.storage.store import Store as Table
from compatstore.stores import tracking
from compatstore.stores.address import Address
from compatstore.stores.both_sides import HELD
from compatstore.stores.ledger import PLACED, SWITCHED, Link, MirrorLedger
from compatstore.stores.pull import SWITCHING
from compatstore.stores.store import Description, Parts, VectorStore
from compatstore.stores.sync import Sync
from compatstore.upgrade.plan import Plan, Step
from compatstore.upgrade.progress import Observer, Progress
from compatstore.upgrade.states import VersionChange
from compatstore.upgrade.status import StoreStatus
from compatstore.versions import EmbeddingVersion

BETWEEN, SHARE = 20.0, 4  # seconds at least, and times the last sync's, from one sync to the next during an upgrade
CATCH_UPS = 3  # with rows that an app writes during a cutover, at most
FOLDER = "_compatstore"


def folder_of(location: Location) -> Path | None:
    """Folder of a gallery's ledger; None for a gallery that can have none, in an object store."""
    return Path(location.child(FOLDER)) if location.is_local else None


def is_mirrored(catalog: Catalog) -> bool:
    """True if a gallery is the mirror of a store."""
    folder = folder_of(catalog.store.location)
    return folder is not None and MirrorLedger.is_in(folder)


def apart(catalog: Catalog) -> Catalog:
    """A gallery's catalog with a handle of the table of its own, as another process has it."""
    return catalog.at(Table.open(catalog.store.location))


@contextmanager
def syncing(catalog: Catalog, caller: Observer, *, address: str = "") -> Iterator[Sync]:
    """Connect to the store of a mirrored gallery, and keep other syncs out.

    Args:
        catalog: The gallery.
        caller: Progress and stop.
        address: Address of the same collection with a password, for this call; the kept one by default.

    Raises:
        UpgradeError: The gallery mirrors no store.
        StorageError: Another process syncs it, or the store cannot be reached.
    """
    folder = folder_of(catalog.store.location)
    link = None
    if folder is not None and MirrorLedger.is_in(folder):
        with closing(MirrorLedger(folder)) as ledger:
            link = ledger.link()
    if folder is None or link is None:
        mirroring = next_step.either(
            shell="compatstore mirror STORE NEW_GALLERY", python="cs.Gallery.mirror(store, path)"
        )
        fix = f"Mirror a store: {mirroring}"
        found = "a gallery without one"
        raise UpgradeError("sync with a store", expected="a gallery that mirrors a store", found=found, fix=fix)
    with closing(MirrorLedger(folder)) as ledger, ledger.alone():
        _drop_retired(ledger)
        link = ledger.link() or link  # another process may have settled a target meanwhile
        with closing(Address.of(address or link.store).open()) as store:
            about = store.describe(link.parts)
            registry = catalog.recorded()
            for target, state in ledger.targets().items():
                # A kill came before the place was made: the upgrade makes it when it begins.
                if registry.record(target).columns is None and not store.has(target):
                    ledger.displace(target)
                    continue
                # Without a switch the app reads the target by another name, as the cutover said.
                if state == SWITCHED and not about.switch:
                    store.switch(target)
                now = SWITCHED if store.is_switched(target) else PLACED
                if now != state:
                    ledger.place(target, now)
            yield Sync(apart(catalog), store, ledger, link, caller)


def _drop_retired(ledger: MirrorLedger) -> None:
    """Remove vectors of a retired version from the store, if a call was killed before it had."""
    retired = ledger.retired()
    if retired is None:
        return
    link, target = retired
    with suppress(NotFound), closing(Address.of(link.store).open()) as store:  # removed, and its collection with it
        if not store.describe(link.parts).switch:
            store.switch(target)
        store.drop_source(target)
    ledger.forget_retired()


def describe(
    store: str, *, id: str = "", vector: str = "", source: str | None = None, metadata: Sequence[str] = ()
) -> Description:
    """Describe a collection, as a mirror would read it; read-only.

    Args:
        store: Its address.
        id: Column of the ids, where the store does not say.
        vector: Column of the vectors, where there are several.
        source: Column of the texts or paths to embed.
        metadata: Columns to copy.

    Raises:
        NotFound: There is no such collection or column.
        InvalidInput: It cannot be mirrored.
    """
    with closing(Address.of(store).open()) as opened:
        return _described(opened, Parts(id, vector, source, tuple(metadata)))


def _described(store: VectorStore, wanted: Parts) -> Description:
    about = store.describe(wanted)
    for name in (wanted.source, *wanted.metadata):
        if name is not None and name not in about.columns:
            found = f"{shown(name)}, among {', '.join(about.columns) or 'none'}"
            raise NotFound(f"mirror {about.address}", expected="a column of the collection", found=found)
    parts = replace(about.parts, source=wanted.source or about.parts.source, metadata=wanted.metadata)
    return replace(about, parts=parts)


def version_of(about: Description, version: str | EmbeddingVersion) -> EmbeddingVersion:
    """The version of a store's vectors: one of this name, or one that fits.

    Raises:
        InvalidInput: The store is empty and says no length, or the version has another length or metric.
    """
    if isinstance(version, EmbeddingVersion):
        said = (version.dim, version.metric)
        if said != (about.dim or version.dim, about.metric):
            expected, found = f"{about.dim} values, {about.metric}", f"{version.dim} values, {version.metric}"
            raise InvalidInput(f"mirror {about.address} as {version.name}", expected=expected, found=found)
        return version
    if not about.dim:
        fix = "Mirror it when it has rows, or name the version with its length: EmbeddingVersion(NAME, dim=384)"
        raise InvalidInput(f"mirror {about.address}", expected="vectors", found="an empty collection", fix=fix)
    return EmbeddingVersion(version, dim=about.dim, metric=about.metric)


def begin(catalog: Catalog, store: str, about: Description, source: str) -> None:
    """Link a gallery to the collection that it is to mirror; a no-op if it mirrors it already.

    Raises:
        AlreadyExists: It mirrors another one, or holds items of its own.
        InvalidInput: It lies in an object store.
    """
    folder, operation = folder_of(catalog.store.location), f"mirror {about.address}"
    if folder is None:
        found = catalog.store.location.name
        raise InvalidInput(operation, expected="a gallery on a disk, where a ledger can lie beside it", found=found)
    link = Link(str(Address.of(store)), about.parts, source)
    known = None
    if MirrorLedger.is_in(folder):
        with closing(MirrorLedger(folder)) as ledger:
            known = ledger.link()
    if known is None and catalog.store.count():
        found = f"a gallery of {catalog.store.count()} items that mirrors nothing"
        raise AlreadyExists(operation, expected="a new place", found=found, fix="Name another place.")
    if known is not None and known != link:
        found = f"the mirror of {known.store}, version {known.source}, {known.parts}"
        fix = "Name another place."
        raise AlreadyExists(operation, expected="a new place, or the same mirror", found=found, fix=fix)
    if known is None:
        with closing(MirrorLedger(folder)) as ledger:
            ledger.keep(link)


def planned(catalog: Catalog, target: str, plan: Plan) -> Plan:
    """A plan with what an upgrade writes to the store, and what is not one step there; read-only."""
    if not is_mirrored(catalog):
        return plan
    with syncing(catalog, Observer()) as sync:
        about = sync.store.describe(sync.link.parts)
        rows, dim = plan.rows - sync.ledger.count(target), catalog.registry().record(target).dim
        note = f"write vectors of {target} to {about.address}, in a {about.beside} beside the app's"
        push = Step("push", rows, rows * dim * 4, None, note)
        cutover = [step for step in plan.steps if step.name == "cutover"]
        steps = (*(step for step in plan.steps if step.name != "cutover"), push, *cutover)
        return replace(plan, steps=steps, warnings=(*plan.warnings, *_not_in_one_step(about), *about.notes))


def _not_in_one_step(about: Description) -> Iterator[str]:
    if not about.is_conditional:
        yield (
            "the store cannot write on a condition: a row that the app changes at the moment of its write has a stale "
            "vector until the next sync"
        )
    if not about.switch:
        yield "the store has no switch: the app names the new vectors itself, as cutover says"
    elif not about.is_atomic:
        yield "the store's switch is two steps: for a moment a reader finds neither name"


@contextmanager
def follow(catalog: Catalog, target: str, caller: Observer) -> Iterator[Observer]:
    """Sync around an upgrade: pull, make the target's place, push as it goes, and sync at its end.

    Yields:
        The observer of the upgrade; the caller itself for a gallery that mirrors no store.

    Raises:
        AlreadyExists: The store has something else of the name of the target's place.
    """
    if not is_mirrored(catalog):
        yield caller
        return
    with syncing(catalog, caller) as sync:
        sync.pull()
        _place(sync, target)
        yield Observer(_Pushing(sync, caller).report, caller.should_stop)
        sync.run()


def _place(sync: Sync, target: str) -> None:
    """Make the place of a target's vectors; it is recorded before it is made, so that a kill leaves none unknown."""
    if target not in sync.ledger.targets():
        if sync.store.has(target):
            operation = f"make a place for {target} in {sync.link.store}"
            found = "one of that name that compatstore did not make"
            fix = "Give the version another name, or remove it there."
            raise AlreadyExists(operation, expected="a free name", found=found, fix=fix)
        sync.ledger.place(target)
    version = sync.catalog.registry().record(target).version()
    sync.store.prepare(target, version.dim, version.metric)


class _Pushing:
    """Progress of an upgrade that syncs from time to time.

    Args:
        sync: The store.
        caller: Progress and stop of the upgrade.
    """

    def __init__(self, sync: Sync, caller: Observer) -> None:
        self._sync, self._caller = sync, caller
        self._next, self._busy = time.monotonic() + BETWEEN, False

    def report(self, at: Progress) -> None:
        """Report progress, and sync if it is time. A store that cannot be reached is tried again later."""
        self._caller.report(at)
        if self._busy or time.monotonic() < self._next or at.step not in ("hop", "backfill"):
            return
        self._busy, began = True, time.monotonic()
        try:
            with suppress(StorageError):
                self._sync.run()
        finally:
            self._busy = False
            self._next = time.monotonic() + max(BETWEEN, SHARE * (time.monotonic() - began))


def switch(
    catalog: Catalog,
    target: str,
    caller: Observer,
    cut_over: Callable[[], VersionChange],
    catch_up: Callable[[], VersionChange],
) -> VersionChange:
    """Switch a store after its gallery: sync, cut over, sync what the cutover caught up with, then switch the app.

    Args:
        catalog: The gallery.
        target: Version to switch to.
        caller: Progress and stop.
        cut_over: Makes it the gallery's active version, after catching up with new rows.
        catch_up: The same once it is active, with rows that the app has written since; refuses none of them.

    Returns:
        The change, with what the app reads now, or what it is to change.
    """
    if not is_mirrored(catalog):
        return cut_over()
    with syncing(catalog, caller) as sync:
        if target not in sync.ledger.targets():
            return cut_over()
        if sync.switched == target:
            change = cut_over()
        else:
            sync.run()
            change = cut_over()
            _push_all(sync, target, catch_up)
            sync.hold(target)
            sync.ledger.note(SWITCHING, target)
        about = sync.store.describe(sync.link.parts)
        sync.store.switch(target)
        sync.ledger.place(target, SWITCHED)
        if sync.pull_changed_before_switch():
            catch_up()
            sync.run()
        says = sync.store.app_change(target) if not about.switch else f"{about.address} holds {target} now."
        return replace(change, store=says)


def _push_all(sync: Sync, target: str, catch_up: Callable[[], VersionChange]) -> None:
    """Sync until no row is without its target vector; a few times, as the app may go on writing."""
    for _ in range(CATCH_UPS):
        before = sync.pulled
        sync.run()
        if sync.pulled == before:
            return
        catch_up()
    sync.push(target)


@contextmanager
def switch_back(catalog: Catalog) -> Iterator[None]:
    """Switch a store back after its gallery: sync, so that rows written since are kept, then switch the app."""
    if not is_mirrored(catalog):
        yield
        return
    with syncing(catalog, Observer()) as sync:
        target = sync.switched
        if target is not None and catalog.registry().active == target:
            sync.run()
        yield
        if target is not None:
            if (
                sync.store.before(target) is not None
            ):  # vectors that the app writes until then stay in the target's place
                sync.ledger.mark_unconfirmed(target)
            sync.store.switch_back(target)
            sync.ledger.place(target, PLACED)


def abandon(catalog: Catalog, version: str, end: Callable[[], VersionChange]) -> VersionChange:
    """End a version in the gallery, then remove its place from the store; the app's rows and vectors stay.

    Args:
        catalog: The gallery.
        version: A target whose upgrade ends, or the version before a cutover.
        end: Ends it in the gallery; refused for a target that a killed call has ended there, and not in the store.
    """
    if not is_mirrored(catalog):
        return end()
    with syncing(catalog, Observer()) as sync:
        is_placed = sync.ledger.targets().get(version) == PLACED
        registry = catalog.registry()
        run, is_over = registry.runs.get(version), registry.record(version).columns is None
        is_settled = is_over and sync.switched is not None and version == sync.link.source
        if is_settled or (is_placed and is_over and (run is None or not run.open)):  # ended here by a killed call
            active = catalog.registry().active
            change = VersionChange(active, active, 0, changed=False)
        else:
            change = end()
        if is_placed:
            _let_go(sync, version)
            sync.store.drop(version)
            sync.ledger.displace(version)
        return change


def _let_go(sync: Sync, target: str) -> None:
    """End the tracking of changes with the last upgrade; else make it of the columns that stay."""
    if sync.ledger.targets().keys() - {target}:
        tracking.renew(sync.ledger, sync.store, sync.link.parts, sync.catalog.store.location.name)
    else:
        tracking.end(sync.ledger, sync.store)


def settle(catalog: Catalog, version: str, *, drop_source: bool) -> str:
    """After the retirement of the version before a cutover: the target is the app's own from now on.

    Args:
        catalog: The gallery.
        version: The retired version.
        drop_source: Remove its vectors from the store too.

    Returns:
        A sentence on what stays in the store; "" if nothing does.
    """
    if not is_mirrored(catalog):
        return ""
    with syncing(catalog, Observer()) as sync:
        target = sync.switched
        if version != sync.link.source or target is None:
            return ""
        address, named = sync.store.place(target)
        parts = replace(sync.link.parts, id=named.id, vector=named.vector)
        settled = replace(sync.link, store=address, parts=parts, source=target)
        _let_go(sync, target)
        sync.ledger.settle(settled, f"{target}{HELD}", drop_source=drop_source)
        if drop_source:
            sync.store.drop_source(target)
            sync.ledger.forget_retired()
        return "" if drop_source else f"The vectors of {version} are still in {sync.link.store}: they are the app's."


def read_store_status(catalog: Catalog) -> StoreStatus | None:
    """The store of a gallery; None if it mirrors none."""
    folder = folder_of(catalog.store.location)
    if folder is None or not MirrorLedger.is_in(folder):
        return None
    with closing(MirrorLedger(folder)) as ledger:
        link = ledger.link()
        if link is None:
            return None
        targets = ledger.targets()
        held = {target: ledger.count(target) for target in targets}
        switched = next((target for target, state in targets.items() if state == SWITCHED), "")
        is_tracked = bool(ledger.noted(tracking.TRACKED))
        return StoreStatus(link.store, ledger.items(), link.source, held, switched, is_tracked)
