"""Requests of a gallery in an object store, and commits of two processes at once.

    python -m benchmarks.object_store [--rounds 1000] [--versions 1200] [--servers moto rclone azurite]

For each server: whether `create` takes it; what two processes lose that append through Lance alone, and what they lose
that add to a gallery, where there can be one; and the requests of a search, in a table of a few versions and in one of
many. The exit code is 1 when a gallery lost anything, or when a server that lost something was taken.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import PurePosixPath

# Before Lance is loaded, here and in the writers.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

import numpy as np

import compatstore as cs
from benchmarks.crashes.place import BucketPath
from benchmarks.crashes.template import KINDS, make_template
from benchmarks.crashes.truth import ENCODERS
from benchmarks.object_store.committing import DIM, NOTHING, Outcome, commit_at_once
from benchmarks.object_store.proxy import Proxy, proxy
from benchmarks.object_store.servers import BUCKET, SERVERS, Server
from compatstore.errors import StorageError
from compatstore.storage.location import locate
from compatstore.storage.probe import require_conditional_writes
from compatstore.storage.recall import recall_now

V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
PLAIN_ROUNDS = 200  # at most: enough to see a store lose some
ROUNDS_OF_A_GALLERY = 100  # a commit lists all versions, and a list of moto's takes its time
SEARCHES = 50
INDEXED = 2_000
FOLDED_FRAGMENTS = 40


def try_server(name: str, rounds: int) -> bool:
    """Print what two processes lose on a server; gives whether that was nothing, or the server was refused."""
    with SERVERS[name]() as server:
        os.environ |= server.environment
        refused = not _creates(server.uri("photos.lance"))
        plain = commit_at_once(server.uri("plain.lance"), min(rounds, PLAIN_ROUNDS), plain=True)
        _print_row(name, "refused" if refused else "taken", "Lance alone", plain)
        if refused:
            return True
        gallery = NOTHING
        for number, begun in enumerate(range(0, rounds, ROUNDS_OF_A_GALLERY)):
            uri = server.uri(f"photos-{number}.lance")
            cs.Gallery.create(uri, V1)
            gallery += commit_at_once(uri, min(ROUNDS_OF_A_GALLERY, rounds - begun), plain=False)
            print(f"{min(begun + ROUNDS_OF_A_GALLERY, rounds)} rounds: {gallery}", file=sys.stderr, flush=True)
        _print_row(name, "taken", "galleries", gallery)
        return not (plain.lost or gallery.lost or gallery.doubled)


def _creates(uri: str) -> bool:
    try:
        cs.Gallery.create(uri, V1)
    except StorageError as error:
        print(error, file=sys.stderr)
        return False
    return True


def _print_row(server: str, create: str, through: str, outcome: Outcome) -> None:
    print(f"| {server}, {through} | {create} | {' | '.join(str(n) for n in asdict(outcome).values())} |", flush=True)


def print_requests(versions: int) -> None:
    """Count the requests of calls, in a gallery of a few table versions and in one of many."""
    with SERVERS["moto"]() as server, proxy(server.endpoint) as seen:
        uri, to = server.uri("counted.lance"), Server(seen.endpoint).options
        place = locate(uri, to)
        _print_counted("look for conditional writes", seen, lambda: require_conditional_writes(place, "benchmark"))
        _print_counted("create, with that look", seen, lambda: cs.Gallery.create(uri, V1, storage_options=to))
        writer = cs.Gallery.open(uri, storage_options=server.options)
        writer.add({"id": ["first"], "vector": np.zeros((1, DIM), np.float32)})
        for number in (0, versions):
            for change in range(number):
                writer._catalog.store.writer().update_config({"benchmark": str(change)})
            reader = cs.Gallery.open(uri, storage_options=to)
            reader.search(np.zeros(DIM, np.float32), 1)
            table = f"{writer.status().table_version} versions"
            _print_counted(f"search, {table}", seen, _search(reader), SEARCHES)
            _print_counted(f"Lance's look at the latest version, {table}", seen, _latest(reader), SEARCHES)


def print_measuring() -> None:
    """Count the requests by which an index is measured."""
    rng = np.random.default_rng(0)
    with SERVERS["moto"]() as server, proxy(server.endpoint) as seen:
        uri, to = server.uri("indexed.lance"), Server(seen.endpoint).options
        writer = cs.Gallery.create(uri, V1, storage_options=server.options)
        ids = [f"item-{number}" for number in range(INDEXED)]
        writer.add({"id": ids, "vector": rng.normal(size=(INDEXED, DIM)).astype(np.float32)})
        writer.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=4)
        reader = cs.Gallery.open(uri, storage_options=to)
        _print_counted("recall of an index", seen, lambda: recall_now(reader._catalog.store, "v1"))


def print_backfill() -> None:
    """Count the requests of a backfill into columns, as in the galleries of `benchmarks.crashes` that are adopted."""
    kind = next(kind for kind in KINDS if kind.adopted)
    with SERVERS["moto"]() as server, proxy(server.endpoint) as seen:
        os.environ |= server.environment
        path = str(make_template(BucketPath(PurePosixPath(BUCKET)), kind, FOLDED_FRAGMENTS, 25))
        cs.Gallery.open(path).upgrade("v2")
        gallery = cs.Gallery.open(path, encoders=ENCODERS, storage_options=Server(seen.endpoint).options)
        asked = f"backfill of a fifth, {FOLDED_FRAGMENTS} adopted fragments"
        _print_counted(asked, seen, lambda: gallery.upgrade("v2", backfill=cs.Backfill(share=0.2)))


def _search(gallery: cs.Gallery) -> Callable[[], object]:
    return lambda: gallery.search(np.zeros(DIM, np.float32), 1)


def _latest(gallery: cs.Gallery) -> Callable[[], object]:
    dataset = gallery._catalog.store._dataset
    return lambda: dataset.checkout_latest()


def _print_counted(name: str, seen: Proxy, call: Callable[[], object], times: int = 1) -> None:
    """Call, and print the requests of one call on average, and the bytes of the answers of the median list."""
    seen.requests.clear()
    for _ in range(times):
        call()
    kinds = Counter(request.kind for request in seen.requests)
    lists = [request.size for request in seen.requests if request.kind == "list"]
    cells = [f"{kinds[kind] / times:g}" for kind in ("list", "HEAD", "GET", "PUT")]
    print(f"| {name} | {' | '.join(cells)} | {statistics.median(lists) if lists else 0:g} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help="in each of which two processes commit at once")
    parser.add_argument("--versions", type=int, default=1200, help="of the table in which requests are counted")
    parser.add_argument("--servers", nargs="+", choices=sorted(SERVERS), default=["moto"])
    arguments = parser.parse_args()
    print("| call | list | HEAD | GET | PUT | bytes of a list |\n|---|---|---|---|---|---|")
    print_requests(arguments.versions)
    print_measuring()
    print_backfill()
    print("\n| two processes | create | confirmed | refused | lost | doubled |\n|---|---|---|---|---|---|")
    good = [try_server(name, arguments.rounds) for name in arguments.servers]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
