"""Signs that vectors of two models stand in one column: parts whose difference goes beyond what the items are about.

Any column falls into parts: photos of cats lie elsewhere than photos of ships. So a part is judged by what it holds for
items that it was not learned from. Each part is a set of neighbourhoods (some sixty to a sample). A Gaussian is fitted
to half of the neighbourhoods of the part and one to half of the rest's, with equally many rows, and the rows of all
other neighbourhoods are told apart by them. What tells cats from ships does not tell their other neighbours apart;
another model's mean and spectrum stand in every one of its vectors. A single large class passes that test too, so the
part must also be as manifold as the rest: the participation ratio of its variances is at least `SAME_RANK` of theirs.
And it must lie where the rest hardly varies, in units of the rest's own variances: a class uses its model's directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions, RowNumbers
from compatstore.upgrade.progress import Monitor, Progress

STEP = "two models"  # of its progress
NEIGHBOURHOODS = 60
FEWEST_ROWS = 600  # of a sample that is judged at all: ten rows a neighbourhood
LEAST_SHARE = 0.03  # of the rows, in a part; a smaller one has too few neighbourhoods to learn from
FEWEST = 4  # neighbourhoods of a part: two to learn from and two to judge by
WIDEST = 384  # values; longer vectors are projected onto as many directions at random
SEEDS, STEPS, SPLITS = 12, 3, 4
SHRUNK = 0.3  # share of the mean variance in each covariance: of few rows, most variances are 0 otherwise
TOLD_APART = 0.94  # of the rows of either side, at least; chosen in docs/results/two_models.md
SAME_RANK = 0.6
OUTSIDE = 1.6
SLIGHTLY_SHRUNK = 0.05  # for spectra of many rows: what tells models apart is where the rest hardly varies
NEAREST, FARTHEST = 0.2, 0.8  # quantiles of the part's and the rest's neighbourhoods
RANGES = 10
MOVES = 2  # of the ends of a range
AXES = 4  # along which neighbourhoods are divided at the largest gap
WITHIN = 0.9  # share of a part's rows that a range must hold to be named


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The part of a column that is least like the rest.

    Attributes:
        told_apart: Share of rows of unseen neighbourhoods that are assigned to their own side, the smaller one of both
            sides, in [0, 1].
        share: Share of the rows in the part, in [0, 0.5].
        rank_ratio: Effective rank of the part over that of as many rows of the rest.
        outside: How far the part lies outside the rest's spectrum: squared lengths of its rows in units of the rest's
            variances, of the part's nearest neighbourhoods over those of the rest's farthest, which were left out.
        part: (n,) bool, the rows of the part.
        by_range: Whether the part is a range of the rows' order.
    """

    told_apart: float
    share: float
    rank_ratio: float
    outside: float
    part: BoolArray
    by_range: bool = False

    @property
    def found(self) -> bool:
        """Whether this is a sign of two models."""
        return self.told_apart >= TOLD_APART and self.rank_ratio >= SAME_RANK and self.outside >= OUTSIDE


