"""The sweep over FastFill's lambda: what it costs the hop, and what it gives the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, plain, points, row, trials
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import INVERSE_LAMBDAS, SIGMA


def lambda_table(records: Sequence[Record]) -> Iterator[str]:
    """Write one table for each set and setting, over the seeds that have the whole sweep."""
    methods = {1.0: "FastFill"} | {value: f"FastFill 1/lambda {value:g}" for value in INVERSE_LAMBDAS}
    for name, setting, found in trials(records):
        seeds = set.intersection(*({r["seed"] for r in of_method(found, method)} for method in methods.values()))
        if not seeds:
            continue
        yield f"\n#### {name}, classes {setting}, seeds: {len(seeds)}\n"
        yield from head(
            "inverse_lambda", "hop CMC-1", "hop mAP", "area CMC-1, sigma", "area mAP, sigma", "error", "tau"
        )
        for value in sorted(methods):
            yield _row(value, [r for r in of_method(found, methods[value]) if r["seed"] in seeds])


def _row(value: float, records: Sequence[Record]) -> str:
    hop = [points([r["found"]["t/h"][measure] for r in records]) for measure in MEASURES]
    area = [points([r["orders"][SIGMA]["area"][measure] for r in records]) for measure in MEASURES]
    taus = plain([r["orders"][SIGMA]["tau"]["l2"] for r in records])
    return row(f"{value:g}", *hop, *area, plain([r["error"] for r in records]), taus)
