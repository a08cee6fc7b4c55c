"""Requests of a gallery in an object store, and commits of two processes at once.

Measured once, by `benchmarks/object_store.py` of the commits that these rows name, with servers on the same machine:
moto (S3), rclone, azurite, google (moto by a proxy). Whether `create` takes each; what two processes lose that append
through Lance alone, and what they lose that add to a gallery; the requests of calls. `lives --server` goes on with
processes that write at once, `tests/test_object_store.py` with requests of reads and servers that lose commits.
"""

from __future__ import annotations

from benchmarks.pages import markdown
from benchmarks.record import Record


def request_table(record: Record) -> str:
    """Requests of each call."""
    keys = ("list", "head", "get", "put", "list_bytes")
    head = ("call", "list", "HEAD", "GET", "PUT", "bytes of a list")
    return markdown(head, [(row["call"], *(f"{row[key]:g}" for key in keys)) for row in record.rows if "call" in row])


def commit_table(record: Record) -> str:
    """Confirmed, lost and doubled commits by server."""
    keys = ("server", "through", "create", "confirmed", "refused", "lost", "doubled")
    return markdown(keys, [[row[key] for key in keys] for row in record.rows if "server" in row])


TABLES = {"requests": request_table, "commits": commit_table}
