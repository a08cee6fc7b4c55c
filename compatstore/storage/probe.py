"""What `doctor` tries: whether a place can be written to, and whether pylance and lancedb read each other."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from compatstore.errors import StorageError
from compatstore.storage.files import Files
from compatstore.storage.lance_engine import lance
from compatstore.storage.location import Location

WORDS = b"written by compatstore doctor to see whether it can be; safe to remove"


def probe(location: Location) -> float | None:
    """Write a small file into the table's folder and remove it; nothing is left.

    Returns:
        When the place's own clock says that it was written, in seconds since 1970; None where it does not say.

    Raises:
        StorageError: It cannot be written.
    """
    files, name = Files(location), f"probe-{uuid.uuid4().hex}"
    try:
        try:
            files.write(name, WORDS)
            written = files.changed(name)
        finally:
            files.delete(name)
    except OSError as error:
        raise StorageError(
            f"write beside {location.name}",
            expected="a folder that can be written",
            found=str(error),
            fix="Check permissions and free space. Searches and other verbs that only read still work.",
        ) from error
    return written


VECTORS = [[1.0, 2.0], [3.0, 4.0], None]


def read_each_other(folder: str) -> None:
    """Write a small table with each library and read it with the other.

    Args:
        folder: An empty folder to do it in.

    Raises:
        StorageError: One of them fails, or reads something else than was written.
    """
    import lancedb

    table = pa.table({"id": ["a", "b", "c"], "v": pa.array(VECTORS, pa.list_(pa.float32(), 2))})
    asked = "let pylance and lancedb read each other's tables"
    fix = 'Install a pair that does: pip install --upgrade "compatstore"'
    try:
        lance.write_dataset(table, Path(folder, "pylance.lance"))
        database = lancedb.connect(folder)
        database.create_table("lancedb", table)
        read = {
            "lancedb": database.open_table("pylance").to_arrow(),
            "pylance": lance.dataset(Path(folder, "lancedb.lance")).to_table(),
        }
    except (OSError, ValueError, RuntimeError) as error:
        raise StorageError(asked, expected="both to succeed", found=str(error), fix=fix) from error
    for reader, found in read.items():
        if not found.equals(table):
            raise StorageError(asked, expected=f"{table.num_rows} equal rows", found=f"others in {reader}", fix=fix)
