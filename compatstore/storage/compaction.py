"""Compaction and clean-up: small fragments are merged, and versions and files that nothing needs are removed.

Lance rewrites the rows of some fragments into a new one and replaces the fragments in one commit. That commit fails
when another commit changed one of them. Deleted rows and the data of dropped columns are not copied. Parts of indexes
that cover the fragments are rewritten too, which may cost more than the rows. So only fragments that are covered by the
same parts are merged with each other, and the rows of these parts count as work.

Lance makes a version with each commit and keeps them all. A version that a tag pins is kept. Files that no version
names may be those of a write that is under way, so only old ones count as orphans.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowField
from compatstore.storage.failures import require_room, require_whole
from compatstore.storage.files import Files
from compatstore.storage.fragments import PAGE_BYTES
from compatstore.storage.moves import row_bytes
from compatstore.storage.snapshot import Compaction, CompactionTask, Snapshot, lance
from compatstore.storage.store import Conflict, Store, storage_errors

FEWEST = 4  # fragments that a write merges
SMALL_ROWS = 1_024  # rewritten again and again for less than a commit costs
LARGEST_ROWS = 65_536  # so that the write that happens to bring a merge about does not take long
REMAPPED = 4  # times as many rows as are merged may be rewritten in indexes
FULL_ROWS = 1_048_576  # of a fragment that needs no others, as Lance has it
DELETED_SHARE = 0.1  # of a fragment's rows, from which on it is rewritten, as Lance has it


@dataclass(frozen=True)
class Piece:
    """A fragment as compaction sees it.

    Attributes:
        id: Its number.
        rows: Live rows.
        deleted: Deleted rows that its files still hold.
        dropped: True if its files still hold a column that was dropped.
    """

    id: int
    rows: int
    deleted: int = 0
    dropped: bool = False


@dataclass(frozen=True)
class Group:
    """Fragments that the same parts of indexes hold.

    Attributes:
        pieces: The fragments.
        indexed_rows: Rows that those parts of indexes hold, all together; 0 if no index holds the fragments.
    """

    pieces: tuple[Piece, ...]
    indexed_rows: int

    @property
    def rows(self) -> int:
        """Live rows."""
        return sum(piece.rows for piece in self.pieces)

    def worth_merging(self) -> tuple[Piece, ...]:
        """The smallest fragments whose merge keeps the total work for n rows at n log n; () if no merge does.

        No fragment holds more than half of the merged rows, so each time a row is rewritten its fragment has at least
        doubled. Below `SMALL_ROWS` that does not matter.
        """
        pieces = sorted(self.pieces, key=lambda piece: piece.rows)
        total = best = 0
        for count, piece in enumerate(pieces, 1):
            total += piece.rows
            if total > LARGEST_ROWS:
                break
            doubles = 2 * piece.rows <= total or (total <= SMALL_ROWS and not self.indexed_rows)
            if count >= FEWEST and doubles and self.indexed_rows <= REMAPPED * total:
                best = count
        return tuple(pieces[:best])

    def to_rewrite(self) -> Iterator[tuple[Piece, ...]]:
        """Groups of fragments to merge or to rewrite; no result is larger than a full fragment."""
        together: list[Piece] = []
        for piece in self.pieces:
            if piece.rows >= FULL_ROWS:
                if _wasteful(piece):
                    yield (piece,)
                continue
            if sum(other.rows for other in together) + piece.rows > FULL_ROWS:
                yield from _worthwhile(together)
                together = []
            together.append(piece)
        yield from _worthwhile(together)


def _wasteful(piece: Piece) -> bool:
    return piece.dropped or piece.deleted > DELETED_SHARE * (piece.rows + piece.deleted)


def _worthwhile(pieces: list[Piece]) -> Iterator[tuple[Piece, ...]]:
    if len(pieces) > 1 or any(_wasteful(piece) for piece in pieces):
        yield tuple(pieces)


def groups(table: Snapshot) -> list[Group]:
    """The fragments of an open table, by the parts of indexes that hold them."""
    known = set(_field_ids(table.lance_schema.fields()))
    pieces = {}
    for fragment in table.get_fragments():
        data = fragment.metadata
        dropped = any(field >= 0 and field not in known for file in data.files for field in file.fields)
        pieces[data.id] = Piece(data.id, data.num_rows, data.num_deletions, dropped)
    held_by: dict[int, list[int]] = {fragment: [] for fragment in pieces}
    rows_in: list[int] = []
    for index in table.describe_indices():
        for segment in index.segments:
            held = [fragment for fragment in segment.fragment_ids if fragment in pieces]
            for fragment in held:
                held_by[fragment].append(len(rows_in))
            rows_in.append(sum(pieces[fragment].rows for fragment in held))
    alike: dict[tuple[int, ...], list[Piece]] = {}
    for fragment, parts in held_by.items():
        alike.setdefault(tuple(parts), []).append(pieces[fragment])
    return [Group(tuple(found), sum(rows_in[part] for part in parts)) for parts, found in alike.items()]


def _field_ids(fields: Iterable[ArrowField]) -> Iterator[int]:
    """Numbers of fields and of the fields in them."""
    for field in fields:
        yield field.id()
        yield from _field_ids(field.children())


def merge(store: Store, table: Snapshot, pieces: Sequence[Piece]) -> int:
    """Rewrite the rows of some fragments of one group as one fragment, in one commit.

    Args:
        store: The table.
        table: A handle of it for writing, on the version that the fragments are of; it moves on.
        pieces: The fragments.

    Returns:
        Fragments that there are fewer of now.

    Raises:
        Conflict: Another writer changed one of them; nothing was committed.
        StorageError: The disk is full.
    """
    operation = f"merge {len(pieces)} fragments of {store.location.name}"
    with storage_errors(operation, store.location):
        require_room(store.location, int(sum(piece.rows for piece in pieces) * row_bytes(table)), operation)
        result = _task(table, pieces).execute(table)
        for fragment in json.loads(result.json())["new_fragments"]:
            for file in fragment["files"]:
                require_whole(store.location, f"data/{file['path']}")
        metrics = Compaction.commit(table, [result])
    return int(metrics.fragments_removed - metrics.fragments_added)


def _task(table: Snapshot, pieces: Sequence[Piece]) -> Any:
    """Lance's task for these fragments: its own planner merges neighbours only, and keeps dropped columns."""
    in_order = sorted(piece.id for piece in pieces)  # Lance notes the rows' addresses in ascending order
    found = [table.get_fragment(number) for number in in_order]
    if gone := [number for number, fragment in zip(in_order, found, strict=True) if fragment is None]:
        raise Conflict(f"fragments {gone} are no longer there")  # a commit of ours has taken others' commits along
    fragments = [fragment.metadata.to_json() for fragment in found if fragment is not None]
    # Lance collects batches here until they are 8 MiB: small ones make pages that are hardly larger.
    at_once = max(int(PAGE_BYTES / 8 / max(row_bytes(table), 1)), 1)
    options = {**_options(), "batch_size": at_once, "data_storage_version": table.data_storage_version}
    task = {"task": {"fragments": fragments}, "read_version": table.version, "options": options}
    return CompactionTask.from_json(json.dumps(task))


