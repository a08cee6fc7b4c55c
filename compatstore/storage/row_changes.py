"""Which rows of some columns changed between two versions of a table, by the names of its files.

Data files and marks of deleted rows never change. So a fragment whose columns lie in the same files has the same
values, and one with other marks has lost rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compatstore.arrays import ArrowBatch, Digests
from compatstore.storage.fragments import field_ids
from compatstore.storage.ids import ADDRESS
from compatstore.storage.snapshot import Snapshot

_BATCH_ROWS = 8192


@dataclass(frozen=True)
class HeldFragment:
    """What was read of a fragment.

    Attributes:
        files: Which file holds which of the columns.
        deleted: Names its deleted rows.
    """

    files: frozenset[str]
    deleted: str


def held_fragments(snapshot: Snapshot, columns: Iterable[str]) -> dict[int, HeldFragment]:
    """The fragments of a table version, by their numbers, as what some columns of them are read from."""
    wanted, numbers = frozenset(columns), field_ids(snapshot)
    fields = {numbers[name] for name in wanted}
    held = {}
    for fragment in snapshot.get_fragments():
        metadata = fragment.metadata
        files = {f"{file.path}:{field}" for file in metadata.files for field in file.fields if field in fields}
        files |= {f"overlay:{overlay!r}" for overlay in getattr(metadata, "overlays", None) or ()}
        marks = metadata.deletion_file
        deleted = "" if marks is None else f"{marks.read_version}-{marks.id}"
        held[fragment.fragment_id] = HeldFragment(frozenset(files), deleted)
    return held


@dataclass(frozen=True)
class ChangedFragments:
    """How the fragments of one table version differ from those of an earlier one, by their numbers.

    Attributes:
        left: Fragments whose rows, as they were read, count no more.
        shrunk: Fragments that lost rows, and changed in nothing else.
        fresh: Fragments that are to be read.
    """

    left: tuple[int, ...]
    shrunk: tuple[int, ...]
    fresh: tuple[int, ...]

    @classmethod
    def between(cls, before: Mapping[int, HeldFragment], now: Mapping[int, HeldFragment]) -> ChangedFragments:
        """Compare two states of `held_fragments`."""
        kept = {number for number, held in before.items() if number in now and now[number].files == held.files}
        return cls(
            left=tuple(before.keys() - kept),
            shrunk=tuple(number for number in sorted(kept) if now[number].deleted != before[number].deleted),
            fresh=tuple(sorted(now.keys() - kept)),
        )


def read_fragments(
    snapshot: Snapshot, numbers: Sequence[int], columns: Sequence[str], condition: str | None
) -> Iterator[ArrowBatch]:
    """Rows of some fragments that fulfil an SQL condition, in order, with `_rowaddr`."""
    if not numbers:
        return
    scanner = snapshot.scanner(
        fragments=[snapshot.get_fragment(number) for number in numbers],
        columns=list(columns),
        filter=condition,
        batch_size=_BATCH_ROWS,
        scan_in_order=True,
        with_row_address=True,
    )
    yield from scanner.to_batches()


def addresses(snapshot: Snapshot, condition: str | None = None, numbers: Sequence[int] | None = None) -> Digests:
    """Addresses of rows that fulfil an SQL condition, of all fragments or of some: (n,) uint64, in any order."""
    chosen = None if numbers is None else [snapshot.get_fragment(number) for number in numbers]
    found = snapshot.scanner(columns=[], filter=condition, fragments=chosen, with_row_address=True).to_table()
    rows: Digests = found[ADDRESS].to_numpy()
    return rows
