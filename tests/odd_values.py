"""Values that no caller should hand over, and some that look as if none could: what the public API is fuzzed with."""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from lazily import Lazy

torch = Lazy("torch")


class Hostile:
    """Whatever is asked of it raises."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __len__(self):
        raise RuntimeError("no length")

    def __array__(self, *args, **options):
        raise RuntimeError("no array")

    def __iter__(self):
        raise RuntimeError("no items")


class Text(str):
    pass


def _looped():
    items = []
    items.append(items)
    return items


def _objects():
    array = np.empty(2, object)
    array[0] = array[1] = Hostile()
    return array


def _nested(depth):
    inner = [1.0]
    for _ in range(depth):
        inner = [inner]
    return inner


def odd_values():
    """One of each, new in each call: some can be used up."""
    return [
        *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63) - 1, 2**70, 10**400, 0.5, 1.5, 1e308, 1j),
        *(float("nan"), float("inf"), -float("inf")),
        *("", " ", "a", "v1", "v9", "\ud800", "a\ud800b", "\0", "a\0b", "a\nb", "\x1b[31m", "x" * 300, "é", Text("v1")),
        *("1", "0.5", "number", "b'x' = b'x'", "n < 5) OR (n < 5", "s = 'a", "map>=0.5", "../up", "a/b", "#", "a#b"),
        *(b"", b"bytes", b"\xff", bytearray(b"x"), memoryview(b"abcd")),
        *(decimal.Decimal("1.5"), decimal.Decimal("Infinity"), decimal.Decimal("NaN"), fractions.Fraction(1, 3)),
        *(np.int64(3), np.uint64(2**64 - 1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("v1")),
        *(np.datetime64("NaT"), np.timedelta64("NaT", "s"), np.datetime64("2020-01-01"), np.bytes_(b"x")),
        *(np.array(5), np.array([]), np.ones(4), np.ones((2, 4)), np.ones((2, 2, 4)), np.ones((2, 0)), np.ones((0, 4))),
        *(np.full((2, 4), np.nan), np.full(4, np.inf), np.full((2, 4), 1e300), np.ones((2, 4), np.complex64)),
        *(
            np.array(["a", "b"]),
            np.array(["NaT", "2020"], "M8[D]"),
            np.array([None, 1]),
            np.array([[1], [1, 2]], object),
        ),
        *(np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [True, False, False, True]), np.ma.masked_array([[1, 2]], [[1, 0]])),
        *(
            np.array([(1, 2.0)], [("a", int), ("b", float)]),
            np.zeros((2, 4), np.uint8),
            np.array([2**64 - 1], np.uint64),
        ),
        *(_objects(), np.array([True, False]), np.ones((2, 4), np.float16), np.array(["\ud800"])),
        *(
            set(),
            {1, "a"},
            frozenset({"a"}),
            {},
            {"a": 1},
            {1: 2},
            {"id": ["a"]},
            {"a": [1], "b": [1, 2]},
            {None: None},
        ),
        *(
            [],
            [None],
            ["a"],
            ["a", 1],
            [1, 2.5],
            [["a"]],
            [1, [2]],
            [[1, 2], [3]],
            [[]],
            [{}],
            [{1: 2}],
            [float("nan")],
        ),
        *(
            [2**63],
            [2**70],
            ["\ud800"],
            [b"x"],
            [np.datetime64("NaT")],
            [decimal.Decimal("Infinity")],
            [Hostile()],
            [1j],
        ),
        *((), ("a",), (1, 2), (0.5, "x"), range(3), range(2**40), _looped(), _nested(40), _nested(3000)),
        *((x for x in "ab"), iter([]), object(), Hostile(), Ellipsis, NotImplemented, slice(3), lambda *a: 1),
        *(datetime.datetime(2020, 1, 1), datetime.date.max, datetime.timedelta(days=1), datetime.UTC),
        *(uuid.UUID(int=1), Path("nowhere"), Path(), ValueError("as a value"), np, np.dtype("f4")),
        *(pa.array([1, 2]), pa.array(["a", None]), pa.array([[1.0] * 4] * 2), pa.nulls(2), pa.scalar(3), pa.int64()),
        *(pa.chunked_array([[1], [2]]), pa.chunked_array([], pa.string()), pa.array([1, 2]).dictionary_encode()),
        *(pa.array([2**63], pa.uint64()), pa.array([b"\xff"]), pa.array([[1, None, 3, 4]], pa.list_(pa.float32(), 4))),
        *(pa.table({"id": ["a"]}), pa.table([[1], [2]], names=["id", "id"]), pa.table({}), pa.schema([])),
        *(pa.table([["q"], [[1.0] * 4], [1], [2]], names=["id", "vector", "n", "n"]), pa.record_batch({"id": ["a"]})),
        *(pa.RunEndEncodedArray.from_arrays([2], [5]), pa.array([{"a": 1}]), pa.array([0.5, float("nan")])),
        *(
            torch.ones(4),
            torch.ones(2, 4),
            torch.ones(2, 4, dtype=torch.bfloat16),
            torch.ones(2, 4, requires_grad=True),
        ),
        *(torch.ones(2, 4).to_sparse(), torch.ones(2, 4, dtype=torch.complex64), torch.empty(0), torch.tensor(3)),
        *(torch.ones(2, 4, device="meta"), torch.nn.Linear(4, 2)),
    ]
