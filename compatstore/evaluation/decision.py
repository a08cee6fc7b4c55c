"""The decision table: every way to serve a gallery during an upgrade, measured with the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compatstore.errors import InvalidInput
from compatstore.evaluation.advice import Advice, Option, advise, advise_without_labels
from compatstore.evaluation.bootstrap import Estimate, estimate, resampled_means
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
        flips: Queries mended and broken since the status quo, at the smallest k.
        note: What there is to know about it, or "".
    """

    name: str
    notation: str
    share: float
    figures: dict[str, Estimate]
    gains: dict[str, Estimate]
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
        """The smallest budget of the backfill whose interval's lower end reaches a share of the full figure.

        Args:
            quality: Share of the full backfill's figure, such as 0.98.

        Returns:
            The share to embed natively, or None when none of those measured is sure to reach it.
        """
        wanted = quality * self.rows[-1].figures[self.criterion].value
        budgets = [row for row in self.rows if row.notation.startswith("t/h") or row.notation == "t/t"]
        return min((row.share for row in budgets if row.figures[self.criterion].low >= wanted), default=None)


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
    values = np.array([_values(way.ranking, settings.ks) for way in ways])
    means = resampled_means(values.reshape(-1, values.shape[-1]), settings.resamples, settings.seed)
    means = means.T.reshape(*values.shape[:2], -1)
    labelled = trial.query_labels is not None
    return DecisionTable(
        rows=tuple(_row(way, ways[0], i, values, means, settings) for i, way in enumerate(ways)),
        advice=_advice(ways, values, means, settings, labelled=labelled),
        criterion=settings.criterion,
        truth="labels" if labelled else f"the target's {settings.neighbours} nearest neighbours",
        confidence=settings.confidence,
        num_queries=counted.num_queries,
        num_skipped=counted.num_skipped,
    )


def _values(ranking: Ranking, ks: Sequence[int]) -> list[Doubles]:
    """Each query's figures, in the order of `DecisionSettings.metrics`: (metrics, q)."""
    first = ranking.first_match[ranking.counted]
    return [*((first <= k).astype(np.float64) for k in ks), ranking.average_precision[ranking.counted]]


def _row(
    way: Way, status_quo: Way, place: int, values: Doubles, means: Doubles, settings: DecisionSettings
) -> DecisionRow:
    figures, gains = {}, {}
    for m, metric in enumerate(settings.metrics):
        figures[metric] = estimate(values[place, m], means[place, m], settings.confidence)
        gain, drawn = values[place, m] - values[0, m], means[place, m] - means[0, m]
        gains[metric] = estimate(gain, drawn, settings.confidence)
    return DecisionRow(
        name=way.name,
        notation=way.notation,
        share=way.share,
        figures=figures,
        gains=gains,
        flips=flips(status_quo.ranking, way.ranking, min(settings.ks)),
        note=way.note,
    )


def _advice(
    ways: Sequence[Way], values: Doubles, means: Doubles, settings: DecisionSettings, *, labelled: bool
) -> Advice:
    m = settings.metrics.index(settings.criterion)
    options = [
        Option(name=way.name, share=way.share, values=values[i, m], means=means[i, m]) for i, way in enumerate(ways)
    ]
    if labelled:
        return advise(options[0], options[1:], settings.criterion, settings.confidence)
    return advise_without_labels(options[-1], options[:-1], settings.criterion, settings.keep, settings.confidence)
