"""The decision table: every strategy to serve a gallery during an upgrade, measured with the same queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.evaluation.advice import Advice, Option, advise, change_in, describe_agreement, fused_better
from compatstore.evaluation.bootstrap import (
    Estimate,
    Resampled,
    SampledGallery,
    figures_together,
    gains_together,
    kept_shares,
    resample,
    share_of_queries,
)
from compatstore.evaluation.fusion import Measurement, Serving
from compatstore.evaluation.fusion_choice import drawn_as_items
from compatstore.evaluation.metrics import Flips, require_counted
from compatstore.evaluation.sample import AGREEMENT, DecisionSettings, EvaluationSample
from compatstore.evaluation.strategies import ServingStrategy, is_fused, neighbours_of, rank_strategies, truth_of
from compatstore.shown import Shown

SAME_SHARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class DecisionRow:
    """One strategy to serve the gallery.

    Args:
        name: Text for people, as in "backfill 25%".
        notation: Query / gallery: s source, t target, h transformed, + mixed.
        share: Share of the gallery that it embeds natively.
        figures: "cmc@1", ..., "map" -> the figure with its interval. Figures that a sample cannot give are left out:
            CMC of strategies that need native vectors which do not exist yet. Without ground truth "agreement" with the
            first results of the full backfill, and "unchanged", agreement with those of the status quo.
        gains: The same names -> difference to the status quo, query by query, with its interval; none without ground
            truth.
        kept: Names -> share of the full backfill's figure, 1 at most; paired as well. Only figures that the full
            backfill has.
        flips: Queries mended and broken since the status quo, at the smallest k; None if CMC is left out.
        broken: The share of queries broken, with its interval; None as above.
        note: A remark, or "".

    Examples:
        >>> row = cs.evaluation.decide(sample).rows[0]
        >>> row.name, row.notation
        ('status quo', 's/s')
    """

    name: str
    notation: str
    share: float
    figures: dict[str, Estimate]
    gains: dict[str, Estimate]
    kept: dict[str, Estimate]
    flips: Flips | None = None
    broken: Estimate | None = None
    note: str = ""

    def percent_of(self, metric: str) -> str:
        """A figure for people, in percent; "-" where it is not known."""
        return self.figures[metric].percent if metric in self.figures else "-"


@dataclass(frozen=True, kw_only=True)
class DecisionTable(Shown):
    """All strategies, and the advice.

    Args:
        rows: From the status quo to the full backfill.
        advice: Advice by `criterion`.
        criterion: The figure that decided.
        truth: Ground truth, "labels" or "qrels"; "" for none: then agreement was measured, not quality.
        confidence: Level of all intervals; those of one figure, or of one kind, hold for all rows together, so that a
            row may be picked by them.
        num_queries: Queries counted.
        num_skipped: Queries left out, as no item of the gallery is correct for them.
        provenance: Origin of the queries, as a sentence, or "".
        neighbours: Without ground truth: the approximate number of first results of the whole gallery that were
            compared.

    Examples:
        >>> table = cs.evaluation.decide(sample)
        >>> table.criterion, table.num_queries
        ('map', 60)
    """

    rows: tuple[DecisionRow, ...]
    advice: Advice
    criterion: str
    truth: str
    confidence: float
    num_queries: int
    num_skipped: int
    provenance: str = ""
    neighbours: int = 10

    @property
    def has_ground_truth(self) -> bool:
        """True if labels or judgements define relevance."""
        return bool(self.truth)

    def change(self, row: DecisionRow) -> str:
        """The change of quality from the status quo to a way that has the criterion, as text; needs ground truth."""
        before, after = (one.figures[self.criterion].value for one in (self.rows[0], row))
        return change_in(self.criterion, before, after, row.gains[self.criterion], self.confidence, row.flips)

    def measurement(self, row: DecisionRow) -> Measurement:
        """A row by the criterion alone."""
        return Measurement(
            criterion=self.criterion,
            truth=self.truth,
            num_queries=self.num_queries,
            native_share=row.share,
            status_quo=self.rows[0].figures.get(self.criterion),
            served=row.figures.get(self.criterion),
            gain=row.gains.get(self.criterion),
        )

    def row(self, name: str) -> DecisionRow:
        """Find a row by its name or its notation.

        Raises:
            InvalidInput: There is none.
        """
        for row in self.rows:
            if name in (row.name, row.notation):
                return row
        names = ", ".join(row.name for row in self.rows)
        raise InvalidInput("read a decision table", expected=f"one of {names}", found=repr(name))

    def smallest_share(self, quality: float, serving: Serving = "target") -> float | None:
        """The smallest budget of the backfill that significantly keeps a share of the full backfill's figure.

        Args:
            quality: Share of the full backfill's figure, such as 0.98.
            serving: "fused": fused search; "target": the target alone.

        Returns:
            The share to embed natively, or None if no measured share significantly reaches it.
        """
        judged = [row for row in self.served(serving) if self.criterion in row.kept]
        return min((row.share for row in judged if row.kept[self.criterion].low >= quality), default=None)

    def showing(self, shares: Sequence[float]) -> DecisionTable:
        """The same with fewer partial backfills: those of some shares, the one that is advised and the best."""
        best = self.best_of("target")
        kept = tuple(
            row
            for row in self.rows
            if row.notation != "t/h+t"
            or row.name in (self.advice.row, best.name)
            or any(abs(row.share - share) < SAME_SHARE for share in shares)
        )
        return replace(self, rows=kept)

    @property
    def budgets(self) -> tuple[DecisionRow, ...]:
        """Rows that differ by the share of native vectors alone: hop alone, backfills, full backfill."""
        return tuple(row for row in self.rows if row.notation.startswith("t/h") or row.notation == "t/t")

    def served(self, serving: Serving) -> tuple[DecisionRow, ...]:
        """Rows that differ by the share of native vectors alone, searched in one way."""
        return tuple(row for row in self.rows if is_fused(row.notation)) if serving == "fused" else self.budgets

    def budget(self, share: float, serving: Serving = "target") -> DecisionRow:
        """The row of a budget.

        Raises:
            InvalidInput: It was not measured.
        """
        rows = self.served(serving)
        for row in rows:
            if abs(row.share - share) < SAME_SHARE:
                return row
        measured = ", ".join(f"{row.share:g}" for row in rows)
        raise InvalidInput("read a decision table", expected=f"a budget of {measured}", found=f"{share:g}")

    def best_of(self, serving: Serving) -> DecisionRow:
        """The budget with the best figure, searched in one way; of equals the smallest: more is not always better."""
        judged = [row for row in self.served(serving) if self.criterion in row.figures]
        return max(judged, key=lambda row: (row.figures[self.criterion].value, -row.share))


@checked
def decide(sample: EvaluationSample, settings: DecisionSettings | None = None) -> DecisionTable:
    """Measure every strategy to serve the gallery and say which one to take.

    The rows: status quo (s/s), naive swap of the model (t/s), hop alone (t/h), the
    backfill at some budgets, full backfill (t/t). Intervals are bootstraps over queries, and over the gallery's items
    where these are a sample; all rows see the same draws, so that differences to the status quo are paired.

    Raises:
        InvalidInput: No query has a correct item, or vectors that cannot be ranked; as `retrieval_metrics`.

    Examples:
        >>> [row.name for row in cs.evaluation.decide(sample).rows][:2]
        ['status quo', 'naive swap']
    """
    chosen = settings or DecisionSettings()
    return decide_between(sample, chosen, rank_strategies(sample, chosen))


def decide_between(
    sample: EvaluationSample, settings: DecisionSettings, strategies: Sequence[ServingStrategy]
) -> DecisionTable:
    """Compare strategies that were ranked: the status quo first, and last the one that `kept` is a share of."""
    settings = settings if sample.has_ground_truth else settings.without_ground_truth
    counted = strategies[0].found.counted
    require_counted(counted)
    figures = _resampled(sample, strategies, settings)
    require_measured(figures, settings.criterion)
    rows = [
        DecisionRow(name=one.name, notation=one.notation, share=one.share, figures={}, gains={}, kept={}, note=one.note)
        for one in strategies
    ]
    for name in settings.metrics:
        having = [place for place, own in enumerate(figures) if name in own]
        drawn, full, none = [figures[place][name] for place in having], figures[-1].get(name), [None] * len(having)
        gains = gains_together(drawn, figures[0][name]) if drawn and sample.has_ground_truth else none
        kept = none if full is None else kept_shares(drawn, full)
        means = figures_together(drawn) if drawn else []
        for place, own, figure, gain, share in zip(having, drawn, means, gains, kept, strict=True):
            if name.startswith(
                "cmc@"
            ):  # a share of queries, few of them right: the bootstrap of none is certain of none
                few = share_of_queries(own.values > 0, _of_many(settings.confidence, len(having)))
                figure = Estimate(value=figure.value, low=min(figure.low, few.low), high=max(figure.high, few.high))
            rows[place].figures[name] = figure.within(0.0, 1.0)
            if gain is not None:
                rows[place].gains[name] = gain.within(-1.0, 1.0)
            if share is not None:
                rows[place].kept[name] = share.within(0.0, 1.0)
    nearest = _nearest(settings)
    many = _of_many(settings.confidence, sum(nearest in row.figures for row in rows))
    made = tuple(
        _with_flips(row, strategy, strategies[0], settings.metrics.index(nearest), many)
        if nearest in row.figures
        else row
        for row, strategy in zip(rows, strategies, strict=True)
    )
    return DecisionTable(
        rows=made,
        advice=_advice(strategies, made, figures, settings.criterion),
        criterion=settings.criterion,
        truth=truth_of(sample),
        confidence=settings.confidence,
        num_queries=int(counted.sum()),
        num_skipped=int((~counted).sum()),
        neighbours=neighbours_of(sample, settings),
    )


def _resampled(
    sample: EvaluationSample, strategies: Sequence[ServingStrategy], settings: DecisionSettings
) -> list[dict[str, Resampled]]:
    """For each strategy the figures that it has, by name, all over the same draws."""
    counted = strategies[0].found.counted
    values = np.concatenate([strategy.found.values[:, counted] for strategy in strategies])
    gallery = None
    if sample.population is not None:
        influence = np.concatenate([strategy.found.influence for strategy in strategies])
        gallery = SampledGallery(
            influence=influence,
            places=drawn_as_items(sample, np.flatnonzero(counted)),
            unexplained=np.repeat([strategy.found.unexplained for strategy in strategies], len(settings.metrics)),
        )
    drawn = resample(values, settings.resamples, settings.seed, settings.confidence, gallery)
    size = len(settings.metrics)
    named = [dict(zip(settings.metrics, drawn[size * i : size * (i + 1)], strict=True)) for i in range(len(strategies))]
    return [{name: figure for name, figure in own.items() if not np.isnan(figure.value)} for own in named]


def require_measured(figures: Sequence[Mapping[str, Resampled]], criterion: str) -> None:
    """Refuse to decide by a figure that no strategy beside the status quo has.

    Raises:
        InvalidInput: It is CMC, of a sample.
    """
    if not any(criterion in own for own in figures[1:]):
        raise InvalidInput(
            f"decide by {criterion}",
            expected=f"one of {', '.join(figures[0])}",
            found=f"{criterion}, which a sample cannot tell without labels or qrels",
            fix="Decide by map, name a column of labels or qrels, or take a sample of the whole gallery.",
        )


def _of_many(confidence: float, intervals: int) -> float:
    """Confidence of each of some intervals that hold together (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / max(intervals, 1)


def _with_flips(
    row: DecisionRow, strategy: ServingStrategy, status_quo: ServingStrategy, metric: int, confidence: float
) -> DecisionRow:
    """A row with the queries mended and broken; their interval holds together with those of the other rows."""
    was, now = (found.values[metric, status_quo.found.counted] > 0 for found in (status_quo.found, strategy.found))
    flips = Flips(positive=float(np.mean(~was & now)), negative=float(np.mean(was & ~now)))
    return replace(row, flips=flips, broken=share_of_queries(was & ~now, confidence))


def _nearest(settings: DecisionSettings) -> str:
    """The figure that flips are counted by: CMC at the smallest k; "" without ground truth."""
    return f"cmc@{min(settings.ks)}" if settings.ks else ""


def _advice(
    strategies: Sequence[ServingStrategy],
    rows: Sequence[DecisionRow],
    figures: Sequence[dict[str, Resampled]],
    metric: str,
) -> Advice:
    options, fused = list[Option](), list[Option]()
    for strategy, row, own in zip(strategies, rows, figures, strict=True):
        if metric in own:
            option = Option(name=row.name, share=row.share, figure=own[metric], flips=row.flips)
            (fused if strategy.fused else options).append(option)

    def embeds(strategy: ServingStrategy) -> bool:
        return strategy.notation.startswith("t/h") or strategy.notation == "t/t"

    if metric == AGREEMENT[0]:
        names = [strategy.name for strategy in strategies if embeds(strategy)]
        return describe_agreement([option for option in options if option.name in names])
    unmeasured = [
        strategy.name
        for strategy, own in zip(strategies, figures, strict=True)
        if metric not in own and embeds(strategy)
    ]
    advice = advise(options[0], options[1:], metric, unmeasured)
    return replace(advice, text=advice.text + fused_better(fused, options, advice, metric))
