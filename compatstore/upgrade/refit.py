"""Refit while filling: what a backfill has gathered corrects the transform of the rows that remain.

The corrected artifact takes the place of the run's last one in one commit; from then on every transformed row whose
origin is another one is to be hopped again, which any hop of the run does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import CorruptArtifact
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionValues
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.backfilling.account import unbackfillable
from compatstore.upgrade.backfilling.policies import draw, validation_rows
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.states import BACKFILL, CUTOVER, require_open, set_run
from compatstore.upgrade.transform import Transformer, transformer_of

FEWEST_ROWS, FEWEST_VALIDATION_ROWS = 20, 10
MOST_ROWS = 20_000
GROWTH = 1.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Gathered:
    """Rows that a backfill has embedded natively, as pairs to learn from.

    Args:
        source: (n, source dim) float32, what the transform reads.
        target: (n, target dim) float32, the native vectors.
        side: (n, side dim) float32, where the transform reads side-information.
        validation_rows: (m,) intp, rows that are like the remaining ones: drawn at random, and not embedded by now by
            the backfill's order alone. All rows, where the order is random.
        native: Share of the gallery that is native, in (0, 1).
    """

    source: FloatArray
    target: FloatArray
    side: FloatArray | None = None
    validation_rows: npt.NDArray[np.intp]
    native: float

    @property
    def enough(self) -> bool:
        """Whether there are rows enough to learn from and to validate by."""
        return len(self.source) >= FEWEST_ROWS and len(self.validation_rows) >= FEWEST_VALIDATION_ROWS


@dataclass(frozen=True, kw_only=True, eq=False)
class Refitted:
    """What a refit gave.

    Args:
        artifact: The corrected transform.
        before: Mean squared distance of the validation rows to their native vectors under the transform as it was.
        after: The same under corrections that were learned without the row at hand.
        standard_error: Of the difference of the two, row by row.
    """

    artifact: Artifact
    before: float
    after: float
    standard_error: float

    @property
    def improved(self) -> bool:
        """Whether what remains is worth hopping again: the gain is more than chance would give in one case of forty."""
        return self.before - self.after > 2 * self.standard_error

    @property
    def figures(self) -> str:
        """Both distances and the standard error of their difference, as the history shows them."""
        return f"held-out squared distance {self.before:.4g} -> {self.after:.4g} (± {self.standard_error:.2g})"


class Refitter(Protocol):
    """Corrects a transform by rows that a backfill has gathered."""

    @property
    def holdout(self) -> float:
        """Share of the backfill's budget, in (0, 1), that is drawn at random first: the validation rows."""

    def fit(self, current: Artifact, gathered: Gathered) -> Refitted:
        """Correct a ForwardTransform."""


def refit(context: UpgradeContext, refitter: Refitter) -> RunRecord:
    """Correct the run's last artifact by the native rows, where validation rows come nearer to their natives.

    Does nothing until a quarter more rows are native than when it was last tried.

    Args:
        context: The upgrade.
        refitter: What corrects it.
        doubts: Whether searches are to go by expected distances: a correction of which these could not be measured is
            not taken.

    Returns:
        The run, with the corrected artifact in its path if it was taken. What was found is in the history either way.

    Raises:
        Interrupted: The run was ended meanwhile.
    """
    catalog, run = context.catalog, context.run
    natives = context.count(context.target.native)
    if not run.path or natives <= GROWTH * run.refit_at:
        return run
    tried = replace(run, refit_at=natives)
    if transformer_of(catalog, run).exact:
        return _refuse(catalog, tried, "nothing to correct: what is derived is exact", natives)
    gathered = gather(context)
    if not gathered.enough:
        drawn = len(gathered.validation_rows)
        few = f"{len(gathered.source)} native rows, {drawn} of them drawn at random and like the rest"
        return _refuse(catalog, tried, f"too few: {few}", natives)
    try:
        refitted = refitter.fit(catalog.artifact(run.path[-1]), gathered)
    except CorruptArtifact as error:  # what was learned is not finite
        return _refuse(catalog, tried, f"no correction: {error.found}", natives)
    if not refitted.improved:
        return _refuse(catalog, tried, refitted.figures, natives)
    return _take(catalog, tried, refitted, natives)


