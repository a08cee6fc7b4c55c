"""What embedding an item will cost, where the encoder knows: by the lengths of a sample of sources."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray
from compatstore.encoders import Bill, Encoder, Metered
from compatstore.storage.ids import column, find
from compatstore.upgrade.context import UpgradeContext

SAMPLED = 256  # items


def expected_price(context: UpgradeContext, encoder: Encoder | None, ids: ArrowArray | None = None) -> float | None:
    """Money that embedding an item will cost, about; nothing is sent anywhere.

    Args:
        context: The upgrade.
        encoder: The target's model.
        ids: Arrow array of the items to choose the sample from; None for all items.

    Returns:
        None where the encoder does not say, or no item has anything to be embedded from.
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
    """What some sources will cost; nothing of an encoder that does not say."""
    return encoder.expected_bill(sources) if isinstance(encoder, Metered) else Bill()


def knows_its_price(encoder: Encoder | None) -> bool:
    """Whether an encoder says what it costs."""
    return encoder is not None and isinstance(encoder, Metered) and encoder.expected_bill([]).cost is not None
