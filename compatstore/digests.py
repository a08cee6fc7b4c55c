"""64-bit digests of vectors: the same for equal rows, whoever computes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Digests

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROWS = 16_384  # hashed at a time: the words of a row take twice the row's memory


def hash_rows(vectors: npt.NDArray[np.float32]) -> Digests:
    """Multilinear hash of rows: (n, dim) float32 -> (n,) uint64.

    Odd multipliers are invertible modulo 2^64, so no change of a single value goes unseen.
    """
    words = np.ascontiguousarray(vectors, np.float32).view(np.uint32).astype(np.uint64)
    multipliers = mix(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    digests: Digests = (words * multipliers).sum(axis=1, dtype=np.uint64)
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
