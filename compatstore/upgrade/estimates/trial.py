"""Try an upgrade on a sample: embed it natively, transform it, measure every way to serve the gallery; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.errors import InvalidInput
from compatstore.evaluation import DecisionSettings, DecisionTable, EvaluationSample
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.judgements import places_among
from compatstore.evaluation.relevance import relevance_from_judgements, relevance_from_labels
from compatstore.evaluation.strategies import rank_strategies
from compatstore.evaluation.whole import Passing, WholeFigures, WholeSearch
from compatstore.storage.columns import VersionValues
from compatstore.storage.records import RunRecord
from compatstore.storage.shrinkage import has_shrinkage, kept_cosines
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows, TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.queries import SMALLEST_SAMPLE, read_gallery
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.requests.gates import Gates, require_ground_truth, require_judged
from compatstore.upgrade.requests.queries import Queries

DEPTH = 10
FUSED_SHARES = (0.0, 1.0)
BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, kw_only=True)
class SampleSettings(DecisionSettings):
    """Settings of an estimate; metrics are those of both versions (`decision_settings`).

    Args:
        sample: Items of the sample: each is a query, and searched by the others.
        labels: Column of labels, or application queries, which then search in place of items. With None, or queries
            without judgements, agreement is measured, not quality.
        shares: Budgets to measure beside `BUDGETS`, in (0, 1).
        fused_shares: Shares of natives at which fused search is measured.
        criterion, seed, neighbours: See `DecisionSettings`.

    Raises:
        InvalidInput: The sample is too small.
    """

    sample: int = 2000
    labels: str | Queries | None = None
    shares: tuple[float, ...] = ()
    fused_shares: tuple[float, ...] = FUSED_SHARES

    def __post_init__(self) -> None:
        if self.sample < SMALLEST_SAMPLE:
            raise InvalidInput("try an upgrade", expected=f"a sample >= {SMALLEST_SAMPLE}", found=f"{self.sample}")
        require_judged((self.criterion,), self.labels)
        require_ground_truth(() if self.criterion == "map" else (self.criterion,), self.labels)
        if isinstance(self.labels, Queries) and self.labels.judged:
            object.__setattr__(self, "depth", DEPTH)
        super().__post_init__()

    @classmethod
    def of(cls, terms: Gates, run: RunRecord, sample: int = 2000) -> SampleSettings:
        """The settings of gates; `sample` is the size if they name none."""
        return cls(sample=terms.sample or sample, labels=terms.labels, criterion=terms.criterion, seed=run.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleResults:
    """Results of the queries of a sample, as a table and one by one.

    Args:
        sample: Items, and the queries that searched them.
        table: Every way to serve the gallery.
        figures: For each row of the table the figure that decides of each query, (q,) float64: NaN where no item is
            correct for the query.
    """

    sample: Sample
    table: DecisionTable
    figures: tuple[Doubles, ...]


def try_upgrade(context: UpgradeContext, settings: SampleSettings, progress: OnProgress = None) -> DecisionTable:
    """Measure an upgrade on items of the gallery before, or while, it runs.

    Items that are native in the target already are taken as they are, the others are embedded for the trial and
    not kept. Queries are the items of the sample that the artifact has not learned from, or the app's own. With labels
    or judgements they search the whole gallery by the strategies that need no native vector of it; backfills are
    measured on the sample, and corrected by the known figures of the other strategies. All queries compare the
    same budgets, so one gallery and one sample give one advice.

    Args:
        context: The upgrade, resolved: the path and the order of the backfill.
        settings: Size of the sample and the criterion.
        progress: Called as items are embedded, and as queries search the gallery and the sample.

    Without an artifact the source is compared with the target alone: native vectors are read, or embedded here.

    Raises:
        UpgradeError: Too few items could be embedded natively.
        InvalidInput: There is no such column of labels, or too few items.
    """
    sample = draw_sample(context, settings.sample, labels=settings.labels, seed=settings.seed, progress=progress)
    if not sample.has_ground_truth and context.catalog.encoder(context.run.target) is None:
        sample = sample.only(sample.embedded)  # agreement needs native vectors, and nothing can make the others
    shares = tuple(sorted({*BUDGETS, *settings.shares}))
    settings = replace(settings, shares=shares) if context.run.path else replace(settings, shares=(), fused_shares=())
    return rank_on_sample(context, sample, settings, progress=progress).table


def rank_on_sample(
    context: UpgradeContext,
    sample: Sample,
    settings: SampleSettings,
    *,
    served: bool = False,
    progress: OnProgress = None,
) -> SampleResults:
    """Let the queries of a sample search its items, and the whole gallery where nothing has to be embedded for that.

    Args:
        context: The upgrade.
        sample: n items.
        settings: Criterion.
        served: True to measure the target's current column, rather than a hop, and the fusion that the gallery is
            served with, where there is one.
        progress: Called as queries search the gallery and the sample.
    """
    whole, decided = None, decision_settings(context, settings)
    complete = sample.population == len(sample.places)
    made = sample.served if served else sample.made
    urgent = np.arange(len(sample.places)) if served else order_of_sample(context, sample)
    factors = factors_of(context, made)
    fusion = context.registry.fusion_served(context.run.target) if served else None
    has_target = served or context.run.path != ()
    if sample.has_ground_truth and not complete and has_target:
        read = partial(read_gallery, context, served=served, shrinkage=factors is not None)
        whole = _search_whole(sample, decided, fusion, read, progress)
    trial = replace(as_evaluation_sample(sample, made.vectors, urgent, factors), whole=whole, served=fusion)
    monitor = Monitor("rank", 0, progress)
    strategies = tuple(
        strategy
        for strategy in rank_strategies(trial, decided, progress=monitor.reach)
        if has_target or "t/h" not in strategy.notation  # without a transform there are no such strategies
    )
    table = replace(decide_between(trial, decided, strategies), provenance=sample.provenance)
    metrics = (decided if sample.has_ground_truth else decided.without_ground_truth).metrics
    figures = tuple(strategy.found.values[metrics.index(table.criterion)] for strategy in strategies)
    return SampleResults(sample=sample, table=table, figures=figures)


def _search_whole(
    sample: Sample,
    decided: DecisionSettings,
    fusion: Fusion | None,
    read: Callable[[int], Iterator[Passing]],
    progress: OnProgress,
) -> WholeFigures:
    """Let the queries of a sample search all items that have a vector in the source; the table is read twice."""
    asked, places, every = sample.queries, sample.queries.itself, np.arange(sample.population)
    if asked.judged is not None:
        relevance = relevance_from_judgements(asked.judged, len(asked), len(every), places, every, decided.depth)
    else:
        assert sample.classes is not None
        relevance = relevance_from_labels(sample.classes[places], sample.classes, places, every)
    search = WholeSearch(
        source=asked.source,
        target=asked.target,
        metrics=(decided.source_metric, decided.target_metric),
        relevance=relevance,
        seed=decided.seed,
        fusion=fusion,
    )
    monitor = Monitor("search", 2 * sample.population, progress)
    monitor.begin()

    def batches() -> Iterator[Passing]:
        for batch in read(search.batch_rows):
            monitor.advance(len(batch.places))
            yield batch

    return search.run(batches, decided.ks)


def factors_of(context: UpgradeContext, made: VersionValues) -> Doubles | None:
    """Shrinkage factors of n items' vectors in the target, as of `EvaluationSample`."""
    if not has_shrinkage(context.catalog, context.target_record, context.run.path):
        return None
    return kept_cosines(context.catalog, made.origin, made.uncertainty)


