"""Digests: 64 bits of a vector, the fingerprint of a model, and the seed of a random draw."""

from __future__ import annotations

import hashlib
import json
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Digests
from compatstore.errors import Incompatible

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WORDS = 65_536  # widened at a time: they stay in the processor's cache, which is five times as fast
_ROWS = 16_384  # hashed at a time: the words of a row take twice the row's memory


def hash_rows(vectors: npt.NDArray[np.float32]) -> Digests:
    """Multilinear hash of rows: (n, dim) float32 -> (n,) uint64.

    Odd multipliers are invertible modulo 2^64, so no change of a single value goes unseen.
    """
    words = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
    multipliers = mix(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    rows = max(_WORDS // max(words.shape[1], 1), 1)
    digests = np.empty(len(words), np.uint64)
    for start in range(0, len(words), rows):
        digests[start : start + rows] = words[start : start + rows].astype(np.uint64) @ multipliers
    return digests


def digest_half(vectors: npt.NDArray[np.float32]) -> Digests:
    """Digests of rows as float16 holds them: (n, dim) float32 -> (n,) uint64.

    A table that stores float16 has the same digests as the float32 vectors that were written to it. Rows whose
    values differ by less than a rounding of float16 mostly have the same digest.
    """
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, len(vectors), _ROWS):
        with np.errstate(over="ignore"):
            half = np.asarray(vectors[start : start + _ROWS], np.float32).astype(np.float16)
        # Adding zero turns -0.0 into 0.0: tiny negative values round to either.
        parts.append(mix(hash_rows(half.astype(np.float32) + np.float32(0))))
    return np.concatenate(parts)


def mix(x: Digests) -> Digests:
    """Finaliser of splitmix64: every bit of the input reaches every bit of the output."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def fingerprint(**parts: Any) -> str:
    """Digest (32 hex digits) of JSON-able parts, independent of their order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def require_fingerprint(operation: str, expected: str, found: str, fix: str = "") -> None:
    """Refuse what belongs to another model.

    Raises:
        Incompatible: `found` is not `expected`.
    """
    if expected != found:
        raise Incompatible(operation, expected=f"fingerprint {expected}", found=found, fix=fix)


BACKFILL = "backfill"  # has a seed by another formula, by which the figures of the documents were measured


def seed_of(domain: str, seed: int) -> int:
    """Make the seed of one draw.

    Args:
        domain: Purpose of the draw: "backfill", "estimate", "report". Draws of one domain are tied, of two are not.
        seed: The caller's seed.

    Returns:
        A whole number in [0, 2^64).
    """
    if domain == BACKFILL:
        return (seed * 0x9E3779B97F4A7C15 + 1) % 2**64
    return int.from_bytes(blake2b(f"{domain}\0{seed}".encode(), digest_size=8).digest(), "little")
