"""Training pairs of a self-training upgrade, and its schedule.

Pairs are items that have a native vector in both versions. Randomly drawn ones also evaluate the fitted transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.digests import digest_half
from compatstore.evaluation.curve import native_count
from compatstore.storage.columns import NATIVE
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.cells import classes_of, random_scores
from compatstore.upgrade.backfilling.policies import AT_RANDOM, RANDOM, order
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import asked_share
from compatstore.upgrade.estimates.sample import require_labels
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import column_of
from compatstore.versions import EmbeddingVersion

FEWEST_PAIRS = 40
MOST_PAIRS, MOST_JUDGES = 20_000, 1_000
FOLDED = 1.5  # growth from the goal of a wave to the end of the budget below which the wave goes on to the end
_LAST_ROUND = 0.75  # of the processor time of all rounds, which falls by the square of the growth from round to round
LEAST_GROWTH = 1.1  # growth of natives that starts another training round when the budget ends within a wave
_DRAW = "learn"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPairs:
    """Pairs of the gallery's own, in random order.

    Args:
        source: (n, source dim) float32, native in the source.
        target: (n, target dim) float32, native in the target.
        side: (n, side dim) float32, side-information of the source, or None.
        source_version: The source.
        target_version: The target.
        seed: Seed of the run.
        classes: (n,) intp, the class of each item, -1 for none; None without labels.
        native_share: Share of the gallery that is native, in [0, 1].
        given: The transform that the upgrade began with, whose correction is a candidate; or None.
        allowance: Processor seconds that the round may take; what is not a closed form is left out beyond them.
    """

    source: FloatArray
    target: FloatArray
    side: FloatArray | None
    source_version: EmbeddingVersion
    target_version: EmbeddingVersion
    seed: int
    classes: Positions | None = None
    native_share: float = 0.0
    given: Artifact | None = None
    allowance: float = math.inf

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedTransform:
    """A fitted transform.

    Args:
        name: The method and its settings.
        artifact: Learned from all pairs.
        transformed: (n, target dim) float32, the pairs' sources, each by a transform that was fitted without it.
        factors: (n,) float64, cosine shrinkage factors of these (see `EvaluationSample`), each fitted on other pairs;
            None if the transform does not predict its errors.
    """

    name: str
    artifact: Artifact
    transformed: FloatArray
    factors: Doubles | None = None


class Learner(Protocol):
    """Learns transforms from pairs; `Learn` is one."""

    @property
    def growth(self) -> float:
        """Ratio of native items after a wave to those before it, above 1."""

    @property
    def improve(self) -> bool:
        """True if it also learns where an artifact leads to the target, of which it makes a correction."""

    def first_rows(self, items: int) -> int:
        """Items of the first wave, by the number of the gallery's items."""

    @property
    def least_gain(self) -> float | None:
        """Embedding ends if the upper bound of the remaining budget's gain is at most this; None: no such end."""

    @property
    def time_share(self) -> float | None:
        """Processor time of all rounds, as a share of the time that embedding all items takes; None: no limit."""

    def train(
        self, training: TrainingPairs, tried: Callable[[int, int, float], None] | None = None
    ) -> Sequence[FittedTransform]:
        """Candidate transforms, those nearest to the natives first; none if nothing can be trained.

        Args:
            training: The pairs.
            tried: Called after each fit with the fits that are done, their number as far as known, and the seconds that
                others take, approximately. An error that it raises ends the training round.
        """


class Wave(NamedTuple):
    """Position in the schedule of waves (deterministic across restarts).

    Attributes:
        full: Natives at the end of the last wave that is over, 0 where none is.
        goal: Natives at the end of the next one.
    """

    full: int
    goal: int


def wave_of(context: UpgradeContext, learner: Learner) -> Wave:
    """Position in the schedule: each wave makes `growth` times as many items native as the one before.

    The wave before the end of the budget goes on to the end if that is near, so that no round is for a few new pairs.
    """
    native, items = context.count(context.target.native), context.count()
    end, wave = native_count(asked_share(context), items), Wave(0, learner.first_rows(items))
    while wave.goal <= max(native, context.run.learned_at):  # natives that were deleted since have been learned from
        goal = max(round(wave.goal * learner.growth), wave.goal + 1)
        wave = Wave(wave.goal, end if goal < end < FOLDED * goal else goal)
    return wave


