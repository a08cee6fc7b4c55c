"""A random order of items that depends on nothing but their ids and a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.arrays import Doubles
from compatstore.digests import seed_of
from compatstore.storage.row_digests import hash_values


def random_scores(ids: Any, domain: str, seed: int) -> Doubles:
    """A random order that depends on nothing but id, domain and seed, so that it is the same on every run.

    Args:
        ids: Arrow array of n ids, or a list or array of integers or strings.
        domain: What is drawn, as in `seed_of`: the orders of two domains have nothing in common.
        seed: Any whole number.

    Returns:
        (n,) float64 in [0, 1).
    """
    arrow = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(np.asarray(ids).tolist())
    digests = hash_values(arrow) ^ np.uint64(seed_of(domain, seed))
    with np.errstate(over="ignore"):
        mixed = (digests ^ (digests >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
