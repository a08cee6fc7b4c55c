"""Agreement of two orders (Kendall's tau) and of two spaces (CKA)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles
from compatstore.boundary import array_of, checked
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import checked_vectors

_ROWS = 8192


@checked
def kendall_tau(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Kendall's tau-b of two orders, such as predicted sigma and the true loss; O(n log n).

    Args:
        first: (n,) finite numbers.
        second: (n,) finite numbers.

    Returns:
        1 for the same order, -1 for the reverse, about 0 for unrelated ones.

    Raises:
        InvalidInput: Not two lists of one length. Fewer than 2 values, values that are not finite, or all values of a
            list equal.

    Examples:
        >>> cs.evaluation.kendall_tau([1, 2, 3], [1, 3, 2])
        0.333...
    """
    x, y = (array_of(values, "compare two orders", "numbers", dtype=np.float64) for values in (first, second))
    if x.ndim != 1 or x.shape != y.shape:
        raise InvalidInput("compare two orders", expected=f"(n,) twice, here {x.shape}", found=f"{y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidInput("compare two orders", expected="finite values", found="NaN or infinite ones")
    (n, x_ranks), (_, y_ranks) = ((len(values), np.unique(values, return_inverse=True)[1]) for values in (x, y))
    pairs, x_tied, y_tied = n * (n - 1) // 2, _tied_pairs(x_ranks), _tied_pairs(y_ranks)
    if pairs in (0, x_tied, y_tied):
        raise InvalidInput("compare two orders", expected="values that differ", found=f"{n} values, all equal in one")
    both_tied = _tied_pairs(np.unique(x_ranks * n + y_ranks, return_inverse=True)[1])
    discordant = _inversions(y_ranks[np.lexsort((y_ranks, x_ranks))])
    agreeing = pairs - x_tied - y_tied + both_tied - 2 * discordant
    return agreeing / math.sqrt((pairs - x_tied) * (pairs - y_tied))


@checked
def linear_cka(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Linear centred kernel alignment of two spaces (Kornblith et al. 2019, equation 4), in one pass over the rows.

    Low between side-information and embeddings means that they complement each other.

    Args:
        first: (n, d1) floats, embeddings of n items; may be memory-mapped.
        second: (n, d2) floats, other embeddings of the same items.

    Returns:
        Between 0 and 1; 1 for spaces that differ by rotation, scale and shift alone.

    Raises:
        InvalidInput: Not two tables of as many rows. A value is NaN or infinite. There are no rows, or all rows of a
            table are equal.

    Examples:
        >>> first = np.random.default_rng(0).standard_normal((20, 3))
        >>> bool(np.isclose(cs.evaluation.linear_cka(first, 2 * first[:, ::-1]), 1.0))
        True
    """
    x, y = (array_of(values, "compare two spaces", "embeddings") for values in (first, second))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise InvalidInput("compare two spaces", expected=f"(n, d) twice, here {x.shape}", found=f"{y.shape}")
    covariance, split = _covariance(x, y), x.shape[1]
    within_x, within_y, across = covariance[:split, :split], covariance[split:, split:], covariance[:split, split:]
    norms = np.linalg.norm(within_x) * np.linalg.norm(within_y)
    if not norms > 0:
        raise InvalidInput("compare two spaces", expected="rows that differ", found="equal rows in one of them")
    return float(np.linalg.norm(across) ** 2 / norms)


def _tied_pairs(numbers: npt.NDArray[np.intp]) -> int:
    counts = np.bincount(numbers).astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: npt.NDArray[np.intp]) -> int:
    """Pairs that stand in descending order, counted while runs of 1, 2, 4, ... values are merged.

    Args:
        values: (n,) non-negative integers below n.
    """
    n, found, width = len(values), 0, 1
    places = np.arange(n)
    while width < n:
        pair, right = places // (2 * width), places // width % 2 == 1
        keys = pair * n + values  # ascending over all left halves, and over all right halves
        # A value of a right half has before it all left halves up to its own, less those values that are not larger.
        held = (pair[right] + 1) * width
        found += int((held - keys[~right].searchsorted(keys[right], side="right")).sum())
        values = np.sort(keys, kind="stable") - pair * n  # merges sorted runs, in linear time
        width *= 2
    return found


def _covariance(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Doubles:
    """Sums of products of centred columns of [x, y]: (d1 + d2, d1 + d2) float64, read in blocks of rows."""
    dim = x.shape[1] + y.shape[1]
    products, sums, shift = np.zeros((dim, dim)), np.zeros(dim), np.zeros(dim)
    for start in range(0, max(len(x), 1), _ROWS):
        rows = slice(start, start + _ROWS)
        block = np.concatenate([checked_vectors(x[rows], "embeddings"), checked_vectors(y[rows], "embeddings")], axis=1)
        if start == 0:
            shift = block.mean(axis=0)  # near the mean of all rows, so that little cancels in the end
        block -= shift
        products += block.T @ block
        sums += block.sum(axis=0)
    return products - np.outer(sums, sums) / len(x)
