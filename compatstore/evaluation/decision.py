"""The decision table: every way to serve a gallery during an upgrade, measured with the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compatstore.errors import InvalidInput
from compatstore.evaluation.advice import Advice, Option, advise, advise_without_labels
from compatstore.evaluation.bootstrap import Estimate, Resampled, resample
from compatstore.evaluation.distances import Doubles
from compatstore.evaluation.metrics import Flips, flips, summarise
from compatstore.evaluation.ranking import Ranking
from compatstore.evaluation.trial import DecisionSettings, Trial
from compatstore.evaluation.ways import Way, rank_ways


@dataclass(frozen=True, kw_only=True)
class DecisionRow:
    """One way to serve the gallery.

    Args:
        name: In words.
        notation: Query / gallery: s source, t target, h transformed, + mixed.
        share: Share of the gallery that it embeds natively.
        figures: "cmc@1", ..., "map" -> the figure with its interval.
        gains: The same names -> difference to the status quo, query by query, with its interval.
        kept: The same names -> share of the full backfill's figure, with its interval; paired as well.
        flips: Queries mended and broken since the status quo, at the smallest k.
        note: What there is to know about it, or "".
    """

    name: str
    notation: str
    share: float
    figures: dict[str, Estimate]
    gains: dict[str, Estimate]
    kept: dict[str, Estimate]
    flips: Flips
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class DecisionTable:
    """All ways, and what to do.

    Args:
        rows: From the status quo to the full backfill.
        advice: What to do by `criterion`.
        criterion: The figure that decided.
        truth: What counted as right: "labels", or "the target's 10 nearest neighbours".
        confidence: Of all intervals.
        num_queries: Queries counted.
        num_skipped: Queries left out, as no item of the gallery is correct for them.
    """

    rows: tuple[DecisionRow, ...]
    advice: Advice
    criterion: str
    truth: str
    confidence: float
    num_queries: int
    num_skipped: int

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

    def smallest_share(self, quality: float) -> float | None:
        """The smallest budget of the backfill that is sure to keep a share of the full backfill's figure.

        Args:
            quality: Share of the full backfill's figure, such as 0.98.

        Returns:
            The share to embed natively, or None when none of those measured is sure to reach it.
        """
        budgets = [row for row in self.rows if row.notation.startswith("t/h") or row.notation == "t/t"]
        return min((row.share for row in budgets if row.kept[self.criterion].low >= quality), default=None)


def decide(trial: Trial, settings: DecisionSettings | None = None) -> DecisionTable:
    """Measure every way to serve the gallery and say which one to take.

    The rows: status quo (s/s), naive swap of the model (t/s), rank merge without a transform, hop alone (t/h), the
    backfill at some budgets, full backfill (t/t). Intervals are percentile bootstraps over queries; all rows see
    the same draws, so that differences to the status quo are paired.

    Raises:
        InvalidInput: No query has a correct item, or vectors that cannot be ranked; as `retrieval_metrics`.
    """
    chosen = settings or DecisionSettings()
    return _table(trial, chosen, rank_ways(trial, chosen))


def _table(trial: Trial, settings: DecisionSettings, ways: Sequence[Way]) -> DecisionTable:
    counted = summarise(ways[0].ranking, settings.ks)
    figures = _resampled(ways, settings)
    labelled = trial.query_labels is not None
    return DecisionTable(
        rows=tuple(_row(way, ways[0], figures[i], figures, settings) for i, way in enumerate(ways)),
        advice=_advice(ways, figures, settings, labelled=labelled),
        criterion=settings.criterion,
        truth="labels" if labelled else f"the target's {settings.neighbours} nearest neighbours",
        confidence=settings.confidence,
        num_queries=counted.num_queries,
        num_skipped=counted.num_skipped,
    )


def _resampled(ways: Sequence[Way], settings: DecisionSettings) -> list[dict[str, Resampled]]:
    """For each way its figures by name, all over the same draws."""
    values = np.array([_values(way.ranking, settings.ks) for way in ways])
    drawn = resample(values.reshape(-1, values.shape[-1]), settings.resamples, settings.seed, settings.confidence)
    size = len(settings.metrics)
    return [dict(zip(settings.metrics, drawn[size * i : size * (i + 1)], strict=True)) for i in range(len(ways))]


def _values(ranking: Ranking, ks: Sequence[int]) -> list[Doubles]:
    """Each query's figures, in the order of `DecisionSettings.metrics`: (metrics, q)."""
    first = ranking.first_match[ranking.counted]
    return [*((first <= k).astype(np.float64) for k in ks), ranking.average_precision[ranking.counted]]


def _row(
    way: Way,
    status_quo: Way,
    own: dict[str, Resampled],
    figures: Sequence[dict[str, Resampled]],
    settings: DecisionSettings,
) -> DecisionRow:
    return DecisionRow(
        name=way.name,
        notation=way.notation,
        share=way.share,
        figures={metric: figure.estimate() for metric, figure in own.items()},
        gains={metric: figure.over(figures[0][metric]) for metric, figure in own.items()},
        kept={metric: figure.share_of(figures[-1][metric]) for metric, figure in own.items()},
        flips=flips(status_quo.ranking, way.ranking, min(settings.ks)),
        note=way.note,
    )


def _advice(
    ways: Sequence[Way], figures: Sequence[dict[str, Resampled]], settings: DecisionSettings, *, labelled: bool
) -> Advice:
    metric = settings.criterion
    options = [
        Option(name=way.name, share=way.share, figure=own[metric]) for way, own in zip(ways, figures, strict=True)
    ]
    if labelled:
        return advise(options[0], options[1:], metric)
    return advise_without_labels(options[-1], options[:-1], metric, settings.keep)
