"""The table of refitting while filling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, points, row, trials
from benchmarks.pairs.journal import Record
from benchmarks.pairs.refit import FIRST_PAIRS


def refit_table(records: Sequence[Record]) -> Iterator[str]:
    """Write one table for each set and setting."""
    for name, setting, found in trials(records):
        counts = [count for count in FIRST_PAIRS if of_method(found, f"refit {count}")]
        if not counts:
            continue
        yield f"\n#### {name}, classes {setting}, seeds: {len(of_method(found, f'refit {counts[0]}'))}\n"
        yield from head("first pairs", "backfilled", "kept CMC-1", "kept mAP", "refit CMC-1", "refit mAP", "nearer")
        for count in counts:
            yield from _rows(of_method(found, f"refit {count}"))


def _rows(records: Sequence[Record]) -> Iterator[str]:
    first = f"{records[0]['pairs']:,}"
    hop = [points([r["found"]["t/h"][measure] for r in records]) for measure in MEASURES]
    yield row(first, "0 %", *hop, "", "", "")
    for case in records[0]["refit"]:
        policy, share = case.split()
        found = [r["refit"][case] for r in records]
        figures = [points([f[way][measure] for f in found]) for way in ("kept", "refit") for measure in MEASURES]
        nearer = f"{sum(f['nearer'] for f in found)} of {len(found)}"
        yield row(first, f"{float(share):.0%}, {policy}".replace("%", " %"), *figures, nearer)
