"""Detection of vectors of two models in one column: a part whose difference is not explained by the items' content.

Any column falls into parts: photos of cats lie elsewhere than photos of ships. So a part is evaluated on held-out
items. A sample is cut into sixty neighbourhoods, and parts are grown from a few of them. A
Gaussian is fitted to half of the neighbourhoods of a part and one to half of the rest's, and the rows of the other
neighbourhoods are classified by them. The difference of cats and ships does not separate their other neighbours;
another model's mean and spectrum are present in every one of its vectors. A single large class passes that test too, so
the part must also vary in as many directions as the rest, and lie where the rest hardly varies: a class uses its
model's directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compatstore.arrays import BoolArray, Doubles, FloatArray, Id, Positions
from compatstore.artifacts.runners import one_thread_each
from compatstore.digests import digest_half
from compatstore.storage.columns import VersionColumns
from compatstore.storage.store import Store
from compatstore.storage.vector_form import to_matrix
from compatstore.upgrade.progress import Monitor, OnProgress

SAMPLE = 3_000  # rows of a column's sample
FEWEST_ROWS = 600  # of a sample: ten for each neighbourhood
NEIGHBOURHOODS, BEGINNINGS, STEPS, DRAWS = 60, 12, 4, 4
WIDEST = 128  # values that are compared: of longer vectors the directions in which the sample varies most
FEWEST = 4  # neighbourhoods of a part: two to learn from and two to evaluate
# Limits of a sign, set by hand on draws of a few sets; no set was held out.
SEPARATED, SAME_RANK, OUTSIDE = 0.94, 0.6, 1.6


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The part of a column that is least like the rest.

    Attributes:
        separated: Share of rows of unseen neighbourhoods that are assigned to their own side, the smaller one of both
            sides, in [0, 1].
        rank_ratio: Effective rank of the part over that of as many rows of the rest.
        outside: Distance of the part from the rest's spectrum: squared lengths of its rows in units of the rest's
            variances, over those of rows of the rest that were left out.
        part: (n,) bool, the rows of the part, at most half of them.
    """

    separated: float
    rank_ratio: float
    outside: float
    part: BoolArray

    @property
    def found(self) -> bool:
        """True if this is a sign of two models."""
        return self.separated >= SEPARATED and self.rank_ratio >= SAME_RANK and self.outside >= OUTSIDE

    @property
    def share(self) -> float:
        """Share of the rows in the part, in [0, 0.5]."""
        return float(self.part.mean())


def find_mixture(vectors: FloatArray, *, seed: int = 0, progress: OnProgress = None) -> Mixture | None:
    """Look for a part that another model has made.

    Args:
        vectors: (n, dim) float32, a sample, finite and not zero, without repeats; only directions count.
        seed: Of the draws.
        progress: Called after each part that was compared with the rest.

    Returns:
        The part that is least like the rest, or None if there are too few rows or no part could be compared.
    """
    if len(vectors) < FEWEST_ROWS:
        return None
    rng = np.random.default_rng(seed)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    rows = unit
    if rows.shape[1] > WIDEST:
        rows = unit @ np.linalg.eigh(unit.T @ unit)[1][:, -WIDEST:]
    places = neighbourhoods(rows, rng)
    monitor = Monitor("two models", BEGINNINGS, progress)
    monitor.begin()
    found = dict[bytes, Mixture]()
    with one_thread_each():  # products this small take several times the processor's time in several threads
        for begun in _beginnings(rows, places):
            chosen = _grown(rows, places, begun, rng)
            if chosen is not None and chosen.tobytes() not in found:
                found[chosen.tobytes()] = _compared(unit, rows, places, chosen, rng)
            monitor.advance(1)
    monitor.finish()
    return max(found.values(), key=_order, default=None)


