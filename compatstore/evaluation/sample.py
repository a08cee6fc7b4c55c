"""Input of a decision: queries and items embedded in both versions, and settings of the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.boundary import array_of, checked_fields, require_all
from compatstore.evaluation.curve import as_permutation, native_count
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.judgements import Judgements
from compatstore.evaluation.metrics import require_ranks
from compatstore.evaluation.relevance import require_length
from compatstore.evaluation.sampled import GRADED
from compatstore.evaluation.whole import WholeFigures
from compatstore.versions import Metric

AGREEMENT = ("agreement", "unchanged")  # with the full backfill, and with the status quo


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleQueries:
    """q queries, each with a vector in both versions: items of a sample, or application queries.

    Args:
        source: (q, source dim) float32.
        target: (q, target dim) float32.
        itself: (q,) intp, the place in the gallery of a query that is an item; -1 for one that is none.
        judged: Correct items by their place in the gallery; None without judgements.
        left_out: Reasons for which queries were left out -> their number.
        lacking: Number of items judged correct that are not in the gallery.
        names: q ids of application queries; () if the queries are items of the sample.
        texts: q texts, paths or URIs that they were embedded from; () where they are none.
    """

    source: FloatArray
    target: FloatArray
    itself: Positions
    judged: Judgements | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    lacking: int = 0
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.itself)

    def only(self, chosen: BoolArray) -> SampleQueries:
        """Some of the queries, (q,) bool."""
        names, texts = (tuple(compress(values, chosen)) for values in (self.names, self.texts))
        return replace(
            self,
            source=self.source[chosen],
            target=self.target[chosen],
            itself=self.itself[chosen],
            judged=None if self.judged is None else self.judged.of_queries(np.flatnonzero(chosen)),
            names=names,
            texts=texts,
        )

    @property
    def provenance(self) -> str:
        """Reasons why queries were left out, as the end of a sentence."""
        reasons = ", ".join(f"{count} {why}" for why, count in self.left_out.items() if count)
        lacking = f" {self.lacking} items that were judged correct are not in the gallery." if self.lacking else ""
        return (f" ({reasons})." if reasons else ".") + lacking


@checked_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationSample:
    """Queries and gallery items embedded in both versions: the input of a decision.

    Args:
        source_queries: (q, d_s) floats.
        target_queries: (q, d_t) floats, the same queries embedded with the target model.
        source: (n, d_s) floats, the gallery in the source's space.
        transformed: (n, d_t) floats, the gallery after a hop.
        native: (n, d_t) floats, the gallery embedded with the target model.
        order: (n,) integers, a permutation of the gallery's rows: which are backfilled first.
        query_labels: (q,) integers or strings, or None. Without labels and judgements agreement is measured.
        gallery_labels: (n,) of the same kind, or None.
        query_ids: (q,) integers or strings, or None. A query never finds the item of its own id.
        gallery_ids: (n,) of the same kind, each once, or None.
        population: Items of the gallery that these n were drawn from at random, >= n; None if they are all of it.
            Figures are then as of that gallery, and intervals allow for the draw.
        whole: Results of the same queries in the whole of that gallery by the strategies that need no native vector of
            it ("s/s", "t/s", "t/h"), or None if it was not searched. Without it a sample has no CMC: it has few of the
            very nearest items.
        served: The fusion that is served now, measured beside the other strategies; None without one.
        is_native: (n,) bool, items whose vector in `transformed` is native, which that fusion needs; None for none.
        judged: Relevance judgements, in place of labels; None without judgements.
        factors: (n,) floats, shrinkage factor of the cosine of a query with each of `transformed`, by its predicted
            error; 1 where `transformed` holds a native vector. None for none.
        drawn: (n,) bool, items that were drawn at random and stand for the rest of the population; the others are
            always in the sample, and represent themselves. None for all.

    Raises:
        InvalidInput: Shapes or numbers do not match. `order` is not a permutation, labels are on one side only, or the
            population is below n.

    Examples:
        >>> sample = cs.evaluation.EvaluationSample(
        ...     source_queries=source, target_queries=native, source=source, transformed=source, native=native,
        ...     order=np.arange(60), query_labels=labels, gallery_labels=labels,
        ...     query_ids=np.arange(60), gallery_ids=np.arange(60),
        ... )
        >>> len(sample.native)
        60
    """

    source_queries: FloatArray
    target_queries: FloatArray
    source: FloatArray
    transformed: FloatArray
    native: FloatArray
    order: npt.ArrayLike
    query_labels: npt.ArrayLike | None = None
    gallery_labels: npt.ArrayLike | None = None
    query_ids: npt.ArrayLike | None = None
    gallery_ids: npt.ArrayLike | None = None
    population: int | None = None
    whole: WholeFigures | None = None
    served: Fusion | None = None
    is_native: BoolArray | None = None
    judged: Judgements | None = None
    drawn: BoolArray | None = None
    factors: Doubles | None = None

    def __post_init__(self) -> None:
        for name in ("source_queries", "target_queries", "source", "transformed", "native"):
            object.__setattr__(self, name, array_of(getattr(self, name), "try an upgrade", name, ndim=2))
        if self.factors is not None:
            factors = array_of(self.factors, "try an upgrade", "factors", ndim=1, dtype=np.float64)
            object.__setattr__(self, "factors", factors)
        queries, items, population = len(self.source_queries), len(self.source), self.population
        made, native = self.transformed.shape, self.native.shape
        require_all(
            "try an upgrade",
            (made == native, f"transformed of {native}", made),
            ((self.query_labels is None) == (self.gallery_labels is None), "labels on both sides or none", "one side"),
            (self.judged is None or self.query_labels is None, "labels or judgements", "both"),
            (self.complete or self.drawn is None or bool(np.any(self.drawn)), "an item that was drawn", "none"),
            (population is None or population >= items, f"a population of {items} or more", population),
        )
        if self.judged is not None:
            self.judged.require_within(queries, items)
        for values in ("target_queries", "query_labels", "query_ids"):
            require_length(getattr(self, values), queries, values)
        for values in ("native", "gallery_labels", "gallery_ids", "drawn", "factors", "is_native"):
            require_length(getattr(self, values), items, values)
        as_permutation(self.order, items)

    @property
    def complete(self) -> bool:
        """True if the gallery is here as a whole, so that every figure is exact."""
        return self.population is None or self.population == len(self.source)

    @property
    def weight(self) -> float:
        """Items of the gallery that each of those that were drawn stands for, >= 1."""
        if self.population is None or self.complete:
            return 1.0
        certain = 0 if self.drawn is None else int((~self.drawn).sum())
        return (self.population - certain) / (len(self.source) - certain)

    @property
    def _stands_for(self) -> Doubles:
        """(n,) float64, items of the gallery that each one stands for."""
        return np.where(np.ones(len(self.source), bool) if self.drawn is None else self.drawn, self.weight, 1.0)

    def share_of(self, rows: BoolArray) -> float:
        """Share of the gallery that some rows, (n,) bool, stand for."""
        if self.drawn is None:
            return float(rows.mean())
        return float(self._stands_for[rows].sum() / self._stands_for.sum())

    def factors_of(self, native: BoolArray) -> Doubles | None:
        """(n,) float64, `factors` where some rows, (n,) bool, are native; None if they are unknown."""
        return None if self.factors is None else np.where(native, 1.0, self.factors)

    def filled(self, share: float, native: BoolArray | None = None) -> BoolArray:
        """Rows that are native when a backfill has reached a share of the gallery: (n,) bool.

        Args:
            share: In [0, 1].
            native: (n,) bool, rows that are native already; none by default. The others follow in the backfill's order.
        """
        order, items = as_permutation(self.order, len(self.source)), len(self.source)
        filled = np.zeros(items, bool) if native is None else native.copy()
        order = order[np.argsort(~filled[order], kind="stable")]
        count = native_count(share, items)
        if self.drawn is not None:
            reached = self._stands_for[order].cumsum()
            count = int(np.searchsorted(reached, round(share * reached[-1], 6), side="right"))
        filled[order[:count]] = True
        return filled

    @property
    def has_ground_truth(self) -> bool:
        """True if labels or judgements define which items are correct."""
        return self.query_labels is not None or self.judged is not None


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """Settings of the measurement and comparison of strategies.

    Args:
        ks: The k of CMC@k.
        depth: The k of recall@k, nDCG@k and MRR@k, which judgements give; None to leave them out.
        criterion: The figure that decides: "map", "cmc@k" for one of `ks`, or with a depth "recall@k", "ndcg@k" or
            "mrr@k". Without ground truth it is always "agreement".
        shares: Budgets between a hop alone and a full backfill, in (0, 1).
        fused_shares: Shares of natives at which fused search is measured, in [0, 1]; the weight is chosen
            by the criterion, or by mAP where the items are a sample. Each takes about as long as eight budgets.
        source_metric: Distance of the source's space.
        target_metric: Distance of the target's space.
        neighbours: Without ground truth: the first results of the whole gallery that are compared. In a sample of it
            these are fewer, but never below 5.
        confidence: Level of all intervals, in (0, 1).
        resamples: Draws of the bootstrap, 2 or more.
        seed: Seed of the draws.

    Raises:
        InvalidInput: A setting is out of its range.

    Examples:
        >>> cs.evaluation.DecisionSettings(shares=(0.05, 0.2), criterion="cmc@1").shares
        (0.05, 0.2)
    """

    ks: tuple[int, ...] = (1, 5)
    depth: int | None = None
    criterion: str = "map"
    shares: tuple[float, ...] = (0.1, 0.25, 0.5)
    fused_shares: tuple[float, ...] = ()
    source_metric: Metric = "l2"
    target_metric: Metric = "l2"
    neighbours: int = 10
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.criterion not in AGREEMENT:
            require_ranks(self.ks)
        require_all(
            "decide on an upgrade",
            (self.depth is None or self.depth >= 1, "a depth of 1 or more", f"{self.depth}"),
            (self.criterion in self.metrics, f"a criterion of {self.metrics}", repr(self.criterion)),
            (all(0 < share < 1 for share in self.shares), "shares between 0 and 1", f"{self.shares}"),
            (all(0 <= share <= 1 for share in self.fused_shares), "fused_shares from 0 to 1", f"{self.fused_shares}"),
            (0 < self.confidence < 1, "a confidence between 0 and 1", f"{self.confidence}"),
            (self.resamples > 1, "2 resamples or more", f"{self.resamples}"),
        )

    @property
    def without_ground_truth(self) -> DecisionSettings:
        """The same sample without ground truth: agreement is measured in place of quality."""
        return replace(self, ks=(), depth=None, criterion=AGREEMENT[0])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of all figures."""
        if not self.ks:
            return AGREEMENT
        graded = () if self.depth is None else tuple(f"{name}@{self.depth}" for name in GRADED)
        return (*(f"cmc@{k}" for k in self.ks), *graded, "map")
