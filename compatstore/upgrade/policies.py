"""The order in which items are embedded natively: the higher an item's score, the earlier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.errors import InvalidInput
from compatstore.storage.basis import hash_values

Scores = npt.NDArray[np.float64]
Policy = Callable[[Any, int], Scores]


def random(ids: Any, seed: int) -> Scores:
    """A random order that depends on nothing but id and seed, so that it is the same on every run.

    Args:
        ids: Arrow array of n ids.
        seed: Any whole number.

    Returns:
        (n,) float64 in [0, 1).
    """
    digests = hash_values(ids) ^ np.uint64((seed * 0x9E3779B97F4A7C15 + 1) % 2**64)
    with np.errstate(over="ignore"):
        mixed = (digests ^ (digests >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


POLICIES: dict[str, Policy] = {"random": random}


def policy(name: str) -> Policy:
    """Find a policy.

    Raises:
        InvalidInput: There is none of that name.
    """
    if name not in POLICIES:
        raise InvalidInput("order the backfill", expected=f"one of {', '.join(POLICIES)}", found=repr(name))
    return POLICIES[name]
