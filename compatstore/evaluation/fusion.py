"""Fusion: one distance from an item's vectors in two versions, and the constants that make the two comparable.

A query carries both of its embeddings. With d_s and d_t its distances to an item's source and target vector,

    fused = (1 - w) z_s + w z_t,    z = (d - mean) / deviation,

with the mean and the deviation of distances of that version. Native and transformed vectors of the target have other
means and deviations. Either each kind is standardised by its own, or both together, which leaves their distances as
they are to each other; which is better depends on the transform and is chosen with the weight. Where 10 and 50 % of
1,500 items were native (`benchmarks.fusion`), a choice between the two found up to 3.0 of mAP more than together alone
on photographs and 0.9 on glosses, and up to 1.5 more than apart alone on photographs of other classes and on fonts.

An item with one of the two vectors gets the expected distance for the other: the known one times their correlation. If
a tenth of the items lacked the target's vector, a correlation of 0 lost 0.7 to 3.4 of mAP on photographs and glosses,
one of 1 up to 1.4 there and 4.4 on fonts.

Distances are those of `measure`: |x|^2 - 2 q . x (l2), -cos (cosine) and -q . x (dot), so the contribution of a query
to its distance to every item counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.boundary import checked_fields, require_all
from compatstore.documents import read_record
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.distances import Blocks, Distances, shrunk_distances
from compatstore.evaluation.relevance import Relevance
from compatstore.shown import Shown
from compatstore.versions import Metric

Serving = Literal["source", "target", "fused"]  # by one version of an upgrade, or by both
CANDIDATES = 20
SAME_SHARE = 0.02  # items that cannot be embedded keep a gallery a little below the share that it was backfilled to


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One way to serve an upgrade, measured at one native share beside the status quo with the same queries.

    It is what an upgrade keeps of a measurement: with the weight of its fusion, with the merge of its two parts, and
    for each training round.

    Args:
        criterion: Figure that was measured, such as "map"; "agreement" without ground truth.
        truth: Ground truth, "labels" or "qrels"; "" for none.
        num_queries: Queries counted.
        native_share: Share of the gallery that was native in the target, from 0 to 1.
        weight: Weight of the target's distances, from 0, the source alone, to 1, the target alone; None for a merge.
        per_origin: Whether native and transformed vectors of the target are standardised apart.
        status_quo: The figure of the source's queries on the source's vectors; None if only differences are kept.
        served: The figure of this way; None as above.
        gain: Difference to the status quo, query by query; None without ground truth. The interval is simultaneous for
            all ways that were compared.
        target_gain: Difference of the target alone to the status quo. None if it was not measured.
        over_target: Difference to the target alone, each query by the weight that other queries chose: the loss when
            the source is retired. If queries evaluate a self-training upgrade, the upper end of the interval is that
            of the served weight. None if it was not measured.

    Raises:
        InvalidInput: A weight or the share is out of range.
    """

    criterion: str
    truth: str
    num_queries: int
    native_share: float
    weight: float | None = None
    per_origin: bool = False
    status_quo: Estimate | None = None
    served: Estimate | None = None
    gain: Estimate | None = None
    target_gain: Estimate | None = None
    over_target: Estimate | None = None

    def __post_init__(self) -> None:
        require_all("measure an upgrade", *_shares(self.weight or 0.0, self.native_share))

    def __str__(self) -> str:
        """The gain as text: "+3.0 points of map (+1.2 to +4.9) by 200 queries, ..."."""
        if self.gain is None:
            return f"not measured, as there is no ground truth, at a native share of {self.native_share:.4g}"
        return (
            f"{points(self.gain, f' of {self.criterion}')} by {self.num_queries} queries, "
            f"correct by {self.truth}, at a native share of {self.native_share:.4g}"
        )

    @property
    def weighed(self) -> str:
        """The weight and its gain: "weight 0.3: +3.0 points of map ..."."""
        return f"weight {self.weight:.4g}: {self}"

    @property
    def alone(self) -> Measurement | None:
        """The target alone, by the same queries; None if it was not measured."""
        if self.target_gain is None:
            return None
        return replace(self, weight=1.0, gain=self.target_gain, over_target=None)

    @property
    def loss(self) -> str:
        """The loss of searches when the source is retired, as text for people; "" if it was not measured."""
        if self.over_target is None:
            return ""
        value, low, high = (0.0 - end for end in (self.over_target.value, self.over_target.high, self.over_target.low))
        return (
            f"{self.criterion} of the target alone is {points(Estimate(value=value, low=low, high=high))} relative to "
            f"the fused search, measured at a native share of {self.native_share:.4g}, correct by {self.truth}"
        )


def points(gain: Estimate, of: str = "") -> str:
    """A difference for people, in percent: "+3.0 points (+1.2 to +4.9)"; `of` names the figure."""
    value, low, high = (100 * end for end in (gain.value, gain.low, gain.high))
    return f"{value:+.1f} points{of} ({low:+.1f} to {high:+.1f})"