def as_evaluation_sample(
    sample: Sample, transformed: FloatArray, urgent: npt.NDArray[np.intp], factors: Doubles | None = None
) -> EvaluationSample:
    """The sample as strategies are measured on it.

    Args:
        sample: n items.
        transformed: (n, dim) float32, served if nothing more is embedded natively.
        urgent: (n,) rows of the sample in the order of the backfill.
        factors: (n,) float64, shrinkage factors of the transformed vectors; None for none.
    """
    classes, queries = sample.classes, sample.queries
    return EvaluationSample(
        source_queries=queries.source,
        target_queries=queries.target,
        source=sample.source.vectors,
        transformed=transformed,
        native=np.where(sample.embedded[:, None], sample.native, transformed),
        # An item that cannot be embedded gives way to the next in order.
        order=urgent[np.argsort(~sample.embedded[urgent], kind="stable")],
        query_labels=None if classes is None else classes[queries.itself],
        gallery_labels=None if classes is None else classes[sample.places],
        query_ids=places_among(queries.itself, sample.places),
        gallery_ids=np.arange(len(sample.places)),
        population=sample.population,
        judged=None if queries.judged is None else queries.judged.of_items(sample.places),
        drawn=sample.drawn,
        factors=factors,
        is_native=sample.is_native,
    )


def decision_settings(context: UpgradeContext, settings: SampleSettings) -> DecisionSettings:
    """The settings with the metrics of both versions."""
    versions = (context.run.source, context.run.target)
    source, target = (context.registry.record(name).version().metric for name in versions)
    return replace(settings, source_metric=source, target_metric=target)


def order_of_sample(context: UpgradeContext, sample: Sample) -> npt.NDArray[np.intp]:
    """The order in which the run's policy would backfill the sample, as it has been transformed."""
    if not context.run.path:
        return np.arange(len(sample.places))
    sigma2 = sample.made.uncertainty
    rows = _SampleRows(
        ids=sample.ids,
        source=sample.source.vectors,
        sigma2=None if np.isnan(sigma2).all() else sigma2,
        table=TableRows(context),
    )
    return order(context.run.policy, rows, context.run.seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _SampleRows(ArrayRows):
    """Items of a sample: their vectors are in memory, the app's columns are in the table.

    Args:
        table: The gallery that the sample was drawn from.
    """

    table: TableRows

    def column(self, name: str) -> Doubles:
        """(n,) float64, as of `TableRows`."""
        return self.table.column(name)[self._places]

    @cached_property
    def _places(self) -> Positions:
        """Rows of the items in the table, (n,) intp."""
        places = pc.index_in(self.ids, value_set=self.table.ids)
        return np.asarray(places.to_numpy(zero_copy_only=False), np.intp)
