"""Tables and chart of transforms that are learned from pairs."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.charts import panels
from benchmarks.dots import dots, legend
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, by_seed, cell, less, mean, where

METHODS = ("Ridge", "Residual", "FCT", "FastFill")
ORDERS = ("random", "sigma", "spread-sigma", "entropy", "oracle")


def groups(rows: list[Row]) -> list[tuple[str, str, list[Row]]]:
    """(set, classes, rows) of the part with methods."""
    rows = where(rows, part="methods")
    cases = dict.fromkeys((row["set"], row["classes"]) for row in rows)
    return [(name, classes, where(rows, set=name, classes=classes)) for name, classes in cases]


def methods_table(record: Record) -> str:
    """Source, target and each method's hop by set: means of CMC-1 / mAP."""
    head = ["set, classes", "old model", *METHODS, "all re-embedded", "seeds"]
    lines = []
    for name, classes, rows in groups(record.rows):
        hops = [cell(rows, "t/h", method=method) for method in METHODS]
        ends = [cell(rows, figure, method="none") for figure in ("s/s", "t/t")]
        counts = sorted({len(by_seed(rows, "t/h map", method=method)) for method in METHODS} - {0})
        lines.append([f"{name}, {classes}", ends[0], *hops, ends[1], " or ".join(map(str, counts))])
    return markdown(head, lines)


def orders_table(record: Record) -> str:
    """MAP of a backfill by each order of FastFill's transform, less that of a random order."""
    found = groups(record.rows)
    lines = []
    for policy in ORDERS[1:]:
        cells = []
        for name, method in [(rows, m) for _, _, rows in found for m in ("FastFill", "FastFill, scale 64")]:
            ordered = by_seed(name, f"area {policy} map", method=method)
            cells.append(less(ordered, by_seed(name, "area random map", method=method)))
        best = [next((one.signed for one in pair if one), "") for pair in zip(cells[::2], cells[1::2], strict=True)]
        lines.append([policy, *best])
    return markdown(["order", *(f"{name}, {classes}" for name, classes, _ in found)], lines)


def refit_table(record: Record) -> str:
    """MAP with a tenth of the gallery native in random order, with and without a second training."""
    rows = where(record.rows, part="refit", order="random", share=0.1)
    lines = []
    for name, classes, few in dict.fromkeys((row["set"], row["classes"], row["few"]) for row in rows):
        own = where(rows, set=name, classes=classes, few=few)
        kept, refit = (by_seed(own, f"{each} map") for each in ("kept", "refit"))
        gain = less(refit, kept)
        cells = (mean(own, "hop map"), mean(own, "kept map"), mean(own, "refit map"), gain.signed if gain else "")
        lines.append([f"{name}, {classes}", f"{own[0]['pairs']:,}", *cells])
    return markdown(["set, classes", "pairs before", "hop alone", "a tenth native", "trained again", "gain"], lines)


def words_table(record: Record) -> str:
    """Candidates of `Auto`, its score, and recall@10 with words that it never saw."""
    rows = where(record.rows, part="words")
    head = ["candidate", "score of `Auto`", "recall@10", "cosine", "seconds to fit"]
    return markdown(
        head, [[f"`{r['settings']}`", r["auto score"], r["recall@10"], r["cosine"], r["seconds"]] for r in rows]
    )


def chart(record: Record) -> Figure:
    """MAP of each hop over the old model, beside everything re-embedded, set by set."""
    found = groups(record.rows)
    sources = [by_seed(rows, "s/s map", method="none") for _, _, rows in found]

    def gains(figure: str, method: str) -> list[Interval | None]:
        pairs = zip(found, sources, strict=True)
        return [less(by_seed(rows, figure, method=method), source) for (_, _, rows), source in pairs]

    figure, (axes,) = panels(0.6 * len(found) + 1.2)
    series = {method: gains("t/h map", method) for method in METHODS}
    names = [f"{name}, {classes}" for name, classes, _ in found]
    dots(axes, names, series, {"all re-embedded": gains("t/t map", "none")}, label="mAP over the old model, points")
    legend(axes)
    return figure


TABLES = {"methods": methods_table, "orders": orders_table, "refit": refit_table, "words": words_table}