def foreign_items(
    store: Store, columns: VersionColumns, key: str, progress: OnProgress
) -> tuple[float, list[Id]] | None:
    """Look for a part that another model has made in a sample of a table's vectors; read-only.

    Args:
        store: The table.
        columns: Columns of the vectors.
        key: Column of the ids.
        progress: As of `find_mixture`.

    Returns:
        The part's share of the sample and its ids, or None if there is no sign of one.
    """
    snapshot = store.snapshot()
    rows = snapshot.count_rows()
    if rows < FEWEST_ROWS:
        return None
    drawn = np.sort(np.random.default_rng(0).choice(rows, min(SAMPLE, rows), replace=False))
    taken = snapshot.take(drawn.tolist(), columns=[key, columns.vector])
    vectors, valid = to_matrix(taken[columns.vector], columns.dim)
    sound = np.flatnonzero(valid & np.isfinite(vectors).all(axis=1) & vectors.any(axis=1))
    sound = sound[distinct(vectors[sound])]
    found = find_mixture(vectors[sound], progress=progress)
    if found is None or not found.found:
        return None
    return found.share, taken[key].take(pa.array(sound[found.part])).to_pylist()


def distinct(vectors: FloatArray) -> Positions:
    """The first of each of several rows that are equal to the precision of float16: (n, dim) -> (m,) positions."""
    return np.sort(np.unique(digest_half(vectors), return_index=True)[1])


def _order(one: Mixture) -> tuple[bool, float, float]:
    """Sort key of parts: signs first, by their distance, then those that are nearest to be one."""
    if one.found:
        return True, one.outside, one.separated
    return False, float(one.rank_ratio >= SAME_RANK) + float(one.outside >= OUTSIDE), one.separated


def neighbourhoods(rows: FloatArray, rng: np.random.Generator) -> Positions:
    """Cut rows in two again and again, the largest piece first: (n, dim) -> (n,) numbers of pieces from 0.

    No piece has more than three times the rows of the mean piece, however much closer together some rows are than
    others: another model may put all of its vectors into a narrow cone.
    """
    pieces = [np.arange(len(rows))]
    while len(pieces) < NEIGHBOURHOODS:
        largest = pieces.pop(max(range(len(pieces)), key=lambda number: len(pieces[number])))
        side = _halved(rows[largest], rng)
        pieces += [largest[side], largest[~side]]
    places = np.empty(len(rows), np.intp)
    for number, piece in enumerate(pieces):
        places[piece] = number
    return places


