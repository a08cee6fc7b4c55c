"""The table of the page: each kind of side-information, the mean and deviation over seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import head, of_method, plain, points, row
from benchmarks.pairs.journal import Record
from benchmarks.side_information.measure import ROWS

BOUNDS, BYTES = "bounds", "bytes"
_MARKED = re.compile(r"(<!-- table: side-information -->\n).*?(<!-- end -->)", re.DOTALL)

# CMC-1 / mAP of t/h, and linear CKA: FCT, tables 6 and 13, ImageNet 500 -> 1,000 classes.
PAPER = {
    "none": ("61.8 / 39.9", "0.00"),
    "autoencoder": ("62.0 / 40.5", "0.04"),
    "another seed": ("63.5 / 42.1", "0.70"),
    "another seed, Mixup on images": ("63.8 / 42.4", "0.66"),
    "SimCLR, 128 values": ("65.0 / 43.6", "0.27"),
    "trained for signs": ("64.1 / 42.7", ""),
}


def fill(document: str, records: Sequence[Record]) -> str:
    """Return a page with its table replaced."""
    lines = "".join(f"{line}\n" for line in table(records))
    return _MARKED.sub(lambda match: match[1] + lines + match[2], document)


def table(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines of the table."""
    (stored,) = of_method(records, BYTES)
    none = of_method(records, "none")
    yield from head("side-information", "bytes", "t/h", "h/h", "t/h less none", "CKA", "paper: t/h", "CKA")
    for name in ROWS:
        found = of_method(records, name)
        less = [100 * (one["t/h"]["cmc1"] - other["t/h"]["cmc1"]) for one, other in zip(found, none, strict=True)]
        more = f"{statistics.mean(less):+.1f}" if name != "none" else ""
        cka = plain([record.get("cka") for record in found])
        cells = (
            name,
            f"{stored[name]:.1f}" if name in stored else "",
            _cell(found, "t/h"),
            _cell(found, "h/h"),
            more,
            cka,
        )
        yield row(*cells, *PAPER.get(name, ("", "")))
    bounds = of_method(records, BOUNDS)
    yield row("source alone, s/s", "", _cell(bounds, "s/s"), "", "", "", "46.5 / 29.9", "")
    yield row("target alone, t/t", "", _cell(bounds, "t/t"), "", "", "", "68.1 / 45.0", "")


def _cell(records: Sequence[Record], way: str) -> str:
    """CMC-1 ± deviation / mAP, in points."""
    cmc, mean = ([record[way][name] for record in records] for name in ("cmc1", "map"))
    return f"{points(cmc)} / {100 * statistics.mean(mean):.1f}"
