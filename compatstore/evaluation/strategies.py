"""Every strategy to serve a gallery during an upgrade, each ranked for the same queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.evaluation.distances import Distances, fit_length, measure
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.fusion_choice import WEIGHTS, Trial
from compatstore.evaluation.relevance import (
    Relevance,
    relevance_from_judgements,
    relevance_from_labels,
    relevance_from_neighbours,
)
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import WHOLE, QueryFigures, Sampling
from compatstore.evaluation.whole import AS_FUSED, WholeFigures

FEWEST_NEIGHBOURS = 5
PRICE = "two embeddings and two searches for a query, the source's vectors are kept"
FUSED, FUSED_PARTLY = {0.0: "s/s & t/h", 1.0: "s/s & t/t"}, "s/s & t/h+t"


@dataclass(frozen=True, kw_only=True, eq=False)
class ServingStrategy:
    """One strategy to serve the gallery and the results of each query; see `DecisionRow` for the fields' meaning."""

    name: str
    notation: str
    share: float
    found: QueryFigures
    note: str = ""

    @property
    def fused(self) -> bool:
        """True if it is a fused search, whatever the upgrade embeds."""
        return is_fused(self.notation)


def is_fused(notation: str) -> bool:
    """True if a strategy is a fused search."""
    return notation in (*FUSED.values(), FUSED_PARTLY, AS_FUSED)


def rank_strategies(
    sample: EvaluationSample,
    settings: DecisionSettings,
    trial: Trial | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ServingStrategy]:
    """Rank by the status quo, naive swap, hop alone, budgets, other ways to search these, and full backfill.

    Args:
        sample: Queries and items.
        settings: Settings of the comparison.
        trial: Trial of the same sample and criterion, if weights were fitted already: they are not fitted again.
        progress: Called with the rankings that are made, one for each query and way to search, and their number.
    """
    count = _Count(progress)
    if trial is None:
        chosen_by = settings if sample.complete or not sample.has_ground_truth else replace(settings, criterion="map")
        trial = replace(trial_of_fusions(sample, chosen_by), progress=count.add)
    count.total = len(sample.source_queries) * _num_searches(sample, settings, trial)
    count.add(0)
    *budgets, full = _backfills(trial, settings)
    strategies = [*_without_transform(trial), *budgets, *_fused(sample, settings, trial), full]
    if sample.complete or not sample.has_ground_truth:
        return strategies
    founds = [strategy.found for strategy in strategies]
    if sample.whole is None:
        known = [map_alone(strategy.found) for strategy in strategies]
    else:
        query_weights = np.ones(len(sample.source_queries)) if trial.sampling.asked is None else trial.sampling.asked
        known = put_right([strategy.notation for strategy in strategies], founds, sample.whole, query_weights)
    return [replace(strategy, found=found) for strategy, found in zip(strategies, known, strict=True)]


def sampled_neighbours(neighbours: int, weight: float) -> int:
    """Number of nearest items of a sample, 1 in `weight` of a gallery, for `neighbours` items of the gallery.

    They are not let go below 5: one neighbour more or less would decide too much.
    """
    return max(round(neighbours / weight), min(FEWEST_NEIGHBOURS, neighbours))


@dataclass
class _Count:
    """Counts rankings for a report of progress."""

    report: Callable[[int, int], None] | None
    total: int = 0
    done: int = 0

    def add(self, rankings: int) -> None:
        self.done += rankings
        if self.report is not None:
            self.report(self.done, self.total)


def _num_searches(sample: EvaluationSample, settings: DecisionSettings, trial: Trial) -> int:
    """Number of rankings that `rank_strategies` makes for a query."""
    plain = (2 + len(settings.shares) + 2) * (1 if sample.has_ground_truth else 2)
    fused = sum(trial.num_candidates(sample.share_of(sample.filled(share))) for share in settings.fused_shares)
    return plain + fused + (sample.served is not None)


def truth_of(sample: EvaluationSample) -> str:
    """The ground truth, "labels" or "qrels"; "" for none."""
    if not sample.has_ground_truth:
        return ""
    return "labels" if sample.judged is None else "qrels"


def neighbours_of(sample: EvaluationSample, settings: DecisionSettings) -> int:
    """First results of the whole gallery that are compared without ground truth, about."""
    return round(sampled_neighbours(settings.neighbours, sample.weight) * sample.weight)


