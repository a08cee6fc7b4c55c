"""The table of two upgrades in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, points, row, trials
from benchmarks.pairs.journal import Record

# FCT (CVPR 2022), table 5: CMC-1 / mAP on ImageNet, 250 -> 500 -> 1,000 classes.
PAPER = {
    "direct, side": "59.9 / 37.0",
    "chained, side": "57.4 / 33.5",
    "direct": "53.9 / 30.6",
    "chained": "44.9 / 26.4",
}
WAYS = {
    "direct, side": "direct, with side-information",
    "chained, side": "chained, with side-information carried by g",
    "direct": "direct, without side-information",
    "chained": "chained, without side-information",
}


def chain_table(records: Sequence[Record]) -> Iterator[str]:
    """Write one table for each set and setting that has a middle version."""
    for name, setting, found in trials(records):
        if not of_method(found, "chained"):
            continue
        yield f"\n#### {name}, classes {setting}, seeds: {len({r['seed'] for r in found})}\n"
        yield from head("gallery", "CMC-1", "mAP", "paper's CMC-1 / mAP")
        for version in ("s/s", "m/m", "t/t"):
            values = [r["found"][version] for r in of_method(found, "none")]
            yield row(f"**{version}**", *(points([v[measure] for v in values]) for measure in MEASURES), "")
        for way, words in WAYS.items():
            values = [r["found"]["t/h"] for r in of_method(found, way)]
            if values:
                yield row(words, *(points([v[measure] for v in values]) for measure in MEASURES), PAPER[way])