@cache
def _options() -> dict[str, Any]:
    """The settings of a task as this version of Lance writes them, taken from a task that it planned."""
    tiny = lance.write_dataset(pa.table({"n": [0, 1]}), "memory://compaction", max_rows_per_file=1)
    (task,) = Compaction.plan(tiny, {"target_rows_per_fragment": 1 << 40}).tasks
    return dict(json.loads(task.json())["options"])


KEPT = 128  # the latest, by themselves: readers and writers that are at it have one of these
MOST = 2 * KEPT


@dataclass(frozen=True)
class Freed:
    """Removed versions and files, or those to remove.

    Attributes:
        versions: Table versions.
        files: Files of theirs alone.
        bytes: Their size.
    """

    versions: int = 0
    files: int = 0
    bytes: int = 0


def count_versions(store: Store) -> int:
    """Number of versions that the table keeps, by one listing of a folder."""
    return sum(name.endswith(".manifest") for name in Files(store.location, "_versions").names())


def drop_all_but_the_latest(store: Store) -> Freed:
    """Remove versions until `KEPT` are left, if there are more than `MOST`."""
    if count_versions(store) <= MOST:
        return Freed()
    with storage_errors(f"remove old versions of {store.location.name}", store.location):
        return _freed(store.writer().cleanup_old_versions(retain_versions=KEPT, error_if_tagged_old_versions=False))


def drop_older(store: Store, age: timedelta, *, dry_run: bool = False) -> Freed:
    """Remove the versions that are older than this, or say what would go.

    Args:
        store: The table.
        age: Minimum age of removed ones; the latest always stays.
        dry_run: Remove nothing.
    """
    table = store.writer()
    clean_up = table.explain_cleanup_old_versions if dry_run else table.cleanup_old_versions
    with storage_errors(f"remove old versions of {store.location.name}", store.location):
        return _freed(clean_up(older_than=age, error_if_tagged_old_versions=False))


def _freed(stats: Any) -> Freed:
    """Lance's statistics; its explanation keeps them one step further down."""
    stats = getattr(stats, "stats", stats)
    files = stats.data_files_removed + stats.transaction_files_removed + stats.index_files_removed
    return Freed(stats.old_versions, stats.old_versions + files + stats.deletion_files_removed, stats.bytes_removed)


FOLDERS = ("data/", "_deletions/", "_indices/", "_transactions/")


@dataclass(frozen=True)
class Stored:
    """A file of a table.

    Attributes:
        path: From the table's folder.
        bytes: Its size.
        changed: Time of the last write.
    """

    path: str
    bytes: int
    changed: datetime


def all_files(store: Store) -> list[Stored]:
    """Every file in the table's folder, those beside the table included."""
    with storage_errors(f"list the files of {store.location.name}"):
        found = store.snapshot().all_files().read_all()
    rows = zip(*(found[name].to_pylist() for name in ("path", "size_bytes", "last_modified")), strict=True)
    return [Stored(*row) for row in rows]


def orphans(store: Store, age: timedelta) -> list[Stored]:
    """Files of Lance's that no version names, and that were written longer ago than this."""
    before = datetime.now(UTC) - age
    old = [file for file in all_files(store) if file.path.startswith(FOLDERS) and file.changed < before]
    if not old:
        return []
    with storage_errors(f"list the files that versions of {store.location.name} name"):
        named = store.snapshot().tracked_files().read_all()["path"]
    known = pc.is_in(pa.array([file.path for file in old]), value_set=named.cast(pa.string()).combine_chunks())
    return [file for file, named in zip(old, known.to_pylist(), strict=True) if not named]


def remove(store: Store, files: list[Stored]) -> None:
    """Remove files of the table's folder."""
    folder = Files(store.location)
    with storage_errors(f"remove files of {store.location.name}"):
        for file in files:
            folder.delete(file.path)
