"""Types of NumPy arrays and of Arrow data, as signatures name them.

Docstrings give the shapes, as in (n, dim). pyarrow ships no type information: the Arrow names say what a value is, and
mypy does not check them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
RowNumbers = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint8]

Id: TypeAlias = str | int  # of an item

ArrowTable: TypeAlias = pa.Table
ArrowBatch: TypeAlias = pa.RecordBatch
ArrowArray: TypeAlias = pa.Array | pa.ChunkedArray
ArrowType: TypeAlias = pa.DataType
ArrowSchema: TypeAlias = pa.Schema
ArrowField: TypeAlias = pa.Field
