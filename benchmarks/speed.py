"""Every figure that has a limit, of all benchmarks."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

from benchmarks.bounds import bounds_of, figure_of, limit_of, share
from benchmarks.pages import markdown
from benchmarks.record import Record, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF = ("hop", "backfill", "search", "cache", "imports", "whole_life", "devices", "self_training_time")
CLIPPED = 2.0  # times the limit, where the chart ends


def groups(record: Record) -> list[list[Row]]:
    """Rows with a limit, those of one group and machine together."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in bounds_of(record.rows):
        found.setdefault((title([row]), row["machine"]), []).append(row)
    return list(found.values())


def worst(rows: list[Row]) -> float:
    """Largest share of a limit; up to 1 holds."""
    return max(map(share, rows))


def title(rows: list[Row]) -> str:
    """The name of a group."""
    return str(rows[0].get("group", rows[0]["what"]))


def machines(record: Record) -> dict[str, str]:
    """Machine -> its letter."""
    names = dict.fromkeys(row["machine"] for row in bounds_of(record.rows))
    return dict(zip(names, ascii_uppercase, strict=False))


def table(record: Record) -> str:
    """Figures from the least to the largest, the limit, and how many of them miss it."""
    letters, cells = machines(record), []
    for rows in groups(record):
        ordered = sorted(rows, key=lambda row: row["figure"])
        figures = dict.fromkeys(figure_of(row) for row in (ordered[0], ordered[-1]))
        missed = sum(share(row) > 1 for row in rows)
        said = "holds" if not missed else "**missed**" if len(rows) == 1 else f"**missed** by {missed} of {len(rows)}"
        found = (" to ".join(figures), limit_of(rows[0]), f"{worst(rows):.2f}", said)
        cells.append((title(rows), *found, letters[rows[0]["machine"]]))
    return markdown(("what", "figure", "limit", "of the limit", "", "machine"), cells)


def machine_table(record: Record) -> str:
    """The machines by their letters."""
    return markdown(("machine", ""), [(letter, name) for name, letter in machines(record).items()])


def chart(record: Record) -> Figure:
    """Each figure as a share of its limit, the worst of its group."""
    from benchmarks.charts import QUIET, SERIES, bars, panels

    ordered = sorted(groups(record), key=worst, reverse=True)
    letters, shares = machines(record), [worst(rows) for rows in ordered]
    labels = [f"{title(rows)} ({letters[rows[0]['machine']]})".replace("`", "") for rows in ordered]
    figure, (axes,) = panels(0.36 * len(labels) + 0.7)
    colours = [SERIES[1] if each > 1 else SERIES[0] for each in shares]
    bars(axes, labels, [min(each, CLIPPED) for each in shares], [f"{each:.2f}" for each in shares], colours)
    axes.axvline(1, color=QUIET, linestyle="--", linewidth=1, zorder=0.5)
    axes.set_xlim(0, CLIPPED * 1.12)
    axes.set_title("Share of the limit, the worst case of each; left of the line holds", fontsize=10)
    return figure


TABLES = {"bounds": table, "machines": machine_table}
