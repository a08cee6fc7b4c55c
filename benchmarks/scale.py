"""Costs of a large gallery, an object store, a device and a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.pages import markdown
from benchmarks.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF = ("whole_life",)
SHOWN = ("add", "hop", "backfill", "index", "search", "verify", "no-op upgrade", "cutover")
FAR, FIRST, SECOND = 10**9, 10**6, 10**7  # items


def billion(record: Record) -> str:
    """Hours and memory of each step at 10^9 items, by its last slope."""
    rows = {(row["step"], row["rows"]): row for row in record.rows if "rows" in row and "step" in row}
    cells = []
    for step in SHOWN:
        if step == "search" or (step, SECOND) not in rows:
            continue
        small, large = rows[step, FIRST], rows[step, SECOND]
        factor = FAR / SECOND
        seconds = large["cpu_s"] * (large["cpu_s"] / small["cpu_s"]) ** 2
        cells.append((step, f"{seconds / 3600:.2g}", f"{large['written_mb'] * factor / 1e3:,.0f}"))
    return markdown(("step", "CPU, core hours", "written, GB"), cells)


def chart(record: Record) -> Figure:
    """Seconds and peak memory of each step by the size of the gallery."""
    from benchmarks.charts import QUIET, SERIES, panels

    figure, axes = panels(7.2, 2)
    for colour, step in zip((*SERIES, *SERIES), SHOWN, strict=False):
        rows = sorted(
            (row for row in record.rows if row.get("step") == step and "rows" in row), key=lambda row: row["rows"]
        )
        dashed = "--" if SHOWN.index(step) >= len(SERIES) else "-"
        for panel, key in zip(axes, ("wall_s", "peak_mib"), strict=True):
            panel.plot(
                [row["rows"] for row in rows], [row[key] for row in rows], dashed, marker="o", color=colour, label=step
            )
    for panel, name in zip(axes, ("Seconds, two cores", "Peak memory, MiB"), strict=True):
        panel.set_xscale("log")
        panel.set_title(name)
        panel.set_xlabel("items of 128 values")
    axes[0].set_yscale("log")
    axes[1].axhline(2048, color=QUIET, linestyle=":", linewidth=1.5)
    axes[1].annotate("limit", (1e5, 2048), xytext=(0, -12), textcoords="offset points", color=QUIET)
    axes[1].set_ylim(0, 2200)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure


TABLES = {"billion": billion}
