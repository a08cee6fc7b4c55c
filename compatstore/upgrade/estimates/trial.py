"""Try an upgrade on a sample: embed it natively, transform it, measure every way to serve the gallery; read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.encoders import FloatArray
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation import DecisionSettings, DecisionTable, Trial, decide
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionValues
from compatstore.storage.records import RunRecord
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.estimates.sample import SMALLEST_SAMPLE, Sample, draw_sample
from compatstore.upgrade.rows import COSINE_SCALE, ArrayRows
from compatstore.upgrade.transform import transformer_of

BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """How an upgrade is tried.

    Args:
        sample: Items to look at: each is a query, and what the others search.
        labels: Column that says what is correct, or None: then it is what the target itself finds.
        criterion: The figure that decides: "cmc@1", "cmc@5" or "map".
        shares: Budgets between a hop alone and a full backfill, in (0, 1).
        seed: Of the sample and of the bootstrap.

    Raises:
        InvalidInput: The sample is too small.
    """

    sample: int = 2000
    labels: str | None = None
    criterion: str = "cmc@1"
    shares: tuple[float, ...] = (0.1, 0.25, 0.5)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample < SMALLEST_SAMPLE:
            raise InvalidInput("try an upgrade", expected=f"a sample >= {SMALLEST_SAMPLE}", found=f"{self.sample}")


def try_upgrade(catalog: Catalog, run: RunRecord, settings: SampleSettings) -> DecisionTable:
    """Measure an upgrade on items of the gallery before, or while, it runs.

    Items that are native in the target already are taken as they are, the others are embedded for the trial and
    not kept. Each item of the sample searches the others, and the sample stands for the gallery that it was drawn
    from: mAP is as of the whole gallery, CMC, which falls with fewer correct items at hand, as of the sample.

    Args:
        catalog: The gallery.
        run: Its upgrade, settled: the path and the order of the backfill.
        settings: Size of the sample and what decides.

    Raises:
        UpgradeError: There is nothing to transform with, or too few items could be embedded natively.
        InvalidInput: There is no such column of labels, or too few items.
    """
    if not run.path:
        raise UpgradeError(
            f"try the upgrade to {run.target}",
            expected="an artifact to transform with",
            found="none: everything would be embedded natively",
            fix="Link one: compatstore link GALLERY ARTIFACT",
        )
    sample = draw_sample(catalog, run, settings.sample, labels=settings.labels, seed=settings.seed)
    hopped = transformer_of(catalog, run).apply(sample.source)
    return decide_on_sample(catalog, run, sample, hopped.vectors, _order(catalog, run, sample.ids, hopped), settings)


def decide_on_sample(
    catalog: Catalog,
    run: RunRecord,
    sample: Sample,
    transformed: FloatArray,
    urgent: npt.NDArray[np.intp],
    settings: SampleSettings,
) -> DecisionTable:
    """Let the items of a sample search each other, in every way.

    Args:
        catalog: The gallery.
        run: Its upgrade.
        sample: n items.
        transformed: (n, dim) float32, what serves where nothing more is embedded natively.
        urgent: (n,) rows of the sample in the order of the backfill.
        settings: What decides.
    """
    registry = catalog.registry()
    ids = sample.ids.to_numpy(zero_copy_only=False)
    trial = Trial(
        source_queries=sample.source.vectors,
        target_queries=sample.native,
        source=sample.source.vectors,
        transformed=transformed,
        native=sample.native,
        order=urgent,
        query_labels=sample.labels,
        gallery_labels=sample.labels,
        query_ids=ids,
        gallery_ids=ids,
        population=sample.population,
    )
    return decide(
        trial,
        DecisionSettings(
            criterion=settings.criterion,
            shares=settings.shares,
            source_metric=registry.record(run.source).version().metric,
            target_metric=registry.record(run.target).version().metric,
            seed=settings.seed,
        ),
    )


def _order(catalog: Catalog, run: RunRecord, ids: Any, transformed: VersionValues) -> npt.NDArray[np.intp]:
    """The order in which the run's policy would backfill the sample."""
    head = catalog.head(run.target)
    scale = COSINE_SCALE if catalog.version(run.target).normalised else 1.0
    rows = ArrayRows(
        ids=ids,
        sigma2=None if np.isnan(transformed.uncertainty).all() else transformed.uncertainty,
        logits=None if head is None else scale * (transformed.vectors @ head.T),
    )
    return order(run.policy, rows, run.seed)
