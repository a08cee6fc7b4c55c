"""First and second moments of pairs: all that a closed form needs, gathered in one streaming pass after the means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compatstore.arrays import Doubles
from compatstore.trainers.pairs.pairs import Pairs

# Rows that are float64 at one time: 50 MB at 128 + 256 values.
_BLOCK = 16_384


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Moments of n pairs (x, y), x being the source vector with the side-information behind it; float64.

    Args:
        input_mean: (d_in,), the point that x is centred on.
        output_mean: (d_out,), the point that y is centred on.
        inputs: (d_in, d_in), mean of x x^T, centred.
        cross: (d_in, d_out), mean of x y^T, centred.
        output_square: Mean squared length of y, centred.
    """

    input_mean: Doubles
    output_mean: Doubles
    inputs: Doubles
    cross: Doubles
    output_square: float

    @classmethod
    def of(cls, pairs: Pairs, *, about: Moments | None = None, side: bool = True) -> Moments:
        """Gather the moments.

        Args:
            pairs: The rows.
            about: Centre on the means of these moments: what a map fitted to them makes of other rows follows from
                such moments exactly, its intercept included. None centres on the rows' own means.
            side: Whether the side-information is part of x.
        """
        input_mean, output_mean = _means(pairs, side) if about is None else (about.input_mean, about.output_mean)
        inputs = np.zeros((len(input_mean), len(input_mean)))
        cross = np.zeros((len(input_mean), len(output_mean)))
        square = 0.0
        for x, y in _blocks(pairs, side):
            x -= input_mean
            y -= output_mean
            inputs += x.T @ x
            cross += x.T @ y
            square += float(np.vdot(y, y))
        n = len(pairs)
        return cls(
            input_mean=input_mean,
            output_mean=output_mean,
            inputs=inputs / n,
            cross=cross / n,
            output_square=square / n,
        )


def _means(pairs: Pairs, side: bool) -> tuple[Doubles, Doubles]:
    means = [pairs.source.mean(axis=0, dtype=np.float64)]
    if side and pairs.side is not None:
        means.append(pairs.side.mean(axis=0, dtype=np.float64))
    return np.concatenate(means), pairs.target.mean(axis=0, dtype=np.float64)


def _blocks(pairs: Pairs, side: bool) -> Iterator[tuple[Doubles, Doubles]]:
    """Yield x (b, d_in) and y (b, d_out) as float64 copies."""
    parts = [pairs.source] if pairs.side is None or not side else [pairs.source, pairs.side]
    for start in range(0, len(pairs), _BLOCK):
        rows = slice(start, start + _BLOCK)
        x = np.concatenate([part[rows] for part in parts], axis=1, dtype=np.float64)
        yield x, pairs.target[rows].astype(np.float64)