def gather(context: UpgradeContext) -> Gathered:
    """Native rows as pairs for the run's last artifact, those drawn at random first, 20,000 at most; read-only."""
    run, rows = context.run, TableRows(context)
    transformer = transformer_of(context.catalog, run)
    native = rows.native()
    drawn = draw(run.policy, rows, run.seed)
    picked = drawn[native[drawn]][:MOST_ROWS]  # an order by id: rows may have moved, and the artifact is the same
    source, target = _read(context, picked)
    usable = transformer.possible(source)
    usable[usable] = transformer.apply(source.take(usable)).valid
    picked, source = picked[usable], source.take(usable)
    hopped = transformer.apply(source).uncertainty if len(picked) else np.zeros(0, np.float32)
    failed = unbackfillable(context.catalog, run.target)["id"].combine_chunks()
    unreadable = pc.is_in(rows.ids, value_set=failed).to_numpy(zero_copy_only=False)
    validating = validation_rows(run.policy, _AsHopped(rows, picked, hopped), run.seed, native, unreadable)
    read = _before_last(transformer, source)
    return Gathered(
        source=read.vectors,
        target=target[usable],
        side=read.side if transformer.artifacts[-1].manifest.side_source is not None else None,
        validation_rows=np.flatnonzero(np.isin(picked, validating)),
        native=float(native.mean()) if len(native) else 0.0,
    )


@dataclass(frozen=True, eq=False)
class _AsHopped:
    """The gallery's rows with the uncertainty that native ones had before they became native."""

    table: TableRows
    picked: Positions
    hopped: FloatArray

    @property
    def ids(self) -> Any:
        """Arrow array of n ids."""
        return self.table.ids

    def uncertainty(self) -> Doubles:
        """(n,) float64, sigma^2 of the transformed vectors."""
        values = np.array(self.table.uncertainty())
        values[self.picked] = self.hopped
        return values

    def column(self, name: str) -> Doubles:
        """(n,) float64, a column of the user's numbers."""
        return self.table.column(name)

    def cells(self, seed: int) -> npt.NDArray[np.int64]:
        """(n,) int64, cells of the source's vectors."""
        return self.table.cells(seed)


def _read(context: UpgradeContext, picked: Positions) -> tuple[VersionValues, FloatArray]:
    """The source's values and the native vectors of chosen rows."""
    source, target = context.source, context.target
    table = context.snapshot.take(picked.tolist(), columns=[*source.item_names, *target.names])
    return source.read_items(table), target.decode(table).vectors


def _before_last(transformer: Transformer, source: VersionValues) -> VersionValues:
    """What the last artifact of a chain reads."""
    earlier = transformer.artifacts[:-1]
    return replace(transformer, artifacts=earlier).apply(source) if earlier else source


def _refuse(catalog: Catalog, run: RunRecord, why: str, natives: int) -> RunRecord:
    entry = HistoryEntry("refit refused", run.target, artifact=run.path[-1], rows=natives, note=why)
    return set_run(catalog, run, entry)


def _take(catalog: Catalog, run: RunRecord, refitted: Refitted, natives: int) -> RunRecord:
    """Link the corrected artifact and put it into the run's path, in one commit."""
    last = catalog.artifact_record(run.path[-1])
    record = catalog.add_artifact(refitted.artifact, last.source, last.target)
    taken = replace(
        run,
        path=(*run.path[:-1], record.id),
        refit_of=run.refit_of or run.path[-1],
        state=CUTOVER if run.state == CUTOVER else BACKFILL,
    )

    def change(registry: Registry) -> Registry:
        require_open(registry, run.target)
        return registry.with_artifact(record).with_run(taken)

    entry = HistoryEntry("refit", run.target, artifact=record.id, rows=natives, note=refitted.figures)
    edit(catalog.store, change, entry)
    return taken
