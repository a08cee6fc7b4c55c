"""An upgrade by an encoder behind HTTP that limits its rate, fails at random and bills: is all embedded, and paid once?

Measured once, by `benchmarks/http_encoder.py` of the commit that the record names, with a server that counts what it
bills. `tests/upgrade/test_billed.py` holds upgrades to the same limits. Three upgrades of a gallery of texts:

* whole: every item is embedded, by one process;
* killed: the same, by processes that are killed at random moments, each followed by the next one;
* limited: a self-training upgrade of a quarter of the texts, with a limit of money and no price: the encoder knows it.

A text that is billed twice is explained by an answer that was lost after it was billed, or by a kill: one batch each.
"""

from __future__ import annotations

from benchmarks.bounds import verdict
from benchmarks.pages import markdown
from benchmarks.record import Record


def table(record: Record) -> str:
    """Figures beside their limits, by upgrade."""
    cells = [
        (row["upgrade"], row["what"], f"{row['figure']:.4g}", f"{row['limit']:.4g}", verdict(row))
        for row in record.rows
    ]
    return markdown(("upgrade", "what", "figure", "at most", ""), cells)


TABLES = {"limits": table}
