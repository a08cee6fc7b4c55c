"""The backfill: embed chosen items natively, most urgent first, and fold them into the table.

Every finished batch is durable (staged beside the table) before the next one starts. A wave of batches is folded into
the columns fragment by fragment, each in one commit; a staged vector whose item changed meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from compatstore.encoders import Encoder, encode_readable
from compatstore.errors import UpgradeError
from compatstore.evaluation.curve import native_count
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.ids import find
from compatstore.storage.registry import Registry, RunRecord
from compatstore.upgrade.natives import Natives
from compatstore.upgrade.policies import order
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.rows import TableRows

BATCH_ROWS = 256
WAVE_ROWS = 100_000


@dataclass
class Backfill:
    """Embeds the first `floor(alpha n)` items of a run's order.

    Args:
        catalog: The gallery.
        registry: Its state.
        run: Share, policy and seed.
        unreadable: id -> why it could not be embedded; filled as the backfill goes.
    """

    catalog: Catalog
    registry: Registry
    run: RunRecord
    unreadable: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._source: VersionColumns = self.registry.columns(self.run.source)
        self.natives = Natives(self.catalog, self.registry, self.run)

    def remaining(self) -> list[Any]:
        """Ids that are still to be embedded, most urgent first; read-only.

        Native rows count as chosen already, and the rest of the share is the first of the order among the others. A
        row that became native has lost what the policy looked at (its uncertainty, its transformed vector), but then
        it was chosen: what is left of the order that stood before the backfill is the order of what is left. So a
        rerun ends with the very set of an uninterrupted run, and rows that cannot be embedded give way to no others.
        """
        rows = TableRows(self.catalog, self.registry, self.run, self.catalog.store.snapshot())
        native = rows.native()
        chosen = order(self.run.policy, rows, self.run.seed)
        left = max(native_count(self.run.backfill, len(native)) - int(native.sum()), 0)
        todo = rows.ids.take(pa.array(chosen[~native[chosen]][:left]))
        return list(todo.to_pylist())

    def embed(self, monitor: Monitor) -> int:
        """Embed and fold all that remains.

        Returns:
            Native vectors folded into the table.

        Raises:
            Interrupted: A stop was asked for; finished batches stay staged or folded.
            UpgradeError: The target version has no encoder.
        """
        todo = self.remaining()
        if not todo:
            return self.natives.fold()
        encoder = require_encoder(self.catalog, self.run.target)
        staged = self.natives.waiting()
        folded, waiting = 0, len(staged)
        for batch in _batches([item for item in todo if item not in staged]):
            monitor.check()
            waiting += self._stage(batch, encoder)
            monitor.advance(len(batch))
            if waiting >= WAVE_ROWS:
                folded, waiting = folded + self.natives.fold(), 0
        return folded + self.natives.fold()

    def _stage(self, ids: list[Any], encoder: Encoder) -> int:
        """Embed one batch and make it durable; list what cannot be embedded."""
        side = [self._source.side] if self._source.side else []
        columns = [self.registry.id_column, self._source.vector, *side]
        source_column = self.registry.source_column
        rows = find(self.catalog.store, columns[0], ids, [*columns, *([source_column] if source_column else [])])
        found = rows.column(columns[0]).to_pylist()
        sources = rows.column(source_column).to_pylist() if source_column else [None] * len(found)
        basis = self.natives.basis(rows)
        inputs = found if encoder.reads == "id" else sources
        usable = [i for i, value in enumerate(inputs) if value is not None]
        self.unreadable |= {found[i]: "it has no source" for i, value in enumerate(inputs) if value is None}
        if not usable:
            return 0
        encoded = encode_readable(encoder, [inputs[i] for i in usable])
        self.unreadable |= {found[usable[position]]: reason for position, reason in encoded.failures.items()}
        good = [usable[position] for position in encoded.readable]
        if good:
            return self.natives.store([found[i] for i in good], encoded.vectors, basis[good])
        return 0


def require_encoder(catalog: Catalog, target: str) -> Encoder:
    """The encoder of a version.

    Raises:
        UpgradeError: It has none here.
    """
    encoder = catalog.encoder(target)
    if encoder is None:
        raise UpgradeError(
            f"embed items in {target}",
            expected=f"an encoder for {target}",
            found="none: its vectors come from outside",
            fix=f"Open the gallery with encoders={{'{target}': ...}} (a Precomputed one will do), "
            "or upgrade without a backfill.",
        )
    return encoder


def _batches(ids: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(ids), BATCH_ROWS):
        yield ids[start : start + BATCH_ROWS]