def _halved(rows: FloatArray, rng: np.random.Generator) -> BoolArray:
    """One side of two: two means, or the lower half along their difference if one side is nearly empty."""
    first = rows[rng.integers(len(rows))]
    second = rows[np.argmax(((rows - first) ** 2).sum(axis=1))]
    for _ in range(6):
        along = np.einsum("nd,d->n", rows, second - first)  # a product by BLAS warned once, of rows that were finite
        side: BoolArray = along > (second @ second - first @ first) / 2
        if not 0 < side.sum() < len(rows):
            break
        first, second = rows[~side].mean(axis=0), rows[side].mean(axis=0)
    if min(side.sum(), (~side).sum()) < max(1, len(rows) // 10):
        side = np.argsort(np.argsort(along, kind="stable"), kind="stable") < len(rows) // 2
    return side


def _beginnings(rows: FloatArray, places: Positions) -> list[BoolArray]:
    """Parts to begin with: neighbourhoods that are the least like each other, each with its nearest ones."""
    centres = np.stack([rows[places == place].mean(axis=0) for place in range(NEIGHBOURHOODS)])
    unit = centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    alike = unit @ unit.T
    seeds = [int(alike.mean(axis=0).argmin())]
    while len(seeds) < BEGINNINGS:
        seeds.append(int(alike[seeds].max(axis=0).argmin()))
    nearest = np.argsort(-alike[seeds], axis=1, kind="stable")[:, :FEWEST]
    return [np.isin(np.arange(NEIGHBOURHOODS), some) for some in nearest]


def _grown(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> BoolArray | None:
    """Neighbourhoods that are more like the part than like the rest, by those of both that they were not fitted to."""
    for _ in range(STEPS):
        likelier = _held_out(rows, places, chosen, rng)
        now = np.array([np.median(likelier[places == place]) > 0 for place in range(NEIGHBOURHOODS)])
        if min(now.sum(), (~now).sum()) < FEWEST:
            return None
        if (now == chosen).all():
            break
        chosen = now
    return chosen if chosen[places].mean() <= 1 / 2 else ~chosen


def _compared(
    unit: FloatArray, rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator
) -> Mixture:
    part = chosen[places]
    draws = [_held_out(rows, places, chosen, rng) for _ in range(DRAWS)]
    own = np.mean([(draw[part] > 0).mean() for draw in draws]), np.mean([(draw[~part] < 0).mean() for draw in draws])
    others = rng.permutation(np.flatnonzero(~part))[: part.sum()]
    return Mixture(
        separated=float(min(own)),
        rank_ratio=effective_rank(unit[part]) / effective_rank(unit[others]),
        outside=float(np.mean([_outside(rows, places, chosen, rng) for _ in range(DRAWS)])),
        part=part,
    )


def _held_out(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> Doubles:
    """Log p(row | part) - log p(row | rest), each row by neighbourhoods other than its own: (n,) float64."""
    found, learned = np.empty(len(rows)), np.zeros(len(chosen), bool)
    for side in (chosen, ~chosen):
        members = rng.permutation(np.flatnonzero(side))
        learned[members[: len(members) // 2]] = True
    for half in (learned, ~learned):
        inside, outside = (rng.permutation(np.flatnonzero((half & side)[places])) for side in (chosen, ~chosen))
        fewest, left = min(len(inside), len(outside)), ~half[places]
        near, far = (_Gaussian.of(rows[side[:fewest]], 0.3) for side in (inside, outside))
        found[left] = near.log_density(rows[left]) - far.log_density(rows[left])
    return found


def _outside(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> float:
    """Distance of the part from the spectrum of one half of the rest, over that of the other half.

    The nearest neighbourhoods of the part count, and the farthest of the rest.
    """
    fitted, left_out = np.array_split(rng.permutation(np.flatnonzero(~chosen)), 2)
    squares = _Gaussian.of(rows[np.isin(places, fitted)], 0.05).squares(rows)
    part, rest = (
        [np.median(squares[places == place]) for place in side] for side in (np.flatnonzero(chosen), left_out)
    )
    return float(np.quantile(part, 0.2) / np.quantile(rest, 0.8))


@dataclass(frozen=True)
class _Gaussian:
    """A normal density whose covariance is shrunk towards its mean variance."""

    mean: FloatArray
    whitening: FloatArray
    log_volume: float

    @classmethod
    def of(cls, rows: FloatArray, shrunk_by: float) -> _Gaussian:
        """Fit one; `shrunk_by` is the share of the mean variance: of few rows, most variances are 0 otherwise."""
        mean = rows.mean(axis=0)
        centred = (rows - mean).astype(np.float64)
        covariance = centred.T @ centred / len(rows)
        variance = max(float(np.trace(covariance)) / len(covariance), 1e-12)
        root = np.linalg.cholesky((1 - shrunk_by) * covariance + shrunk_by * variance * np.eye(len(covariance)))
        return cls(mean, np.linalg.inv(root).T.astype(np.float32), float(np.log(np.diag(root)).sum()))

    def log_density(self, rows: FloatArray) -> Doubles:
        """Log density of rows, but for a constant: (n, dim) -> (n,)."""
        return -0.5 * self.squares(rows) - self.log_volume

    def squares(self, rows: FloatArray) -> Doubles:
        """Squared Mahalanobis distances: (n, dim) -> (n,)."""
        white = (rows - self.mean) @ self.whitening
        squares: Doubles = np.einsum("nd,nd->n", white, white, dtype=np.float64)
        return squares


def effective_rank(rows: FloatArray) -> float:
    """Participation ratio of the variances, (their sum)^2 / sum of squares: a number of directions."""
    centred = (rows - rows.mean(axis=0)).astype(np.float64)
    products = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    squares = float((products**2).sum())
    return float(np.trace(products) ** 2 / squares) if squares else 0.0