def allowance_of(context: UpgradeContext, learner: Learner) -> float:
    """Processor seconds that a round may take; infinite without a limit, or if no item was embedded yet.

    All rounds together may take `time_share` of the time in which all items would be embedded. Most of it is for the
    last one, with the most pairs, whose transform is served.
    """
    spent, _ = read_account(context)
    if learner.time_share is None or not spent.rows:
        return math.inf
    items, natives = context.count(), context.count(context.target.native)
    part = min(natives / max(asked_share(context) * items, 1), 1.0)
    return learner.time_share * items * spent.seconds / spent.rows * _LAST_ROUND * part**2


def training_pairs_of(context: UpgradeContext, gates: Gates, allowance: float) -> tuple[TrainingPairs, Positions]:
    """The training pairs, and the rows of those that evaluate.

    Pairs that evaluate were drawn at random, so that they represent all items of the gallery.
    """
    catalog, run, labels = context.catalog, context.run, column_of(gates.labels)
    rows = TableRows(context)
    native = rows.native() & _native_in_source(context)
    picked = np.flatnonzero(native)
    shuffled = np.argsort(-random_scores(rows.ids.take(picked), _DRAW, run.seed), kind="stable")
    picked = picked[shuffled][:MOST_PAIRS]
    drawn = order(RANDOM, rows, run.seed)
    at_random = native.copy() if run.policy in AT_RANDOM else np.zeros(len(native), bool)
    at_random[drawn[: _before_gap(native[drawn])]] = True
    source, target = context.source, context.target
    require_labels(context.snapshot.schema, run.target, labels)
    names = [*source.item_names, *target.names, *([labels] if labels else [])]
    table = context.snapshot.take(picked.tolist(), columns=list(dict.fromkeys(names)))
    read, made = source.read_items(table), target.decode(table)
    forms = VectorForm.of(context.registry.record(run.source)), VectorForm.of(context.target_record)
    found = read.valid & forms[0].searchable(read.vectors) & forms[1].searchable(made.vectors)
    if not found.all():  # no search finds the others
        picked, table, read, made = picked[found], table.filter(found), read.take(found), made.take(found)
    has_side = source.side is not None and bool(read.side_valid.all())
    classes = None if labels is None else classes_of(table.column(labels))
    training = TrainingPairs(
        source=read.vectors,
        target=made.vectors,
        side=read.side if has_side else None,
        source_version=catalog.version(run.source),
        target_version=catalog.version(run.target),
        seed=run.seed,
        classes=classes,
        native_share=float(rows.native().mean()) if len(rows.ids) else 0.0,
        given=catalog.artifact(run.given) if run.given else None,
        allowance=allowance,
    )
    judges = np.flatnonzero(at_random[picked])
    if classes is not None:
        judges = judges[classes[judges] >= 0]
    return training, judges[:MOST_JUDGES]


def _native_in_source(context: UpgradeContext) -> BoolArray:
    """(n,) bool, items whose vector in the source is of the source's own model, in the order of the table."""
    source = context.source
    if source.origin is None:
        return np.ones(context.snapshot.count_rows(), bool)
    column = context.snapshot.to_table(columns=[source.origin]).column(source.origin)
    return np.array([origin == NATIVE for origin in column.to_pylist()], bool)


def _before_gap(native: BoolArray) -> int:
    """Number of leading items that are all native."""
    return len(native) if native.all() else int((~native).argmax())


class CurrentTransform(NamedTuple):
    """The transform that the gallery has, and the pairs that it has not learned from, (n,) bool."""

    transform: FittedTransform
    unseen: BoolArray


def current_transform(context: UpgradeContext, training: TrainingPairs) -> CurrentTransform | None:
    """The transform that the gallery has; None if it has none, or none that can be applied to the pairs."""
    if not context.run.path:
        return None
    artifact = context.catalog.artifact(context.run.path[-1])
    with_side = artifact.manifest.side_source is not None
    if with_side and training.side is None:
        return None
    made = artifact.apply(training.source, training.side if with_side else None)
    shrinkage = Shrinkage.of(artifact.manifest.figures)
    factors = None if shrinkage is None or made.uncertainty is None else shrinkage.at(made.uncertainty)
    seen = (
        np.zeros(len(training), bool) if artifact.seen is None else np.isin(digest_half(training.source), artifact.seen)
    )
    transform = FittedTransform(
        name=artifact.manifest.kind, artifact=artifact, transformed=made.vectors, factors=factors
    )
    return CurrentTransform(transform, ~seen)
