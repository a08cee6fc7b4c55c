"""The main table: every method and order, with classes seen and unseen, beside the paper's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, plain, points, row, trials
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import BALANCE, METHODS, RANDOM

PAPER = ("paper, table 5", "paper, table 7")

# Areas of CMC-1 and mAP on ImageNet in FastFill (ICLR 2023), table 5: 500 -> 1,000 classes, all of them searched.
ABLATION = {
    ("FCT", "random"): "62.80 / 40.47",
    ("FastFill", "random"): "64.51 / 42.05",
    ("FastFill", "sigma"): "66.49 / 44.84",
    ("FastFill disc", "random"): "65.51 / 39.45",
    ("FastFill l2+disc", "random"): "65.06 / 41.95",
    ("FastFill l2 + sigma", "random"): "62.58 / 40.08",
    ("FastFill l2 + sigma", "sigma"): "65.76 / 43.61",
    ("FastFill disc + sigma", "sigma"): "55.21 / 27.59",
}
# The same in its table 7: 250 -> 500 classes, where those 500 or the 500 others are searched.
CLASSES = {
    "seen": {
        ("FCT", "random"): "71.15 / 48.61",
        ("FastFill", "sigma"): "75.27 / 53.88",
        ("FastFill", "entropy"): "74.26 / 53.48",
        ("FastFill", "margin"): "74.21 / 53.21",
        ("FastFill", "least-confidence"): "74.28 / 53.38",
    },
    "unseen": {
        ("FCT", "random"): "14.94 / 3.70",
        ("FastFill", "sigma"): "17.90 / 4.68",
        ("FastFill", "entropy"): "15.22 / 4.13",
        ("FastFill", "margin"): "15.17 / 4.01",
        ("FastFill", "least-confidence"): "15.18 / 4.07",
    },
}


def row_table(records: Sequence[Record]) -> Iterator[str]:
    """Write the table of every set and setting."""
    for name, setting, found in trials(records):
        yield f"\n#### {name}, classes {setting}\n"
        yield from _sizes(found)
        yield from head("method", "order", "hop CMC-1", "hop mAP", "area CMC-1", "area mAP", "tau", "tau, head", *PAPER)
        for version in ("s/s", "t/s", "t/t"):
            yield from _reference(found, version)
        for method in (*METHODS, BALANCE):
            for order in method.orders:
                yield from _measured(of_method(found, method.name), method.name, order, setting)


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
        yield row(f"**{version}**", "", *(points([f[measure] for f in found]) for measure in MEASURES), *[""] * 6)


def _measured(records: Sequence[Record], method: str, order: str, setting: str) -> Iterator[str]:
    found = [r for r in records if order in r["orders"]]
    if not found:
        return
    hop = [points([r["found"]["t/h"][measure] for r in found]) for measure in MEASURES]
    area = [points([r["orders"][order]["area"][measure] for r in found]) for measure in MEASURES]
    taus = [r["orders"][order]["tau"] for r in found if order != RANDOM]
    tau = [plain([values.get(loss) for values in taus]) for loss in ("l2", "disc")]
    paper = [rows.get((method, order), "") for rows in (ABLATION if setting == "seen" else {}, CLASSES[setting])]
    yield row(method, order, *hop, *area, *tau, *paper)