def _shares(weight: float, native_share: float) -> Iterator[tuple[bool, str, float]]:
    """Rules of a weight and a native share, for `require_all`."""
    for name, value in (("a weight", weight), ("a native share", native_share)):
        yield 0 <= value <= 1, f"{name} from 0 to 1", value


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Standardisation:
    """Mean and deviation of distances of one kind: z = (d - mean) / deviation.

    Args:
        mean: Over the queries and items of a sample.
        deviation: The same, around each query's own mean; above 0.

    Raises:
        InvalidInput: The deviation is not above 0, or a number is not finite.
    """

    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and np.isfinite(self.deviation) and self.deviation > 0):
            found = f"mean {self.mean}, deviation {self.deviation}"
            raise InvalidInput(
                "standardise distances", expected="a finite mean and a finite deviation > 0", found=found
            )

    def apply(self, distances: Doubles) -> Doubles:
        """Standardised distances, of the same shape."""
        standardised: Doubles = (distances - self.mean) / self.deviation
        return standardised


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Fusion(Shown):
    """Fusion of the distances in two versions; plain numbers, stored with an upgrade.

    Args:
        weight: Weight of the target's distance, in [0, 1]. 0 is the source's search as it is and 1 the target's:
            nothing is standardised.
        source: Statistics of distances to source vectors.
        native: Statistics of distances to native vectors of the target.
        transformed: Statistics of distances to transformed vectors of the target.
        per_origin: Whether distances to native and to transformed vectors are standardised apart, each by its own mean
            and deviation, or together, by those of the mixture of both at `native_share`.
        correlation: Correlation of an item's standardised distances in the two versions, in [-1, 1]. If an item has a
            vector in one version only, the expected other distance takes its place: the correlation times the
            standardised distance that is known.
        candidates: Items that each version's search brings in at first, at least.
        choices: Weights with their measured figures, by ascending native share; one if the caller named it.
        native_share: Share of the gallery that was native in the target when the weight was last set.
        shrinkage: True if distances to transformed vectors are shrunk by their predicted error; the constants and
            weights are of shrunk distances.

    Raises:
        InvalidInput: A number is out of range.

    Examples:
        >>> fusion = cs.evaluation.Fusion(weight=0.5)
        >>> cs.evaluation.Fusion.from_json(fusion.as_json()) == fusion
        True
    """

    weight: float
    source: Standardisation = field(default_factory=Standardisation)
    native: Standardisation = field(default_factory=Standardisation)
    transformed: Standardisation = field(default_factory=Standardisation)
    per_origin: bool = False
    correlation: float = 0.0
    candidates: int = CANDIDATES
    choices: tuple[Measurement, ...] = ()
    native_share: float = 0.0
    shrinkage: bool = False

    def __post_init__(self) -> None:
        require_all(
            "fuse two versions",
            *_shares(self.weight, self.native_share),
            (-1 <= self.correlation <= 1, "a correlation from -1 to 1", self.correlation),
            (self.candidates >= 1, "1 candidate or more", self.candidates),
        )

    @property
    def single(self) -> bool:
        """True if one version alone is searched."""
        return self.weight in (0, 1)

    @property
    def choice(self) -> Measurement | None:
        """The choice that the weight follows: the last one for no more natives than there are; None without choices."""
        reached = [choice for choice in self.choices if choice.native_share <= self.native_share + SAME_SHARE]
        return (reached or self.choices[:1])[-1] if self.choices else None

    @property
    def weighed(self) -> str:
        """The weight, with its measurement if there is one: "weight 0.3: +3.0 points of map ..."."""
        return f"weight {self.weight:.4g}" if self.choice is None else self.choice.weighed

    def at(self, native_share: float) -> Fusion:
        """The same when a share of the gallery is native: with the weight that was chosen for it."""
        there = replace(self, native_share=native_share)
        choice = there.choice
        if choice is None:
            return there
        return replace(there, weight=choice.weight or 0.0, per_origin=choice.per_origin)

    def named(self, weight: float) -> Fusion:
        """The same with a weight that the caller names."""
        return replace(self, weight=weight, choices=())

    def distances(
        self,
        source: Doubles,
        target: Doubles,
        native: BoolArray,
        in_source: BoolArray | None = None,
        in_target: BoolArray | None = None,
    ) -> Doubles:
        """Fused distances of items to their queries.

        Args:
            source: (..., n) float64, distances to source vectors.
            target: (..., n) float64, distances to target vectors, as `shrunk` gives them.
            native: (n,) bool, items whose target vector is native.
            in_source: (n,) bool, items that have a source vector; None for all. The distances of others may be
                anything.
            in_target: (n,) bool, items that have a target vector; None for all.

        Returns:
            (..., n) float64; infinite for an item that a search cannot find.
        """
        here = np.ones(len(native), bool) if in_source is None else in_source
        there = np.ones(len(native), bool) if in_target is None else in_target
        if self.single:
            alone, findable = (source, here) if self.weight == 0 else (target, there)
            return np.where(findable, alone, np.inf)
        left = self.source.apply(source)
        right = self._standardised(target, native)
        left, right = (
            np.where(here, left, self.correlation * right),
            np.where(there, right, self.correlation * left),
        )
        return np.where(here | there, (1.0 - self.weight) * left + self.weight * right, np.inf)

    def shrunk(self, target: Doubles, factors: Doubles | float | None, metric: str) -> Doubles:
        """Distances to target vectors as the fusion compares them.

        Args:
            target: (..., n) float64.
            factors: (n,) float64 or one, see `shrunk_distances`; None if they are not known.
            metric: Metric of the target.
        """
        return target if not self.shrinkage or factors is None else shrunk_distances(target, factors, metric)

    @property
    def mixture(self) -> Standardisation:
        """Mean and deviation of distances to the target's vectors, native and transformed ones together."""
        shares = ((self.native_share, self.native), (1.0 - self.native_share, self.transformed))
        mean = sum(share * kind.mean for share, kind in shares)
        square = sum(share * (kind.deviation**2 + (kind.mean - mean) ** 2) for share, kind in shares)
        return Standardisation(mean=mean, deviation=float(np.sqrt(square)))

    def _standardised(self, target: Doubles, native: BoolArray) -> Doubles:
        """Standardised distances to the target's vectors."""
        if not self.per_origin:
            return self.mixture.apply(target)
        return np.where(native, self.native.apply(target), self.transformed.apply(target))

    def as_json(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: object) -> Fusion:
        """Read back the result of `as_json`.

        Raises:
            Malformed: It is something else.
        """
        return read_record(cls, values, "fusion")


