"""Items in random order, and in groups: cells of alike source vectors, and classes of a column.

A sample can be spread over all groups. The random order depends on nothing but the items' ids and a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowSchema, ArrowType, BoolArray, Doubles, FloatArray, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput, meant
from compatstore.storage.columns import hash_values


def random_scores(ids: Any, domain: str, seed: int) -> Doubles:
    """A random order that depends on nothing but id, domain and seed, so that it is the same on every run.

    Args:
        ids: Arrow array of n ids, or a list or array of integers or strings.
        domain: Purpose of the draw, as in `seed_of`; orders of different domains are independent.
        seed: Any whole number.

    Returns:
        (n,) float64 in [0, 1).
    """
    arrow = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(np.asarray(ids).tolist())
    digests = hash_values(arrow) ^ np.uint64(seed_of(domain, seed))
    with np.errstate(over="ignore"):
        mixed = (digests ^ (digests >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


MOST_CELLS, SAMPLED, ROUNDS = 256, 20_000, 15
_ASSIGNED = 1_024  # rows whose distances to the centres are in memory
_MOST_STEPS = 2.0**20  # of a value: with 2^16 of a centre's, 65,536 products add up to 2^52


def number_of_cells(items: int) -> int:
    """The square root of the number of items, 1 at least and 256 at most."""
    return min(max(int(items**0.5), 1), MOST_CELLS)


def centres_of(sample: FloatArray, cells: int, seed: int) -> FloatArray:
    """Centres of cells: k-means, begun at random rows, 15 rounds; the same on every processor.

    Args:
        sample: (n, dim) float32, finite.
        cells: Number of centres, >= 1; fewer where the sample has fewer rows.
        seed: Seed for the rows that the centres start from.

    Returns:
        (cells, dim) float32. A centre that nothing is near to stays where it was.
    """
    random = np.random.default_rng(seed)
    centres = sample[random.choice(len(sample), min(cells, len(sample)), replace=False)].astype(np.float32)
    for _ in range(ROUNDS):
        own = nearest_centres(sample, centres)
        counts = np.bincount(own, minlength=len(centres))
        # One by one, in the order of the rows: other sums depend on the processor.
        sums = np.stack([np.bincount(own, weights=values, minlength=len(centres)) for values in sample.T], axis=1)
        moved = counts > 0
        centres[moved] = sums[moved] / counts[moved, None]
    return centres


def nearest_centres(vectors: FloatArray, centres: FloatArray) -> Positions:
    """The cell of each vector, by squared distance: (n,) intp, the same on every processor.

    Values are rounded to whole steps, of which the centres' largest value has 2^15 to 2^16: sums of their products are
    whole numbers below 2^53, which no order of addition rounds.
    """
    largest = float(np.abs(centres).max(initial=0.0))
    step = 2.0 ** (16 - np.frexp(largest)[1]) if largest > 0 else 1.0
    right = _in_steps(centres, step)
    lengths, parts = np.einsum("nd,nd->n", right, right), [np.zeros(0, np.intp)]
    for start in range(0, len(vectors), _ASSIGNED):
        products = _in_steps(vectors[start : start + _ASSIGNED], step) @ right.T
        parts.append((lengths - 2 * products).argmin(axis=1))
    return np.concatenate(parts)


def _in_steps(vectors: FloatArray, step: float) -> Doubles:
    """Whole numbers, (n, d) float64; values that are far beyond all centres are cut."""
    numbers = vectors.astype(np.float64)
    numbers *= step
    np.rint(numbers, out=numbers)
    return np.asarray(np.clip(numbers, -_MOST_STEPS, _MOST_STEPS, out=numbers))


def cells_of(
    batches: Iterable[tuple[FloatArray, BoolArray]], sample: FloatArray, items: int, seed: int
) -> npt.NDArray[np.int64]:
    """The cell of each item; items without a vector have a cell of their own.

    Args:
        batches: (rows, dim) float32 with (rows,) bool, whether a row has a finite vector; all items, in order.
        sample: (n, dim) float32, some of these vectors.
        items: Number of all items.
        seed: Seed of the centres.

    Returns:
        (items,) int64.
    """
    if not len(sample):
        return np.zeros(items, np.int64)
    centres = centres_of(sample, number_of_cells(items), seed)
    parts = [np.zeros(0, np.int64)]
    for vectors, known in batches:
        own = np.full(len(vectors), len(centres), np.int64)
        own[known] = nearest_centres(vectors[known], centres)
        parts.append(own)
    return np.concatenate(parts)


def spread(cells: npt.NDArray[np.int64], chances: Doubles, urgency: Doubles | None = None) -> Doubles:
    """Score items so that the first ones of any number are from all cells in proportion.

    An item that is r-th of the n items of its cell scores 1 - (r + u) / n; u, from 0 to below 1, is the cell's. In a
    cell the most urgent items come first, the unknown (NaN) before them, equals by chance; without urgency all come by
    chance. Then the score of an item is uniform over the draw of chances, so that each item is as likely as any other
    to be among the first, and the first items are a random sample.

    Args:
        cells: (n,) int64, the cell of each item, from 0.
        chances: (n,) float64, random in [0, 1), one for each item.
        urgency: (n,) float64, or None.

    Returns:
        (n,) float64 in (0, 1].
    """
    by_chance = np.lexsort((chances, cells))
    ordered = cells[by_chance]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(np.append(first, len(cells)))
    rank = np.arange(len(cells)) - np.repeat(first, counts)
    # The fraction of a cell comes from its smallest chance, stretched: below it nothing else is known.
    offset = np.repeat(_stretched(chances[by_chance[first]], counts), counts)
    scores = np.empty(len(cells))
    within = [] if urgency is None else [-np.where(np.isnan(urgency), np.inf, urgency)]
    scores[np.lexsort((chances, *within, cells))] = 1.0 - (rank + offset) / np.repeat(counts, counts)
    return scores


def _stretched(smallest: Doubles, counts: Positions) -> Doubles:
    """The smallest of n uniform values as a uniform value of its own: 1 - (1 - x)^n."""
    uniform: Doubles = 1.0 - (1.0 - smallest) ** counts
    return np.minimum(uniform, np.nextafter(1.0, 0.0))


def require_column(
    operation: str, schema: ArrowSchema, column: str, holds: Callable[[ArrowType], bool], values: str
) -> None:
    """Refuse a column of other values.

    Args:
        operation: Operation that needs the values, for messages.
        schema: Schema of the table.
        column: Its name.
        holds: Returns True for the types of such columns.
        values: The values, for the message: "numbers".

    Raises:
        InvalidInput: There is no such column, or it holds other values.
    """
    found = schema.field(column).type if column in schema.names else None
    if found is None or not holds(found):
        columns = [field.name for field in schema if holds(field.type) and "__" not in field.name]
        expected, fix = f"a column of {values} ({', '.join(columns) or 'there is none'})", meant(column, columns)
        raise InvalidInput(operation, expected=expected, found=f"{column}: {found or 'no such column'}", fix=fix)


def require_classes(operation: str, schema: ArrowSchema, column: str) -> None:
    """Refuse a column that holds no classes; see `require_column`."""
    require_column(operation, schema, column, _holds_classes, "labels, text or whole numbers")


def _holds_classes(kind: ArrowType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(plain) for check in checks)


def classes_of(labels: ArrowArray) -> Positions:
    """Labels as numbers from 0, -1 for an item that has none: (n,) intp."""
    combined = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else labels
    numbers = combined if pa.types.is_dictionary(combined.type) else combined.dictionary_encode()
    classes: Positions = pc.fill_null(numbers.indices, -1).to_numpy(zero_copy_only=False).astype(np.intp)
    return classes
