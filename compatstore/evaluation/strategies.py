"""Every strategy to serve a gallery during an upgrade, each ranked for the same queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.evaluation.compatibility import fit_length
from compatstore.evaluation.curve import as_permutation, mixed_galleries, native_rows
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.fusion_choice import FusionTrial
from compatstore.evaluation.mixed import mixed_blocks
from compatstore.evaluation.relevance import Relevance, relevance_from_labels, relevance_from_neighbours
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_blocks, find_in_galleries
from compatstore.evaluation.whole import WholeFigures

FEWEST_NEIGHBOURS = 5
MERGED = "s/s+t/t"  # each item is searched in one space; in a fusion every item in both
FUSED, FUSED_PARTLY = {0.0: "s/s & t/h", 1.0: "s/s & t/t"}, "s/s & t/h+t"


@dataclass(frozen=True, kw_only=True, eq=False)
class ServingStrategy:
    """One strategy to serve the gallery and what each query found by it; see `DecisionRow` for the fields' meaning."""

    name: str
    notation: str
    share: float
    found: QueryFigures
    note: str = ""

    @property
    def fused(self) -> bool:
        """Whether both versions are searched as one: a way to serve, whatever the upgrade embeds."""
        return self.notation in (*FUSED.values(), FUSED_PARTLY)


def rank_strategies(sample: EvaluationSample, settings: DecisionSettings) -> list[ServingStrategy]:
    """Rank by the status quo, naive swap, rank merge, hop alone, budgets, fusions and full backfill, in this order."""
    native = measure(sample.target_queries, sample.native, settings.target_metric)
    search = _Search(relevance=_correct(sample, native, settings), ks=settings.ks, sampling=_sampling(sample))
    *budgets, full = _backfills(sample, search, settings)
    fused = _fused(sample, search, settings)
    strategies = [*_without_transform(sample, native, search, settings), *budgets, *fused, full]
    if sample.complete:
        return strategies
    founds = [strategy.found for strategy in strategies]
    if sample.whole is None:
        known = [map_alone(strategy.found, merged=strategy.notation == MERGED) for strategy in strategies]
    else:
        asked = np.ones(len(sample.source_queries)) if search.sampling.asked is None else search.sampling.asked
        known = put_right([strategy.notation for strategy in strategies], founds, sample.whole, asked)
    return [replace(strategy, found=found) for strategy, found in zip(strategies, known, strict=True)]


def sampled_neighbours(neighbours: int, weight: float) -> int:
    """How many nearest items of a sample, 1 in `weight` of a gallery, stand for `neighbours` items of the gallery.

    They are not let go below 5: one neighbour more or less would decide too much.
    """
    return max(round(neighbours / weight), min(FEWEST_NEIGHBOURS, neighbours))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """How all strategies are searched: what is correct, the k of CMC, and what the gallery is a sample of."""

    relevance: Relevance
    ks: tuple[int, ...]
    sampling: Sampling

    def galleries(self, distances: Distances, rows: Sequence[Positions]) -> list[QueryFigures]:
        return find_in_galleries(distances, self.relevance, rows, self.ks, self.sampling)

    def blocks(self, blocks: Iterable[tuple[int, Doubles]], queries: int, items: int) -> QueryFigures:
        return find_in_blocks(blocks, queries, self.relevance, [np.arange(items)], self.ks, self.sampling)[0]


def truth_of(sample: EvaluationSample, settings: DecisionSettings) -> str:
    """What counts as right, as text for people."""
    if sample.query_labels is not None:
        return "labels"
    neighbours = round(sampled_neighbours(settings.neighbours, sample.weight) * sample.weight)
    return f"the target's {neighbours} nearest neighbours"


def trial_of_fusions(sample: EvaluationSample, settings: DecisionSettings) -> FusionTrial:
    """The sample's queries, ready to try how both versions are searched as one."""
    native = measure(sample.target_queries, sample.native, settings.target_metric)
    return FusionTrial(
        sample=sample,
        settings=settings,
        relevance=_correct(sample, native, settings),
        sampling=_sampling(sample),
        truth=truth_of(sample, settings),
    )


def _correct(sample: EvaluationSample, native: Distances, settings: DecisionSettings) -> Relevance:
    if sample.query_labels is None or sample.gallery_labels is None:
        neighbours = sampled_neighbours(settings.neighbours, sample.weight)
        return relevance_from_neighbours(native, neighbours, sample.query_ids, sample.gallery_ids)
    return relevance_from_labels(sample.query_labels, sample.gallery_labels, sample.query_ids, sample.gallery_ids)


def _sampling(sample: EvaluationSample) -> Sampling:
    whole, items = sample.whole, len(sample.source)
    return Sampling(
        weight=sample.weight,
        own=1.0 if sample.query_labels is not None else (1.0 + sample.weight) / 2.0,
        asked=None if whole is None else 1.0 / chance_of_correct(whole.correct, items, sample.population or items),
    )