def standardise(source: Distances, native: Distances, transformed: Distances, itself: Positions) -> Fusion:
    """Measure the constants of a fusion on a sample; its weight is 0.5 until another is chosen.

    Native and transformed vectors are of the same items: which items a backfill took first decides nothing.

    Args:
        source: q queries against n items in the source's space.
        native: The same queries and items in the target's space, natively embedded.
        transformed: The same, transformed.
        itself: (q,) intp, the item that a query is, which it does not find; -1 for none.
    """
    totals, pairs, products = np.zeros((3, 2)), 0, 0.0
    for blocks in zip(source.blocks(), native.blocks(), transformed.blocks(), strict=True):
        rows = [block for _, block in blocks]
        others = np.ones(rows[0].shape, bool)
        own = itself[blocks[0][0] : blocks[0][0] + len(others)]
        others[own >= 0, own[own >= 0]] = False
        pairs += int(others.sum())
        centred = []
        for place, block in enumerate(rows):
            centre = block.mean(axis=1, keepdims=True, where=others)
            centred.append(np.where(others, block - centre, 0.0))
            totals[place] += (centre * others).sum(), np.square(centred[-1]).sum()
        products += float((centred[0] * centred[2]).sum())
    means, squares = totals.T / max(pairs, 1)
    deviations = np.sqrt(squares)
    kinds = [
        Standardisation(mean=float(mean), deviation=float(deviation) or 1.0)
        for mean, deviation in zip(means, deviations, strict=True)
    ]
    scale = float(deviations[0] * deviations[2]) * max(pairs, 1)
    correlation = float(np.clip(products / scale, -1.0, 1.0)) if scale else 0.0
    return Fusion(weight=0.5, source=kinds[0], native=kinds[1], transformed=kinds[2], correlation=correlation)


def fused_blocks(
    source: Blocks,
    target: Blocks,
    native: BoolArray,
    relevance: Relevance,
    fusions: Sequence[Fusion],
    factors: Doubles | None = None,
    metric: Metric = "cosine",
) -> Iterator[tuple[int, Doubles]]:
    """Fused distances of n items by several fusions, block by block: (b, fusions * n) float64, fusion after fusion.

    Args:
        source: Queries and gallery in the source's space.
        target: The same in the target's space, in blocks of the same size.
        native: (n,) bool, items whose target vector is native.
        relevance: The correct items; items are in the order that breaks ties.
        fusions: Fusions to compare.
        factors: (n,) float64, see `Fusion.shrunk`.
        metric: Metric of the target, if there are factors.
    """
    native, kept = native[relevance.order], None if factors is None else factors[relevance.order]
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        near, far = (np.take(block, relevance.order, axis=1) for block in (left, right))
        found = np.stack(
            [fusion.distances(near, fusion.shrunk(far, kept, metric), native) for fusion in fusions], axis=1
        )
        yield start, found.reshape(len(found), -1)


def distances_to(query: FloatArray, vectors: FloatArray, metric: str) -> Doubles:
    """Distances of queries to vectors, row by row, as `measure` defines them but rounded: (n,) float64.

    Equal vectors have equal distances. A vector without a direction has NaN under cosine.

    Args:
        query: (n, d) float32, a query for each vector, or (d,) for all.
        vectors: (n, d) float32.
        metric: "l2", "cosine" or "dot".
    """
    items = vectors.astype(np.float64)
    queries = np.broadcast_to(query.astype(np.float64), items.shape)
    products: Doubles = np.einsum("nd,nd->n", items, queries)
    if metric == "dot":
        return -products
    lengths: Doubles = np.einsum("nd,nd->n", items, items)
    if metric == "l2":
        return lengths - 2.0 * products
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines: Doubles = products / (np.sqrt(lengths) * np.sqrt(np.einsum("nd,nd->n", queries, queries)))
    return -cosines