def trial_of_fusions(sample: EvaluationSample, settings: DecisionSettings, weights: Sequence[float] = WEIGHTS) -> Trial:
    """The sample's queries, ready to try fused searches by some weights."""
    truth, before = truth_of(sample), None
    if truth:
        relevance = _correct(sample, settings)
    else:
        settings = settings.without_ground_truth
        relevance, before = (
            _first_results(sample, settings, distances)
            for distances in (
                measure(sample.target_queries, sample.native, settings.target_metric),
                measure(sample.source_queries, sample.source, settings.source_metric),
            )
        )
    return Trial(
        sample=sample,
        settings=settings,
        relevance=relevance,
        sampling=_sampling(sample) if truth else WHOLE,
        truth=truth,
        before=before,
        weights=tuple(weights),
    )


def _correct(sample: EvaluationSample, settings: DecisionSettings) -> Relevance:
    if sample.judged is not None:
        shape = len(sample.source_queries), len(sample.source)
        return relevance_from_judgements(sample.judged, *shape, sample.query_ids, sample.gallery_ids, settings.depth)
    assert sample.query_labels is not None
    assert sample.gallery_labels is not None
    return relevance_from_labels(sample.query_labels, sample.gallery_labels, sample.query_ids, sample.gallery_ids)


def _first_results(sample: EvaluationSample, settings: DecisionSettings, distances: Distances) -> Relevance:
    """First results of each query, to compare with."""
    first = sampled_neighbours(settings.neighbours, sample.weight)
    return relevance_from_neighbours(distances, first, sample.query_ids, sample.gallery_ids, depth=first)


def _sampling(sample: EvaluationSample) -> Sampling:
    whole, items = sample.whole, len(sample.source)
    if sample.judged is not None:  # every correct item is in the sample
        return Sampling(weight=sample.weight, drawn=None if sample.complete else sample.drawn)
    return Sampling(
        weight=sample.weight,
        asked=None if whole is None else 1.0 / chance_of_correct(whole.correct, items, sample.population or items),
    )


def _without_transform(trial: Trial) -> list[ServingStrategy]:
    """Strategies with the source's vectors: as they are, and with the wrong queries."""
    sample, metric = trial.sample, trial.settings.source_metric
    source = measure(sample.source_queries, sample.source, metric)
    swapped = fit_length(sample.target_queries, sample.source.shape[1])
    naive = measure(swapped, sample.source, metric, undirected="lose")
    rows = np.arange(len(sample.source))
    status_quo, swap = (trial.galleries(distances, [rows])[0] for distances in (source, naive))
    lost = 0 if naive.lost is None else int(naive.lost.sum())
    note = _swap_note(sample.target_queries.shape[1], sample.source.shape[1], lost)
    return [
        ServingStrategy(name="status quo", notation="s/s", share=0.0, found=status_quo),
        ServingStrategy(name="naive swap", notation="t/s", share=0.0, found=swap, note=note),
    ]


def _backfills(trial: Trial, settings: DecisionSettings) -> list[ServingStrategy]:
    """Hop alone, the budgets and the full backfill, ranked together: their vectors are rows of one table."""
    sample, shares = trial.sample, np.array([0.0, *sorted(settings.shares), 1.0])
    both = measure(
        sample.target_queries,
        np.concatenate([sample.transformed, sample.native]),
        settings.target_metric,
        factors=None if sample.factors is None else np.concatenate([sample.factors, np.ones(len(sample.factors))]),
    )
    rows = np.arange(len(sample.source))
    galleries = [np.where(sample.filled(share), rows + len(rows), rows) for share in shares]
    names = ["hop alone", *(f"backfill {share:.4g}%" for share in 100 * shares[1:-1]), "full backfill"]
    notations = ["t/h", *["t/h+t"] * len(settings.shares), "t/t"]
    return [
        ServingStrategy(name=name, notation=notation, share=float(share), found=found)
        for name, notation, share, found in zip(names, notations, shares, trial.galleries(both, galleries), strict=True)
    ]


def _fused(sample: EvaluationSample, settings: DecisionSettings, trial: Trial) -> list[ServingStrategy]:
    """Fused search: by the fusion that is served, and by one chosen for each of some native shares."""
    made = [] if sample.served is None else [_as_served(trial, sample.served)]
    constants = trial.constants() if settings.fused_shares else None
    for share in sorted(settings.fused_shares):
        assert constants is not None
        fitted = trial.fit(sample.filled(share), constants)
        note, notation = f"w {fitted.fusion.weight:g}; {PRICE}", FUSED.get(share, FUSED_PARTLY)
        name = f"fused {100 * share:.4g}%"
        made.append(ServingStrategy(name=name, notation=notation, share=share, found=fitted.found, note=note))
    return made


