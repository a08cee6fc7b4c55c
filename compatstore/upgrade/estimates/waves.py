"""Training rounds of a self-training upgrade: results and estimates, read back from the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from compatstore.evaluation import DecisionRow, Estimate
from compatstore.evaluation.decision import SAME_SHARE
from compatstore.evaluation.fusion import Serving
from compatstore.shown import Shown
from compatstore.storage.catalog import Catalog
from compatstore.storage.records import Spent
from compatstore.upgrade.estimates.estimate import UpgradeEstimate, estimates_of


class Promised(NamedTuple):
    """The estimate for a larger native share, with the upgrade's serving.

    Attributes:
        share: Share of the gallery that is native, in (0, 1].
        figure: The criterion, with its interval.
        gain: Gain over the status quo of the same round, query by query; None without ground truth.
    """

    share: float
    figure: Estimate
    gain: Estimate | None


@dataclass(frozen=True, kw_only=True)
class WaveFigures:
    """The result of the training round at the end of a wave.

    Args:
        native: Native items.
        share: Share of the gallery that they are, in (0, 1].
        cost: Money spent on embedding so far, 0 where no price is known.
        seconds: Time spent on embedding so far.
        weight: Weight of the target in how the gallery is searched from then on, from 0, as before, to below 1. Where
            the target alone is to be searched, after a cutover, 1.
        criterion: The figure.
        truth: Ground truth, "labels" or "qrels"; "" for none.
        status_quo: The figure of the source alone.
        served: The figure of how the gallery is searched from then on, or is to be searched after a cutover.
        gain: Difference of the two, query by query; None if the gallery is searched as before, or without ground truth.
        ahead: Estimates for larger native shares, ascending. Without ground truth a full backfill is not
            among them: it agrees with itself.
    """

    native: int
    share: float
    cost: float
    seconds: float
    weight: float
    criterion: str
    truth: str
    status_quo: Estimate
    served: Estimate
    gain: Estimate | None
    ahead: tuple[Promised, ...]

    def __str__(self) -> str:
        """Returns "40 native (2 %): map 61.2 (58.9 to 63.4), 55.8 (53.0 to 58.1) before"."""
        return ": ".join(self.lines)

    @property
    def lines(self) -> tuple[str, str]:
        """Natives, and figures: "40 native (2 %)", "map 61.2 (58.9 to 63.4), 55.8 (53.0 to 58.1) before"."""
        cost = f", {self.cost:g} in cost" if self.cost else ""
        before = f"{self.criterion} {self.status_quo.percent}"
        now = f"{self.criterion} {self.served.percent}" if self.weight else f"{before} as before"
        was = f", {self.status_quo.percent} before" if self.weight else ""
        return f"{self.native} native ({self.share:.1%}){cost}", f"{now}{was}"


class Waves(tuple[WaveFigures, ...], Shown):
    """Training rounds of an upgrade, oldest first."""

    __slots__ = ()


def read_waves(catalog: Catalog, target: str) -> Waves:
    """All training rounds of the upgrade to a target, oldest first; read-only."""
    found = (_wave(estimate, figures) for estimate, figures in estimates_of(catalog, target) if "native" in figures)
    return Waves(wave for wave in found if wave is not None)


def figures_of_wave(native: int, spent: Spent, weight: float) -> dict[str, float]:
    """The history entry of a training round's estimate, for `read_waves`."""
    return {"native": native, "cost": spent.cost, "seconds": spent.seconds, "weight": weight}


def _wave(estimate: UpgradeEstimate, figures: Mapping[str, float]) -> WaveFigures | None:
    table, weight = estimate.table, figures.get("weight", 0.0)
    changed, before = weight > 0, table.row("s/s")
    served = table.budget(estimate.share, _way(estimate)) if changed else before
    if not all(table.criterion in row.figures for row in (before, served)):
        return None
    return WaveFigures(
        native=int(figures["native"]),
        share=estimate.share,
        cost=figures.get("cost", 0.0),
        seconds=figures.get("seconds", 0.0),
        weight=weight,
        criterion=table.criterion,
        truth=table.truth,
        status_quo=before.figures[table.criterion],
        served=served.figures[table.criterion],
        gain=served.gains.get(table.criterion) if changed else None,
        ahead=tuple(_promised(row, table.criterion) for row in _ahead(estimate)),
    )


def _ahead(estimate: UpgradeEstimate) -> list[DecisionRow]:
    most = 1.0 if estimate.table.has_ground_truth else 1.0 - SAME_SHARE
    rows = [row for row in estimate.table.served(_way(estimate)) if estimate.share + SAME_SHARE < row.share <= most]
    return sorted((row for row in rows if estimate.table.criterion in row.figures), key=lambda row: row.share)


def _way(estimate: UpgradeEstimate) -> Serving:
    return "target" if estimate.terms.serving == "target" else "fused"


def _promised(row: DecisionRow, criterion: str) -> Promised:
    return Promised(row.share, row.figures[criterion], row.gains.get(criterion))
