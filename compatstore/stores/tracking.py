"""Syncs that read only the rows that the app changed, from a store that records their ids (a change capture).

By default a sync compares all rows with the ledger. With a change capture it reads the recorded ids, pulls those rows,
and then removes the records. A record that is removed too late is read twice, which changes nothing.

All rows are compared whenever it is not certain that every change was recorded: on the first sync, after a switch of
the columns that are read, and if the capture or the table is not as the last sync left it. Each sync that removes
records leaves a random token in the store and in the ledger. The tokens differ if either side was restored, copied, or
lost its last writes in a crash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

from compatstore import next_step
from compatstore.arrays import Id
from compatstore.errors import InvalidInput
from compatstore.stores.ledger import MirrorLedger
from compatstore.stores.store import BATCH, Description, Parts, VectorStore

TRACKED = "tracked"  # note of the ledger: name of the change capture; "" if changes are not tracked
_LAST_PULL = "tracked pull"  # note of the ledger: state of the capture that the last sync left


@dataclass(frozen=True)
class CaptureState:
    """State of a change capture.

    Attributes:
        fault: Why changes are not recorded, a clause; "" if they are.
        shape: Digest of what records changes and of the files of the collection. It differs from an earlier one if
            rows may have changed without a record meanwhile.
        token: Text that the last reader left; "" if there is none.
        last: Number of the newest record; 0 if there is none.
    """

    fault: str = ""
    shape: str = ""
    token: str = ""
    last: int = 0


class ChangeCapture(Protocol):
    """Records of the rows that an app changes, kept by the store in the app's own transactions.

    Transactions may commit in another order than that of the numbers of their records.
    """

    def make(self, parts: Parts, reader: str) -> None:
        """Make the capture in one step, in place of one that is there.

        Args:
            parts: Columns whose changes are recorded.
            reader: Name of the gallery, for people who find the capture.

        Raises:
            StorageError: The store refuses, or a lock was not to be had.
            InvalidInput: Changes of this collection cannot be recorded.
        """
        ...

    def state(self, parts: Parts) -> CaptureState:
        """Check that all changes of these columns are recorded; read-only."""
        ...

    def changes(self, last: int, limit: int) -> tuple[list[int], list[Id]]:
        """Numbers of the first records up to a last one, and the ids in them, each once; read-only."""
        ...

    def forget(self, token: str, numbers: Sequence[int] | None = None) -> None:
        """Remove records, those of some numbers or all that are committed, and leave a token; in one step."""
        ...

    def drop(self) -> None:
        """Remove the capture and all that belongs to it; idempotent."""
        ...

    def others(self) -> list[tuple[str, str]]:
        """Other captures of this collection, or of one that is gone: (what it is, how to remove it)."""
        ...


@runtime_checkable
class CapturingStore(Protocol):
    """A `VectorStore` that can record changes."""

    def capture(self, name: str) -> ChangeCapture:
        """The change capture of a name, made or not; "" for one that is never made."""
        ...


@dataclass(frozen=True)
class _LastPull:
    """State of a capture as a sync left it.

    Attributes:
        key: Of the place in the ledger that all rows were compared with.
        tokens: Of the last sync that removed records: the one before and the one after, as a kill may come between.
            Empty if all rows are to be compared.
        shape: Of the capture.
    """

    key: str = ""
    tokens: tuple[str, ...] = ()
    shape: str = ""

    @classmethod
    def read(cls, ledger: MirrorLedger) -> _LastPull:
        """The state in a ledger."""
        noted = ledger.noted(_LAST_PULL)
        if not noted:
            return cls()
        values = json.loads(noted)
        return cls(values["key"], tuple(values["tokens"]), values["shape"])


def require_capture(about: Description) -> None:
    """Refuse a store that cannot record changes.

    Raises:
        InvalidInput: It cannot.
    """
    if not about.tracking:
        raise InvalidInput(
            f"track changes of {about.address}",
            expected="a store that can record them: PostgreSQL",
            found="one that cannot",
            fix="Leave the option out: each sync compares all rows then.",
        )


def choose(ledger: MirrorLedger, store: VectorStore, *, track: bool) -> None:
    """Track changes from the next sync on, which compares all rows first; or drop the capture."""
    if not track:
        end(ledger, store)
        return
    ledger.note(_LAST_PULL, "")
    if not ledger.noted(TRACKED):  # recorded before it is made, so that a kill leaves none unknown
        ledger.note(TRACKED, secrets.token_hex(6))


def capture_of(ledger: MirrorLedger, store: VectorStore) -> ChangeCapture | None:
    """The change capture of a mirror; None if changes are not tracked."""
    name = ledger.noted(TRACKED)
    return store.capture(name) if name and isinstance(store, CapturingStore) else None


def renew(ledger: MirrorLedger, store: VectorStore, parts: Parts, reader: str) -> None:
    """Make the capture of a mirror again, before a column that it compares is dropped; the next sync compares all."""
    capture = capture_of(ledger, store)
    if capture is not None:
        ledger.note(_LAST_PULL, "")
        capture.make(parts, reader)


def comparing_all() -> str:
    """The call that makes the capture again and compares all rows."""
    return next_step.either(
        shell=f"{next_step.command('mirror', 'STORE', 'GALLERY')} --track",
        python="cs.Gallery.mirror(store, path, track=True)",
    )


def faults(ledger: MirrorLedger, store: VectorStore, parts: Parts) -> Iterator[tuple[str, str]]:
    """Faults of change captures, for a verification: (clause, repair)."""
    if not isinstance(store, CapturingStore):
        return
    own = capture_of(ledger, store)
    if own is not None and (fault := own.state(parts).fault):
        yield f"changes are not recorded: {fault}", f"Make the triggers again: {comparing_all()}"
    yield from (own or store.capture("")).others()


def end(ledger: MirrorLedger, store: VectorStore) -> None:
    """Drop the change capture of a mirror; idempotent."""
    capture = capture_of(ledger, store)
    if capture is not None:
        capture.drop()
        ledger.note(TRACKED, "")
        ledger.note(_LAST_PULL, "")


@dataclass(frozen=True)
class TrackedPull:
    """A pull from a store that records changes.

    Attributes:
        ledger: Of the mirror.
        capture: Of the store.
        reader: Name of the gallery.
        parts: Columns that are read.
        key: Of the place in the ledger that rows are compared with.
    """

    ledger: MirrorLedger
    capture: ChangeCapture
    reader: str
    parts: Parts
    key: str

    def run(self, pull_all: Callable[[], None], pull_some: Callable[[Sequence[Id]], None]) -> str:
        """Pull the rows that were recorded, or compare all rows if records may be missing.

        Args:
            pull_all: Compares all rows.
            pull_some: Compares rows of some ids, one of which may be gone.

        Returns:
            Why all rows were compared, a clause; "" if they were not, or if that was expected.
        """
        last_pull = _LastPull.read(self.ledger)
        if last_pull.key != self.key:
            self.capture.make(self.parts, self.reader)
            last_pull = self._keep()
        state = self.capture.state(self.parts)
        gap = _gap(state, last_pull)
        if last_pull.tokens and not gap:
            self._pull_recorded(state, pull_some)
            return ""
        self._keep()  # until all rows are compared
        token = secrets.token_hex(8)
        self.capture.forget(token)  # the comparison reads what these records stand for
        pull_all()
        if not state.fault:
            self._keep(state.shape, token)
        return gap

    def _pull_recorded(self, state: CaptureState, pull_some: Callable[[Sequence[Id]], None]) -> None:
        """Pull in batches; the records of each are removed after the ledger holds its rows."""
        before, is_full = state.token, state.last > 0
        while is_full:
            numbers, ids = self.capture.changes(state.last, BATCH)
            if numbers:
                pull_some(ids)
                after = secrets.token_hex(8)
                self._keep(state.shape, before, after)
                self.capture.forget(after, numbers)
                self._keep(state.shape, after)
                before = after
            is_full = len(numbers) == BATCH

    def _keep(self, shape: str = "", *tokens: str) -> _LastPull:
        last_pull = _LastPull(self.key, tokens, shape)
        self.ledger.note(_LAST_PULL, json.dumps(asdict(last_pull)))
        return last_pull


def _gap(state: CaptureState, last_pull: _LastPull) -> str:
    """Why a change may have no record; "" if each has one, or if none is expected yet."""
    if state.fault or not last_pull.tokens:
        return state.fault
    if state.shape != last_pull.shape:
        return "the table was truncated or rewritten, or its partitions or triggers are others"
    if state.token not in last_pull.tokens:
        return "the database or the gallery was restored or copied, or the server crashed"
    return ""
