"""Refit while filling: what a backfill has gathered corrects the transform of the rows that remain.

The corrected artifact takes the place of the run's last one in one commit; from then on every transformed row whose
origin is another one is to be hopped again, which any hop of the run does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.errors import CorruptArtifact
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionValues
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.backfilling.account import unbackfillable
from compatstore.upgrade.ordering.draw import draw, validation_rows
from compatstore.upgrade.ordering.policy_inputs import TableRows
from compatstore.upgrade.refitting.refitter import Gathered, Refitted, Refitter
from compatstore.upgrade.states import BACKFILL, CUTOVER, require_open, set_run
from compatstore.upgrade.transform import Transformer, transformer_of

MOST_ROWS = 20_000
GROWTH = 1.25


def refit(catalog: Catalog, run: RunRecord, refitter: Refitter) -> RunRecord:
    """Correct the run's last artifact by the native rows, where validation rows come nearer to their natives.

    Does nothing until a quarter more rows are native than when it was last tried.

    Returns:
        The run, with the corrected artifact in its path if it was taken. What was found is in the history either way.

    Raises:
        Interrupted: The run was ended meanwhile.
    """
    natives = catalog.store.count(catalog.registry().columns(run.target).native)
    if not run.path or natives <= GROWTH * run.refit_at:
        return run
    tried = replace(run, refit_at=natives)
    gathered = gather(catalog, run)
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


def gather(catalog: Catalog, run: RunRecord) -> Gathered:
    """Native rows as pairs for the run's last artifact, those drawn at random first, 20,000 at most; read-only."""
    registry, snapshot = catalog.registry(), catalog.store.snapshot()
    rows, transformer = TableRows(catalog, registry, run, snapshot), transformer_of(catalog, run)
    native = rows.native()
    drawn = draw(run.policy, rows, run.seed)
    picked = drawn[native[drawn]][:MOST_ROWS]  # an order by id: rows may have moved, and the artifact is the same
    source, target = _read(registry, run, snapshot, picked)
    usable = transformer.possible(source)
    usable[usable] = transformer.apply(source.take(usable)).valid
    picked, source = picked[usable], source.take(usable)
    hopped = transformer.apply(source).uncertainty if len(picked) else np.zeros(0, np.float32)
    failed = unbackfillable(catalog, run.target)["id"].combine_chunks()
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

    def by_logits(self, score: Callable[[FloatArray], Doubles]) -> Doubles:
        """(n,) float64, as the table has them now."""
        return self.table.by_logits(score)

    def column(self, name: str) -> Doubles:
        """(n,) float64, a column of the user's numbers."""
        return self.table.column(name)


def _read(
    registry: Registry, run: RunRecord, snapshot: Snapshot, picked: Positions
) -> tuple[VersionValues, FloatArray]:
    """The source's values and the native vectors of chosen rows."""
    source, target = registry.columns(run.source), registry.columns(run.target)
    table = snapshot.take(picked.tolist(), columns=[*source.item_names, *target.names])
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
