"""1-bit codes: of each value its sign, eight to a byte.

A model whose values lie around zero loses little by it. Whatever computes with codes reads them as -1 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Codes, FloatArray


def signs(values: npt.NDArray[Any]) -> FloatArray:
    """Signs of values, as a code keeps them: (n, dim) numbers -> (n, dim) float32, 1 above zero and -1 otherwise."""
    kept: FloatArray = np.where(values > 0, np.float32(1), np.float32(-1))
    return kept


def pack(values: npt.NDArray[Any]) -> Codes:
    """Pack signs: (n, dim) numbers, dim a multiple of 8 -> (n, dim / 8) uint8, the first value in the highest bit."""
    return np.packbits(values > 0, axis=1)


def unpack(codes: Codes) -> FloatArray:
    """Read codes: (n, bytes) uint8 -> (n, 8 bytes) float32 of -1 and 1."""
    return signs(np.unpackbits(codes, axis=1))