def _as_served(trial: Trial, fusion: Fusion) -> ServingStrategy:
    """By the fusion that the gallery is served with, in which these queries had no part."""
    sample, note = trial.sample, f"w {fusion.weight:g}; {PRICE}"
    native = np.zeros(len(sample.source), bool) if sample.is_native is None else sample.is_native
    found, share = trial.find(native, fusion), sample.share_of(native)
    return ServingStrategy(name="fused as served", notation=AS_FUSED, share=share, found=found, note=note)


def _swap_note(target: int, source: int, lost: int) -> str:
    how = "cut" if target > source else "filled up with zeros"
    notes = [] if target == source else [f"target queries {how} from {target} to {source} values"]
    notes += [f"{lost} have no direction left and find nothing"] if lost else []
    return "; ".join(notes)


def chance_of_correct(correct: Positions, items: int, population: int) -> Doubles:
    """Chance that a random sample of `items` out of `population` holds a correct item of a query: (q,) float64.

    Args:
        correct: (q,) intp, correct items of each query in the population.
        items: Size of the sample, the query's own item included.
        population: Size of the gallery.
    """
    share = (items - 1) / max(population - 1, 1)
    chance = 1.0 - (1.0 - share) ** correct.astype(np.float64)
    return np.where(correct > 0, np.maximum(chance, 1e-12), 1.0)


def map_alone(found: QueryFigures) -> QueryFigures:
    """Keep mAP, the only figure that a sample gives without figures of the whole gallery."""
    values = found.values.copy()
    values[:-1] = np.nan
    return replace(found, values=values)


def put_right(
    notations: Sequence[str], founds: Sequence[QueryFigures], whole: WholeFigures, query_weights: Doubles
) -> list[QueryFigures]:
    """Take the figures of the whole gallery where they are known, and correct those of the other strategies by them.

    Strategies that need no native vector are measured in the whole gallery, so the error of the sample's figure for
    them is known. The figures of the other strategies have a part of the same error, the draw of the items first of
    all. Each of them is corrected by a multiple of the known errors, as a regression estimator does: the multiple that
    the influences of the sampled items on the two figures have in common. Where the known errors are larger than the
    draw of the items explains, the corrected figures are taken to be as uncertain as that. CMC needs the very nearest
    items, of which a sample has few, so only strategies that are measured in the whole gallery have it.

    Args:
        notations: Notations of the strategies.
        founds: Results of the queries by each in the sample; influences weighed by `query_weights`.
        whole: Results in the whole gallery.
        query_weights: (q,) float64, weight of each query with a correct item in the sample.
    """
    first = {name: place for place, name in reversed(list(enumerate(notations)))}
    known = [name for name in whole.values if name in first]
    counted = whole.correct > 0
    weights = np.where(founds[0].counted, query_weights, 0.0)
    weights *= counted.sum() / max(weights[counted].sum(), 1.0)
    sampled = [weights * np.nan_to_num(found.values[-1]) for found in founds]
    errors = np.array([whole.values[name][-1] - sampled[first[name]] for name in known])
    pulls = np.array([founds[first[name]].influence[-1] for name in known])
    drawn = pulls.std(axis=1) / np.sqrt(pulls.shape[1])
    unexplained = float(np.maximum(np.abs(errors[:, counted].mean(axis=1)) - 2 * drawn, 0.0).max())
    made = []
    for name, mine, found in zip(notations, sampled, founds, strict=True):
        if name in whole.values:
            made.append(QueryFigures(values=whole.values[name], influence=np.zeros_like(found.influence)))
            continue
        share = np.linalg.lstsq(pulls.T, found.influence[-1], rcond=None)[0]
        values, influence = np.full_like(found.values, np.nan), np.zeros_like(found.influence)
        values[-1] = np.where(counted, mine + share @ errors, np.nan)
        influence[-1] = found.influence[-1] - share @ pulls
        left = float(influence[-1].std() / max(found.influence[-1].std(), 1e-12))
        remaining = unexplained * min(2 * left, 1.0)
        made.append(QueryFigures(values=values, influence=influence, unexplained=remaining))
    return made
