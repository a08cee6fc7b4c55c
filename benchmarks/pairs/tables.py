"""Tables and chart of transforms that are learned from pairs."""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.charts import panels
from benchmarks.dots import dots, legend
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, apart, by_seed, cases, cell, less, mean, signed, where

METHODS = ("Ridge", "Residual", "FCT", "FastFill")
ORDERS = ("random", "sigma", "spread-sigma", "entropy", "oracle")


def groups(record: Record) -> dict[str, list[Row]]:
    """The rows with methods, by set and classes."""
    return cases(where(record.rows, part="methods"), "set", "classes")


def methods_table(record: Record) -> str:
    """Source, target and each method's hop by set: means of CMC-1 / mAP."""
    head = ["set, classes", "old model", *METHODS, "all re-embedded", "seeds"]
    lines = []
    for name, rows in groups(record).items():
        hops = [cell(rows, "t/h", method=method) for method in METHODS]
        ends = [cell(rows, figure, method="none") for figure in ("s/s", "t/t")]
        counts = sorted({len(by_seed(rows, "t/h map", method=method)) for method in METHODS} - {0})
        lines.append([name, ends[0], *hops, ends[1], " or ".join(map(str, counts))])
    return markdown(head, lines)


def orders_table(record: Record) -> str:
    """MAP of a backfill by each order of FastFill's transform, less that of a random order."""
    found, lines = groups(record), []
    for policy in ORDERS[1:]:
        figures = (f"area {policy} map", "area random map")
        cells = [
            [apart(rows, *((method, figure) for figure in figures)) for method in ("FastFill", "FastFill, scale 64")]
            for rows in found.values()
        ]
        lines.append([policy, *(next((one.signed for one in pair if one), "") for pair in cells)])
    return markdown(["order", *found], lines)


def refit_table(record: Record) -> str:
    """MAP with a tenth of the gallery native in random order, with and without a second training."""
    rows = where(record.rows, part="refit", order="random", share=0.1)
    lines = []
    for name, case in cases(rows, "set", "classes").items():
        for own in cases(case, "few").values():
            gain = less(by_seed(own, "refit map"), by_seed(own, "kept map"))
            means = [mean(own, f"{each} map") for each in ("hop", "kept", "refit")]
            lines.append([name, f"{own[0]['pairs']:,}", *means, signed([gain])])
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
    found = groups(record)

    def gains(method: str, figure: str) -> list[Interval | None]:
        return [apart(rows, (method, figure), ("none", "s/s map")) for rows in found.values()]

    figure, (axes,) = panels(0.6 * len(found) + 1.2)
    series = {method: gains(method, "t/h map") for method in METHODS}
    marks = {"all re-embedded": gains("none", "t/t map")}
    dots(axes, list(found), series, marks, label="mAP over the old model, points")
    legend(axes)
    return figure


TABLES = {"methods": methods_table, "orders": orders_table, "refit": refit_table, "words": words_table}