def _without_transform(
    sample: EvaluationSample, native: Distances, search: _Search, settings: DecisionSettings
) -> list[ServingStrategy]:
    """What the source's vectors are good for: as they are, with the wrong queries, and beside native ones."""
    source = measure(sample.source_queries, sample.source, settings.source_metric)
    swapped = fit_length(sample.target_queries, sample.source.shape[1])
    naive = measure(swapped, sample.source, settings.source_metric)
    rows, share = np.arange(len(sample.source)), settings.merge_share
    filled = native_rows(as_permutation(sample.order, len(rows)), share)
    merged = mixed_blocks(source, native, filled, search.relevance, settings.merge)
    mixed = search.blocks(merged, len(source.left), len(rows))
    status_quo, swap = (search.galleries(distances, [rows])[0] for distances in (source, naive))
    note = _swap_note(sample.target_queries.shape[1], sample.source.shape[1])
    return [
        ServingStrategy(name="status quo", notation="s/s", share=0.0, found=status_quo),
        ServingStrategy(name="naive swap", notation="t/s", share=0.0, found=swap, note=note),
        ServingStrategy(name=f"rank merge {share:.0%}", notation=MERGED, share=share, found=mixed, note=settings.merge),
    ]


def _backfills(sample: EvaluationSample, search: _Search, settings: DecisionSettings) -> list[ServingStrategy]:
    """Hop alone, the budgets and the full backfill, ranked together: their vectors are rows of one table."""
    shares = np.array([0.0, *sorted(settings.shares), 1.0])
    both = measure(sample.target_queries, np.concatenate([sample.transformed, sample.native]), settings.target_metric)
    galleries = mixed_galleries(as_permutation(sample.order, len(sample.source)), shares)
    names = ["hop alone", *(f"backfill {share:.4g}%" for share in 100 * shares[1:-1]), "full backfill"]
    notations = ["t/h", *["t/h+t"] * len(settings.shares), "t/t"]
    return [
        ServingStrategy(name=name, notation=notation, share=float(share), found=found)
        for name, notation, share, found in zip(
            names, notations, shares, search.galleries(both, galleries), strict=True
        )
    ]


def _fused(sample: EvaluationSample, search: _Search, settings: DecisionSettings) -> list[ServingStrategy]:
    """Both versions searched as one, at some shares of natives; each query by the weight that other queries chose."""
    if not settings.fused_shares:
        return []
    chosen_by = settings if sample.complete else replace(settings, criterion="map")
    trial = FusionTrial(
        sample=sample,
        settings=chosen_by,
        relevance=search.relevance,
        sampling=search.sampling,
        truth=truth_of(sample, settings),
    )
    constants, order, made = trial.constants(), as_permutation(sample.order, len(sample.source)), []
    for share in sorted(settings.fused_shares):
        fitted = trial.fit(native_rows(order, share), constants)
        note = f"w {fitted.fusion.weight:g}; two embeddings and two searches for a query, the source's vectors are kept"
        notation = FUSED.get(share, FUSED_PARTLY)
        name = f"fused {100 * share:.4g}%"
        made.append(ServingStrategy(name=name, notation=notation, share=share, found=fitted.found, note=note))
    return made


def _swap_note(target: int, source: int) -> str:
    if target == source:
        return ""
    how = "cut" if target > source else "filled up with zeros"
    return f"target queries {how} from {target} to {source} values"


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


def map_alone(found: QueryFigures, *, merged: bool = False) -> QueryFigures:
    """Keep mAP, the only figure that a sample gives without figures of the whole gallery.

    Args:
        found: The figures of one strategy in the sample.
        merged: Whether the strategy is a rank merge, of which no figure is kept: it is calibrated by the sampled native
            vectors, and its intervals held less often than their confidence.
    """
    values = found.values.copy()
    values[: None if merged else -1] = np.nan
    return replace(found, values=values)


def put_right(
    notations: Sequence[str], founds: Sequence[QueryFigures], whole: WholeFigures, asked: Doubles
) -> list[QueryFigures]:
    """Take the figures of the whole gallery where they are known, and correct those of the other strategies by them.

    Strategies that need no native vector are measured in the whole gallery, so the error of the sample's figure for
    them is known. The figures of the other strategies have a part of the same error, the draw of the items first of
    all. Each of them is corrected by a multiple of the known errors, as a regression estimator does: the multiple that
    the influences of the sampled items on the two figures have in common. Where the known errors are larger than the
    draw of the items explains, the corrected figures are taken to be as uncertain as that. CMC needs the very nearest
    items, of which a sample has few, so only strategies that are measured in the whole gallery have it.

    Args:
        notations: Of the strategies.
        founds: What the queries found by each in the sample; influences weighed by `asked`.
        whole: What they found in the whole gallery.
        asked: (q,) float64, what each query weighs where it has a correct item in the sample.
    """
    first = {name: place for place, name in reversed(list(enumerate(notations)))}
    known = [name for name in whole.values if name in first]
    counted = whole.correct > 0
    weights = np.where(founds[0].counted, asked, 0.0)
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
        doubt = unexplained * min(2 * left, 1.0)
        made.append(QueryFigures(values=values, influence=influence, doubt=doubt))
    return made
