"""Items of a gallery that can be embedded natively: those with a source, less those that were tried in vain.

Items without a source are counted in the table and not listed beside it: there may be very many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, BoolArray, Id, RowNumbers
from compatstore.encoders import Bill, Encoder, Metered
from compatstore.storage.ids import ADDRESS, column, find, read_rows
from compatstore.storage.records import Spent
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.backfilling.embedding import Embedded, Embedder, ItemBatch, embedder_of
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.progress import Monitor, OnProgress
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.run_settings import RunSettings

PROBE_BATCH, MOST_PROBED, PROBE_SECONDS = 16, 128, 2.0


@dataclass(frozen=True, kw_only=True)
class Embeddable:
    """Number of a gallery's items that can be embedded natively.

    Args:
        items: Items of the gallery.
        native: Those that are native already.
        without_source: Those of the others that have nothing to be embedded from.
        refused: Those that were tried in vain, or that are unknown to the encoder.
        probed: Items of a random sample of the rest that were embedded to see whether that can be done; 0 for none.
        readable: Those of the sample that could be embedded.
        seconds: Time that one of them took; None if none was embedded.
        price: Money that one of them will cost, by the lengths of a sample of sources; None if the encoder does not
            say.
    """

    items: int
    native: int = 0
    without_source: int = 0
    refused: int = 0
    probed: int = 0
    readable: int = 0
    seconds: float | None = None
    price: float | None = None

    @property
    def most(self) -> int:
        """Upper bound on the number of native items, as far as known."""
        return self.items - self.without_source - self.refused

    @property
    def expected(self) -> int:
        """Items that can be native, by the sample; `most` without one."""
        share = self.readable / self.probed if self.probed else 1.0
        return self.native + round((self.most - self.native) * share)

    def __str__(self) -> str:
        unreadable = self.probed - self.readable
        reasons = (
            (self.without_source, f"{self.without_source} have no source"),
            (self.refused, f"{self.refused} are unknown to the encoder or were tried in vain"),
            (unreadable, f"{unreadable} of {self.probed} others that were tried cannot be embedded"),
        )
        why = "; ".join(words for count, words in reasons if count)
        about = "about " if unreadable else ""
        return f"{about}{self.expected} of {self.items} items can be embedded natively" + (f" ({why})" if why else "")


def count_embeddable(context: UpgradeContext, refused: int) -> Embeddable:
    """Count embeddable items without an encoder; read-only.

    Args:
        context: The upgrade; its `reads` decides if items need a source.
        refused: Items that were tried in vain.
    """
    columns, nothing = context.target_record.columns, sourceless(context)
    return Embeddable(
        items=context.count(),
        native=0 if columns is None else context.count(columns.native),
        without_source=0 if nothing is None else context.count(nothing),
        refused=refused,
    )


def ask_embeddable(context: UpgradeContext, refused: ArrowArray) -> tuple[Embeddable, ArrowArray]:
    """Count embeddable items with the encoder's help; read-only.

    An encoder that has vectors of known ids alone (`Precomputed`) is checked for all of them.

    Args:
        context: The upgrade.
        refused: Arrow array of the ids that were tried in vain.

    Returns:
        The counts, and an Arrow array of the ids that may be embeddable and are not native; none without an encoder.
    """
    encoder = context.catalog.encoder(context.run.target)
    if encoder is None:
        return count_embeddable(context, len(refused)), refused.slice(0, 0)
    context = context.with_run(replace(context.run, reads=encoder.reads))
    counted = count_embeddable(context, len(refused))
    condition, source = f"({_not_native(context)})", context.registry.source_column
    if encoder.reads == "source":
        condition += f" AND {column(source)} IS NOT NULL" if source else " AND FALSE"
    found = context.snapshot.to_table(columns=[context.registry.id_column], filter=condition)
    ids = found.column(0).combine_chunks()
    ids = ids.filter(pc.invert(pc.is_in(ids, value_set=refused.cast(ids.type))))
    knows = getattr(encoder, "knows", None)
    if knows is not None:
        known = pa.array(np.asarray(knows(ids.to_pylist()), bool))
        counted = replace(counted, refused=counted.refused + len(ids) - known.true_count)
        ids = ids.filter(known)
    return counted, ids


def probe_embeddable(context: UpgradeContext, refused: ArrowArray, progress: OnProgress = None) -> Embeddable:
    """Count embeddable items as `ask_embeddable` does, and test a random sample by embedding it; nothing is kept.

    Nothing is embedded by an encoder that is paid for: it gives the cost of the sample. `progress` is called
    after each batch.
    """
    counted, ids = ask_embeddable(context, refused)
    encoder = context.catalog.encoder(context.run.target)
    if encoder is None:
        return counted
    if isinstance(encoder, Metered):
        return replace(counted, price=expected_price(context, encoder, ids))
    ids = ids.take(pa.array(np.random.default_rng(context.run.seed).permutation(len(ids))[:MOST_PROBED]))
    embedder, monitor = embedder_of(context, RunSettings(retries=0)), Monitor("probe", len(ids), progress)
    made, seconds = list[Embedded](), 0.0
    monitor.begin()  # the first batch may load the model
    for start in range(0, len(ids), PROBE_BATCH):
        batch = read_batch(context, context.snapshot, embedder, ids.slice(start, PROBE_BATCH).to_pylist())
        made.append(embedder.embed(batch))
        monitor.advance(len(made[-1].batch.ids))
        seconds += made[-1].seconds if start else 0.0  # many models are loaded by their first batch
        if seconds > PROBE_SECONDS:
            break
    if not made:
        return counted
    last = made[-1]
    return replace(
        counted,
        probed=sum(len(each.batch.ids) for each in made),
        readable=sum(len(each.rows) for each in made),
        seconds=last.seconds / len(last.rows) if len(last.rows) else None,
    )


def sourceless(context: UpgradeContext) -> str | None:
    """SQL condition: the item is not native and has nothing to be embedded from; None if none can be so."""
    if context.run.reads != "source":
        return None
    source = context.registry.source_column
    return f"({_not_native(context)}) AND ({f'{column(source)} IS NULL' if source else 'TRUE'})"


def without_source(context: UpgradeContext) -> BoolArray:
    """(n,) bool, items with nothing to be embedded from, in the order of the table; read in batches."""
    source = context.registry.source_column
    if context.run.reads != "source" or source is None:
        return np.full(context.count(), context.run.reads == "source")
    batches = context.snapshot.to_batches(columns=[source])
    found = (batch[source].is_null().to_numpy(zero_copy_only=False) for batch in batches)
    return np.concatenate([np.zeros(0, bool), *found])


def inputs_of(encoder: Encoder | None, ids: list[Id], sources: list[Any]) -> list[Any]:
    """Inputs of an encoder: the items' ids or their sources; none without an encoder."""
    return [] if encoder is None else ids if encoder.reads == "id" else sources


