"""Two processes that commit to one table at the same moment, again and again."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Barrier
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import compatstore as cs

WRITERS = 2
DIM = 4
WAIT_SECONDS = 300.0
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("v1", pa.list_(pa.float32(), DIM))])


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
                lance.write_dataset(_row(item), uri, mode="append")
            else:
                gallery.add({"id": [item], "vector": np.full((1, DIM), number, np.float32)})
        except OSError:
            refused += 1
        else:
            confirmed.append(item)
    said.put((confirmed, refused))


def _row(item: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": item, "v1": [0.0] * DIM}], SCHEMA)