def find_mixture(
    vectors: FloatArray,
    *,
    ordered: bool = False,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Mixture | None:
    """Look for a part that another model has made.

    Args:
        vectors: (n, dim) float32, finite and not zero, without repeats; only directions count.
        ordered: Whether the rows are in an order that means something, such as that of their dates.
        seed: Of the draws.
        progress: Called after each part that was compared with the rest.

    Returns:
        The part that is least like the rest, or None where none could be judged.
    """
    if len(vectors) < FEWEST_ROWS:
        return None
    rng = np.random.default_rng(seed)
    rows = _directions(vectors, rng)
    monitor = Monitor(STEP, SEEDS + AXES + (2 * RANGES - 3 if ordered else 0), progress)
    monitor.begin()
    found = list(_by_neighbourhoods(rows, rng, monitor))
    if ordered:
        found += _by_ranges(rows, rng, monitor)
    monitor.finish()
    return max(found, key=_order, default=None)


def _order(one: Mixture) -> tuple[bool, float, float]:
    """Of parts that are signs the farthest one counts, else the one that is nearest to be one."""
    if one.found:
        return True, one.outside, one.told_apart
    return False, float(one.rank_ratio >= SAME_RANK) + float(one.outside >= OUTSIDE), one.told_apart


def range_of(part: BoolArray) -> tuple[int, int] | None:
    """First and last position of the shortest range with `WITHIN` of a part's rows; None where others are many in it.

    Args:
        part: (n,) bool, in the rows' order.
    """
    places = np.flatnonzero(part)
    held = max(1, round(WITHIN * len(places)))
    spans = places[held - 1 :] - places[: len(places) - held + 1]
    first = int(np.argmin(spans))
    start, stop = int(places[first]), int(places[first + held - 1])
    return (start, stop) if part[start : stop + 1].mean() >= WITHIN else None


def _directions(vectors: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Rows of unit length, of at most `WIDEST` values."""
    if vectors.shape[1] > WIDEST:
        directions = np.linalg.qr(rng.standard_normal((vectors.shape[1], WIDEST)))[0]
        vectors = vectors @ directions.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: FloatArray = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def _by_neighbourhoods(rows: FloatArray, rng: np.random.Generator, monitor: Monitor) -> Iterator[Mixture]:
    """Parts that begin with neighbours of one another and grow to all that is more like them than like the rest."""
    places = neighbourhoods(rows, rng)
    count = int(places.max()) + 1
    sizes = np.bincount(places, minlength=count)
    centres = np.stack([rows[places == place].mean(axis=0) for place in range(count)])
    unit = centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    alike = unit @ unit.T
    seen = set[bytes]()
    for begun in _beginnings(alike, sizes):
        monitor.advance(1)
        chosen = _grown(rows, places, begun, rng)
        if chosen is None:
            continue
        if sizes[chosen].sum() > len(rows) / 2:
            chosen = ~chosen
        if sizes[chosen].sum() >= LEAST_SHARE * len(rows) and chosen.tobytes() not in seen:
            seen.add(chosen.tobytes())
            yield _judged(rows, places, chosen, rng)


def _beginnings(alike: FloatArray, sizes: Positions) -> Iterator[BoolArray]:
    """Neighbourhoods to begin with: a few that are near each other, and sides of the largest gaps between them all."""
    count, rows = len(alike), sizes.sum()
    for seed in _spread(alike, min(SEEDS, count)):
        nearest = np.argsort(-alike[seed], kind="stable")
        first = int(np.searchsorted(np.cumsum(sizes[nearest]), 2 * LEAST_SHARE * rows)) + 1
        yield _chosen(count, nearest[: max(FEWEST, first)])
    for along in np.linalg.eigh(alike)[1][:, : -AXES - 1 : -1].T:
        order = np.argsort(along)
        gaps = np.diff(along[order])
        shares = np.cumsum(sizes[order])[:-1] / rows
        gaps[(shares < LEAST_SHARE) | (shares > 1 - LEAST_SHARE)] = -1
        yield _chosen(count, order[: int(np.argmax(gaps)) + 1])


def _by_ranges(rows: FloatArray, rng: np.random.Generator, monitor: Monitor) -> Iterator[Mixture]:
    """Ranges of the order: tenths, and all before or after a tenth, each moved to where rows are more like it."""
    tenth = np.arange(len(rows)) * RANGES // len(rows)
    parts = [tenth == one for one in range(RANGES)]
    parts += [tenth < one if 2 * one <= RANGES else tenth >= one for one in range(2, RANGES - 1)]

    def cut(part: BoolArray) -> tuple[Positions, BoolArray]:
        places = np.empty(len(rows), np.intp)
        inner = neighbourhoods(rows[part], rng, max(2 * FEWEST, round(NEIGHBOURHOODS * part.mean())))
        outer = neighbourhoods(rows[~part], rng)
        places[part], places[~part] = inner, outer + inner.max() + 1
        chosen = _chosen(int(places.max()) + 1, np.arange(inner.max() + 1))
        return places, chosen

    for begun in parts:
        monitor.advance(1)
        part = begun
        for _ in range(MOVES):
            places, chosen = cut(part)
            moved = _likeliest_range(_held_out(rows, places, chosen, rng))
            if not LEAST_SHARE <= moved.mean() <= 1 - LEAST_SHARE or (moved == part).all():
                break
            part = moved
        part = part if part.mean() <= 1 / 2 else ~part
        yield _judged(rows, *cut(part), rng, by_range=True)


def _likeliest_range(likelier: Doubles) -> BoolArray:
    """The range in which rows that are more like the part outnumber the others by most: (n,) -> (n,) bool."""
    sums = np.concatenate([[0.0], np.cumsum(np.sign(likelier))])
    lowest = np.minimum.accumulate(sums)
    stop = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: stop + 1]))
    return (np.arange(len(likelier)) >= start) & (np.arange(len(likelier)) < stop)


def neighbourhoods(rows: FloatArray, rng: np.random.Generator, count: int = NEIGHBOURHOODS) -> Positions:
    """Cut rows in two again and again, the largest piece first: (n, dim) -> (n,) numbers of pieces from 0.

    No piece has more than three times the rows of the mean piece, however much closer together some rows are than
    others: another model may put all of its vectors into a narrow cone.
    """
    pieces = [np.arange(len(rows))]
    while len(pieces) < count:
        largest = max(range(len(pieces)), key=lambda number: len(pieces[number]))
        rows_of = pieces.pop(largest)
        side = _halved(rows[rows_of], rng)
        pieces += [rows_of[side], rows_of[~side]]
    places = np.empty(len(rows), np.intp)
    for number, piece in enumerate(pieces):
        places[piece] = number
    return places


def _halved(rows: FloatArray, rng: np.random.Generator) -> BoolArray:
    """One side of two: two means, or the lower half along their difference where one side is nearly empty."""
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


def _spread(alike: FloatArray, count: int) -> list[int]:
    """Neighbourhoods far from each other: each next one is the least like those before."""
    found = [int(alike.mean(axis=0).argmin())]
    nearest = alike[found[0]].copy()
    while len(found) < count:
        found.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, alike[found[-1]])
    return found


def _grown(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> BoolArray | None:
    """Neighbourhoods that are more like the part than like the rest, by those of both that they were not fitted to."""
    for _ in range(STEPS):
        if min(chosen.sum(), (~chosen).sum()) < FEWEST:
            return None
        likelier = _held_out(rows, places, chosen, rng)
        now = np.array([np.median(likelier[places == place]) > 0 for place in range(len(chosen))])
        if (now == chosen).all():
            break
        chosen = now
    return chosen if min(chosen.sum(), (~chosen).sum()) >= FEWEST else None


def _judged(
    rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator, *, by_range: bool = False
) -> Mixture:
    part = chosen[places]
    draws = [_held_out(rows, places, chosen, rng) for _ in range(SPLITS)]
    own = np.mean([(draw[part] > 0).mean() for draw in draws]), np.mean([(draw[~part] < 0).mean() for draw in draws])
    outside = float(np.mean([_outside(rows, places, chosen, rng) for _ in range(SPLITS)]))
    others = rng.permutation(np.flatnonzero(~part))[: part.sum()]
    ratio = effective_rank(rows[part][: len(others)]) / effective_rank(rows[others])
    return Mixture(
        told_apart=float(min(own)),
        share=float(part.mean()),
        rank_ratio=ratio,
        outside=outside,
        part=part,
        by_range=by_range,
    )


def _outside(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> float:
    """How far the part is outside the spectrum of one half of the rest, over how far the other half is."""
    rest = rng.permutation(np.flatnonzero(~chosen))
    fitted, left_out = np.split(rest, [len(rest) // 2])
    density = _Gaussian.of(rows[np.isin(places, fitted)], SLIGHTLY_SHRUNK)
    far = [
        np.array([np.median(density.squares(rows[places == place])) for place in side])
        for side in (np.flatnonzero(chosen), left_out)
    ]
    return float(np.quantile(far[0], NEAREST) / np.quantile(far[1], FARTHEST))


def _held_out(rows: FloatArray, places: Positions, chosen: BoolArray, rng: np.random.Generator) -> Doubles:
    """Log p(row | part) - log p(row | rest), each row by neighbourhoods other than its own: (n,) float64."""
    found = np.empty(len(rows))
    learned = np.zeros(len(chosen), bool)
    for side in (chosen, ~chosen):
        members = rng.permutation(np.flatnonzero(side))
        learned[members[: len(members) // 2]] = True
    for half in (learned, ~learned):
        inside, outside = (np.flatnonzero((half & side)[places]) for side in (chosen, ~chosen))
        fewest = min(len(inside), len(outside))
        densities = [_Gaussian.of(rows[rng.permutation(side)[:fewest]]) for side in (inside, outside)]
        judged = ~half[places]
        found[judged] = densities[0].of_rows(rows[judged]) - densities[1].of_rows(rows[judged])
    return found


@dataclass(frozen=True)
class _Gaussian:
    """A normal density whose covariance is shrunk towards its mean variance."""

    mean: FloatArray
    whitening: FloatArray
    log_volume: float

    @classmethod
    def of(cls, rows: FloatArray, shrunk_by: float = SHRUNK) -> _Gaussian:
        mean = rows.mean(axis=0)
        centred = (rows - mean).astype(np.float64)
        covariance = centred.T @ centred / len(rows)
        variance = max(float(np.trace(covariance)) / len(covariance), 1e-12)
        shrunk = (1 - shrunk_by) * covariance + shrunk_by * variance * np.eye(len(covariance))
        root = np.linalg.cholesky(shrunk)
        whitening = np.linalg.inv(root).T.astype(np.float32)
        return cls(mean, whitening, float(np.log(np.diag(root)).sum()))

    def of_rows(self, rows: FloatArray) -> Doubles:
        """Log density of rows, but for a constant: (n, dim) -> (n,)."""
        return -0.5 * self.squares(rows) - self.log_volume

    def squares(self, rows: FloatArray) -> Doubles:
        """Squared Mahalanobis distances: (n, dim) -> (n,)."""
        white = (rows - self.mean) @ self.whitening
        squares: Doubles = np.einsum("nd,nd->n", white, white, dtype=np.float64)
        return squares


def effective_rank(rows: FloatArray) -> float:
    """Participation ratio of the variances, (their sum)^2 / sum of squares: in how many directions rows vary."""
    centred = (rows - rows.mean(axis=0)).astype(np.float64)
    products = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    squares = float((products**2).sum())
    return float(np.trace(products) ** 2 / squares) if squares else 0.0


def _chosen(count: int, members: RowNumbers | Positions) -> BoolArray:
    chosen = np.zeros(count, bool)
    chosen[members] = True
    return chosen
