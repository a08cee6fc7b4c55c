"""Fill the tables of documents from the journal of a run.

    python -m benchmarks.pairs.report docs/results/pairs.jsonl docs/results/pairs.md docs/results/refit.md
    python -m benchmarks.pairs.report docs/results/chains.jsonl docs/results/chains.md
    python -m benchmarks.pairs.report docs/results/balance.jsonl docs/results/balance.md

A table lies between `<!-- table: NAME -->` and `<!-- end -->`; its name is one of TABLES.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.pairs.balance_table import balance_table
from benchmarks.pairs.chain_table import chain_table
from benchmarks.pairs.journal import Journal, Record
from benchmarks.pairs.lambda_table import lambda_table
from benchmarks.pairs.refit_table import refit_table
from benchmarks.pairs.row_table import row_table
from benchmarks.pairs.settings import SIZES

TABLES: dict[str, Callable[[Sequence[Record]], Iterator[str]]] = {
    "rows": row_table,
    "balance": balance_table,
    "lambda": lambda_table,
    "chains": chain_table,
    "refit": refit_table,
}

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(document: str, records: Sequence[Record]) -> str:
    """Return a document with its tables replaced."""
    return _MARKED.sub(partial(_table, records), document)


def _table(records: Sequence[Record], match: re.Match[str]) -> str:
    lines = TABLES[match[2]](records)
    return match[1] + "".join(f"{line}\n" for line in lines) + match[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--size", choices=SIZES, default="cpu")
    options = parser.parse_args()
    records = [record for record in Journal(options.journal).records if record["size"] == options.size]
    for path in options.documents:
        path.write_text(fill(path.read_text(), records))
        print(f"filled {path} from {len(records)} measurements")


if __name__ == "__main__":
    main()
