"""Costs of a large gallery, an object store, a device and a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF = ("whole_life",)
SHOWN = ("add", "hop", "backfill", "index", "search", "verify", "no-op upgrade", "cutover")


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


TABLES: dict[str, object] = {}
