"""The main table: every method and order, with classes seen and unseen, beside the paper's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, plain, points, row, trials
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import METHODS, ORACLE

# FastFill (ICLR 2023), tables 1 and 2: area of CMC-1 and mAP on ImageNet, 500 -> 1,000 classes.
PAPER = {
    ("FCT", "random"): "62.80 / 40.47",
    ("FastFill", "sigma"): "66.49 / 44.84",
    ("FastFill disc", "random"): "65.51 / 39.45",
    ("FastFill l2+disc", "random"): "65.06 / 41.95",
    ("FastFill l2 + sigma", "sigma"): "65.76 / 43.61",
    ("FastFill disc + sigma", "sigma"): "55.21 / 27.59",
}


def row_table(records: Sequence[Record]) -> Iterator[str]:
    """Write the table of every set and setting."""
    for name, setting, found in trials(records):
        yield f"\n#### {name}, classes {setting}\n"
        yield from _sizes(found)
        yield from head("method", "order", "hop CMC-1", "hop mAP", "area CMC-1", "area mAP", "tau", "paper's areas")
        for version in ("s/s", "t/s", "t/t"):
            yield from _reference(found, version)
        for method in METHODS:
            for order in method.orders:
                yield from _measured(of_method(found, method.name), method.name, order)


def _sizes(records: Sequence[Record]) -> Iterator[str]:
    for record in of_method(records, "none")[:1]:
        sizes = record["sizes"]
        seeds = len({record["seed"] for record in records})
        yield (
            f"{sizes['pairs']:,} pairs of {sizes['classes']} classes, {sizes['gallery']:,} items searched with "
            f"{sizes['queries']:,} queries, {seeds} seeds.\n"
        )


def _reference(records: Sequence[Record], version: str) -> Iterator[str]:
    found = [r["found"][version] for r in of_method(records, "none") if version in r["found"]]
    if found:
        yield row(f"**{version}**", "", *(points([f[measure] for f in found]) for measure in MEASURES), "", "", "", "")


def _measured(records: Sequence[Record], method: str, order: str) -> Iterator[str]:
    found = [r for r in records if order in r["orders"]]
    if not found:
        return
    hop = [points([r["found"]["t/h"][measure] for r in found]) for measure in MEASURES]
    area = [points([r["orders"][order]["area"][measure] for r in found]) for measure in MEASURES]
    tau = plain([r.get("tau") for r in found]) if order == "sigma" else ""
    shown = "oracle*" if order == ORACLE else order
    yield row(method, shown, *hop, *area, tau, PAPER.get((method, order), ""))
