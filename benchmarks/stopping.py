r"""Does a promised quality hold? Budgets chosen on samples, against what whole galleries give to other queries.

    python -m benchmarks.stopping glyphs.npz caltech.npz [--repeats 50] [--sample 600] [--policy random]

The sets are made by `benchmarks.pairs.glyphs` and `benchmarks.pairs.images`. A repeat draws a sample of a gallery,
estimates from it how much of the full backfill's quality each budget keeps, and takes the smallest budget that is sure
to keep the target quality. Truth is the whole gallery, searched with queries that are in neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.scenario import SETTINGS, Rows, Scenario, scenario
from benchmarks.pairs.settings import SIZES
from compatstore.encoders.protocol import FloatArray
from compatstore.evaluation import DecisionSettings, DecisionTable, Trial, decide
from compatstore.trainers.residual import Residual
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.estimates.trial import BUDGETS
from compatstore.upgrade.rows import ArrayRows

QUALITIES = (0.9, 0.95, 0.98)
CRITERIA = ("map", "cmc@1")
COVERAGE_LIMIT = 0.9
DRAWS = 10  # samples of one gallery; then classes, gallery and queries are drawn again
SIZE = replace(SIZES["cpu"], queries=1600, gallery=2400)


@dataclass(frozen=True, kw_only=True, eq=False)
class Upgrade:
    """A gallery after its hop, in the order of its backfill.

    Args:
        trial: Classes, gallery and queries.
        transformed: (gallery, dim) vectors after the hop.
        order: (gallery,) rows of the gallery, most urgent first.
    """

    trial: Scenario
    transformed: FloatArray
    order: Rows

    @classmethod
    def of(cls, trial: Scenario, policy: str) -> Upgrade:
        """Learn the transform from the trial's pairs and apply it to the gallery."""
        trainer = Residual(epochs=10, width=SIZE.mixer_width, seed=trial.seed, holdout_by="row")
        hopped = trainer.fit(trial.learn()).apply(trial.data.vectors[SOURCE][trial.gallery])
        rows = ArrayRows(ids=trial.gallery.tolist(), sigma2=hopped.uncertainty)
        return cls(trial=trial, transformed=hopped.vectors, order=order(policy, rows, trial.seed))

    def whole(self, *, labelled: bool) -> Trial:
        """The whole gallery and the queries that it has never seen: what is true."""
        return self._trial(self.trial.queries, np.arange(len(self.trial.gallery)), labelled=labelled)

    def sampled(self, places: Rows, *, labelled: bool) -> Trial:
        """Some items of the gallery that search each other: what an estimate is made from."""
        rows = self.trial.gallery[places]
        drawn = self._trial(rows, places, labelled=labelled)
        return replace(drawn, query_ids=rows, gallery_ids=rows, population=len(self.trial.gallery))

    def _trial(self, queries: Rows, places: Rows, *, labelled: bool) -> Trial:
        data, rows = self.trial.data, self.trial.gallery[places]
        urgency = np.empty(len(self.order), np.intp)
        urgency[self.order] = np.arange(len(self.order))
        return Trial(
            source_queries=data.vectors[SOURCE][queries],
            target_queries=data.vectors[TARGET][queries],
            source=data.vectors[SOURCE][rows],
            transformed=self.transformed[places],
            native=data.vectors[TARGET][rows],
            order=np.argsort(urgency[places]),
            query_labels=data.labels[queries] if labelled else None,
            gallery_labels=data.labels[rows] if labelled else None,
        )


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One promise and what became of it.

    Args:
        criterion: "map" or "cmc@1".
        quality: Share of the full backfill's figure that was asked for.
        share: Budget that was chosen.
        inside: Whether the true share kept lies in the stated interval.
        kept: Whether it reaches the quality.
        needed: The smallest of the measured budgets that truly reaches it.
    """

    criterion: str
    quality: float
    share: float
    inside: bool
    kept: bool
    needed: float


def promises(estimate: DecisionTable, truth: DecisionTable, criterion: str) -> Iterator[Promise]:
    """Compare what a sample promises with what is true."""
    stated = {row.share: row.kept[criterion] for row in estimate.budgets}
    true = {row.share: row.kept[criterion].value for row in truth.budgets}
    for quality in QUALITIES:
        share = min(share for share, kept in stated.items() if kept.low >= quality)
        yield Promise(
            criterion=criterion,
            quality=quality,
            share=share,
            inside=stated[share].low <= true[share] <= stated[share].high,
            kept=true[share] >= quality,
            needed=min(share for share, kept in true.items() if kept >= quality),
        )


def settings(criterion: str = "map", weight: float = 1.0) -> DecisionSettings:
    """All budgets; without labels as many true neighbours in the whole gallery as a sample of it can tell apart."""
    return DecisionSettings(criterion=criterion, shares=BUDGETS, neighbours=max(10, round(5 * weight)))


def repeat(upgrade: Upgrade, sample: int, draws: int, *, labelled: bool) -> Iterator[Promise]:
    """Make promises from several samples of one gallery."""
    items = len(upgrade.trial.gallery)
    chosen = settings(weight=items / sample)
    truth = decide(upgrade.whole(labelled=labelled), chosen)
    random = np.random.default_rng(upgrade.trial.seed)
    for _ in range(draws):
        places = random.choice(items, min(sample, items), replace=False)
        estimate = decide(upgrade.sampled(places, labelled=labelled), chosen)
        for criterion in CRITERIA:
            yield from promises(estimate, truth, criterion)


def line(name: str, made: Sequence[Promise]) -> str:
    """A row of the table: promises that left something out of the backfill, and all."""
    partial = [promise for promise in made if promise.share < 1]
    inside, kept = (float(np.mean([getattr(p, what) for p in made])) for what in ("inside", "kept"))
    saved, possible = (1 - float(np.mean([getattr(p, what) for p in made])) for what in ("share", "needed"))
    strict = f"{np.mean([p.inside for p in partial]):.0%}" if partial else "-"
    verdict = f"{COVERAGE_LIMIT:.0%} | {inside / COVERAGE_LIMIT:.2f}"
    return f"| {name} | {len(made)} | {inside:.0%} | {strict} | {verdict} | {kept:.0%} | {saved:.0%} | {possible:.0%} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--policy", default="random")
    options = parser.parse_args()
    print("| set, classes, truth, figure | promises | inside | partial | limit | ratio | kept | saved | possible |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for path in options.sets:
        data = EmbeddedSet.load(path)
        for setting in SETTINGS:
            splits = -(-options.repeats // DRAWS)
            upgrades = [Upgrade.of(scenario(data, setting, SIZE, seed), options.policy) for seed in range(splits)]
            for labelled in (True, False):
                made = [p for u in upgrades for p in repeat(u, options.sample, DRAWS, labelled=labelled)]
                for criterion in CRITERIA:
                    truth = "labels" if labelled else "neighbours"
                    name = f"{data.name}, {setting}, {truth}, {criterion}"
                    print(line(name, [p for p in made if p.criterion == criterion]), flush=True)


if __name__ == "__main__":
    main()