def read_batch(
    context: UpgradeContext,
    snapshot: Snapshot,
    embedder: Embedder,
    ids: Sequence[Id],
    addresses: RowNumbers | None = None,
) -> ItemBatch:
    """Read items to embed, those that are there.

    Args:
        context: The upgrade.
        snapshot: The table version that is read.
        embedder: Embeds them.
        ids: n ids.
        addresses: (n,) int64, as of `read_rows`.
    """
    key, sources, source = context.registry.id_column, context.registry.source_column, context.source
    rows = read_rows(snapshot, key, ids, addresses, [key, *source.hashed_names(sources)])
    found = rows[key].to_pylist()
    given = rows[sources].to_pylist() if sources else [None] * len(found)
    return ItemBatch(
        ids=found,
        inputs=inputs_of(embedder.encoder, found, given),
        input_hash=source.input_hashes(rows, sources).native,
        side_inputs=inputs_of(embedder.side_encoder, found, given),
        addresses=rows[ADDRESS].to_numpy().astype(np.int64),
    )


def _not_native(context: UpgradeContext) -> str:
    columns = context.target_record.columns
    if columns is None:
        return "TRUE"
    return f"{columns.missing} OR NOT ({columns.native})" if columns.origin else columns.missing


@dataclass(frozen=True)
class Left:
    """Rest of a budget.

    Attributes:
        rows: Items that may still be embedded.
        cost: Money that they cost; 0 where no price is known.
        seconds: Time that they take, as the items so far; None before any.
    """

    rows: int
    cost: float
    seconds: float | None

    @classmethod
    def of(cls, context: UpgradeContext, spent: Spent, staged: int = 0) -> Left:
        """The remaining budget of an upgrade.

        Args:
            context: The current state of the upgrade.
            spent: Spending of its backfill so far.
            staged: Natives that are durable, but not in the table yet.
        """
        budget, target = Budget.of(context.run), context.target_record.columns
        native = 0 if target is None else context.count(target.native)
        rows = budget.share_left(context.count(), native + staged)
        limit, each = budget.rows_left(spent), spent.seconds / spent.rows if spent.rows else None
        rows = rows if limit is None else min(rows, limit)
        time = budget.seconds_left(spent)
        if time is not None and each:
            rows = min(rows, int(time / each))
        return cls(rows, budget.price(rows), None if each is None else each * rows)

    def __str__(self) -> str:
        """Returns "400 items are left of the budget, 4 in cost, about 12 s"."""
        if not self.rows:
            return "nothing is left of the budget"
        cost = f", {self.cost:g} in cost" if self.cost else ""
        time = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        return f"{self.rows} items are left of the budget{cost}{time}"


SAMPLED = 256  # items


def expected_price(context: UpgradeContext, encoder: Encoder | None, ids: ArrowArray | None = None) -> float | None:
    """Money that embedding an item will cost, about; nothing is sent anywhere.

    Args:
        context: The upgrade.
        encoder: The target's model.
        ids: Arrow array of the items to choose the sample from; None for all items.

    Returns:
        None if the encoder does not say, or no item has anything to be embedded from.
    """
    if not knows_its_price(encoder):
        return None
    assert encoder is not None
    key, source = context.registry.id_column, context.registry.source_column
    read = key if encoder.reads == "id" else source
    if read is None:
        return None
    if ids is None:
        there = f"{column(read)} IS NOT NULL"
        ids = context.snapshot.to_table(columns=[key], filter=there).column(0).combine_chunks()
    picked = np.random.default_rng(context.run.seed).permutation(len(ids))[:SAMPLED]
    columns = list(dict.fromkeys([key, read]))
    rows = find(context.store, key, ids.take(pa.array(picked)).to_pylist(), columns, context.snapshot)
    sources = [value for value in rows[read].to_pylist() if value is not None]
    cost = expected_bill(encoder, sources).cost if sources else None
    return None if cost is None else cost / len(sources)


def expected_bill(encoder: Encoder, sources: list[object]) -> Bill:
    """Cost of some sources; an empty bill if the encoder has no prices."""
    return encoder.expected_bill(sources) if isinstance(encoder, Metered) else Bill()


def knows_its_price(encoder: Encoder | None) -> bool:
    """True if an encoder has prices."""
    return encoder is not None and isinstance(encoder, Metered) and encoder.expected_bill([]).cost is not None
