"""Hops and a backfill on a GPU, beside the processor and the network alone.

Measured once, by `benchmarks/gpu.py` of the commit that the record names: rows a second of hops in float32 and
bfloat16; images a second of a network of timm (random weights, JPEG files of 112 pixels), with images on the card, by
its encoder, and in a backfill.
"""

from __future__ import annotations

from benchmarks.bounds import number
from benchmarks.pages import markdown
from benchmarks.record import Record


def table(record: Record) -> str:
    """Rates, and their shares of the limits."""
    cells = []
    for row in record.rows:
        limit = f"{row['share']} of {row['of']}" if row["share"] else ""
        cells.append((row["what"], f"{number(row['per_second'])} {row['unit']}", limit))
    return markdown(("what", "a second", "share of its limit"), cells)


TABLES = {"rates": table}
