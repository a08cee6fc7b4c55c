"""Products of vectors with the same bits on every processor and for every size of block.

A matrix product adds up in an order of its own, which changes with the processor, the number of threads and the shape
of the matrices, and with the order its rounding. Sums of whole numbers below 2^53 are never rounded. So each vector is
written in whole steps of its own:

    v = coarse + fine    coarse in steps of 2^-26 of the vector's length, fine in steps of about 2^-48

    u . v = coarse(u) . coarse(v) + [coarse(u) . fine(v) + fine(u) . coarse(v)]

By Cauchy and Schwarz' inequality neither of the two sums, in any order, leaves the whole numbers below 2^53: both are
exact, and adding the one to the other is the only rounding. fine(u) . fine(v) is left out: it is below the rounding of
the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, Positions

_BITS = 26  # bits of a vector's length in coarse steps: a product of two lengths has at most 53
_SMALLEST = -480  # exponent of the smallest step: products of two steps are still normal numbers
_ROWS = 4096  # cut at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """Vectors as sums of coarse and fine whole steps.

    Args:
        parts: (n, 2 d) float64, the fine part of each vector, then the coarse one.
        whole: No vector has a fine part.
    """

    parts: Doubles
    whole: bool

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, rows: slice | Positions) -> Slices:
        return Slices(parts=self.parts[rows], whole=self.whole)

    @property
    def fine(self) -> Doubles:
        """(n, d) float64."""
        return self.parts[:, : self.parts.shape[1] // 2]

    @property
    def coarse(self) -> Doubles:
        """(n, d) float64."""
        return self.parts[:, self.parts.shape[1] // 2 :]

    def times(self, factor: float) -> Slices:
        """The vectors times a power of two, or minus that."""
        return Slices(parts=self.parts * factor, whole=self.whole)

    def squared_lengths(self) -> Doubles:
        """(n,) float64, each row's product with itself as `multiply` gives it."""
        lengths: Doubles = np.einsum("nd,nd->n", self.coarse, self.coarse)
        lengths += 2.0 * np.einsum("nd,nd->n", self.coarse, self.fine)
        return lengths


def cut(vectors: Doubles) -> Slices:
    """Write vectors in steps of their own, to the nearest: (n, d) float64 whose squares are finite.

    Vectors of whole numbers (or of whole multiples of any power of two) of a length below 2^26 have no fine part.
    """
    n, dim = vectors.shape
    parts = np.empty((n, 2 * dim))
    for start in range(0, n, _ROWS):
        rows = vectors[start : start + _ROWS]
        fine, coarse = parts[start : start + _ROWS, :dim], parts[start : start + _ROWS, dim:]
        steps = _steps(rows)
        coarse[:] = _rounded(rows, steps)
        # Each fine part is below half a coarse step, its length below that times the root of d.
        fine[:] = _rounded(rows - coarse, steps - (_BITS - int(np.ceil(np.log2(dim) / 2))))
    return Slices(parts=parts, whole=not parts[:, :dim].any())


def cut_whole(numbers: Doubles) -> Slices:
    """The result of `cut` for vectors of whole numbers of a length below 2^26, without the search for steps: (n, d)."""
    return Slices(parts=np.concatenate([np.zeros_like(numbers), numbers], axis=1), whole=True)


def multiply(left: Slices, right: Slices, memory: Doubles | None = None) -> Doubles:
    """Multiply each vector of one side with each of the other.

    Args:
        left: q vectors.
        right: n vectors of the same length.
        memory: (2, >= q, n) float64, to be written over, or None.

    Returns:
        (q, n) float64, in `memory` where that is given.
    """
    if memory is None:
        memory = np.empty((2, len(left), len(right)))
    products, rest = memory[0, : len(left)], memory[1, : len(left)]
    np.matmul(left.coarse, right.coarse.T, out=products)
    if not (left.whole and right.whole):
        np.matmul(np.concatenate([left.coarse, left.fine], axis=1), right.parts.T, out=rest)
        for row, small in zip(products, rest, strict=True):  # a row stays in the processor's cache
            row += small
    return products


def _steps(vectors: Doubles) -> npt.NDArray[np.int64]:
    """Exponents of the coarse steps, (n, 1): 2^26 of a step are 0.84 to 1.69 of a vector's length.

    Sums of squares are accumulated one by one, as other sums depend on the processor. 0.7 keeps lengths that are powers
    of two, vectors of unit length above all, away from where the exponent changes.
    """
    squares = vectors * vectors
    lengths = np.add.accumulate(squares, axis=1, out=squares)[:, -1:]
    exponents = np.frexp(0.7 * lengths)[1].astype(np.int64)
    return np.maximum(-(-exponents // 2) - _BITS, _SMALLEST)


def _rounded(vectors: Doubles, exponents: npt.NDArray[np.int64]) -> Doubles:
    """To the nearest multiple of 2^exponent in each row.

    A product with a power of two is exact, as `ldexp` is, and takes a fraction of its time.
    """
    rounded: Doubles = vectors * np.ldexp(1.0, -exponents)
    np.rint(rounded, out=rounded)
    rounded *= np.ldexp(1.0, exponents)
    return rounded
