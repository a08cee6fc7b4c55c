"""Dot plots: groups below each other, in each a dot for every series with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.charts import INK, QUIET, SERIES, panels
from benchmarks.record import Row
from benchmarks.seeds import Interval, mean, values_of

Series = Mapping[str, Sequence[Interval | None]]


def dots(axes: Axes, groups: Sequence[str], series: Series, marks: Series | None = None, *, label: str) -> None:
    """Draw figures of groups.

    Args:
        axes: The panel.
        groups: Names of the groups, from top to bottom.
        series: Name -> a figure for each group; drawn as dots.
        marks: The same of references, drawn as bars across the group.
        label: Of the axis.
    """
    step = 0.7 / max(len(series), 1)
    for color, (name, figures) in zip(SERIES, series.items(), strict=False):
        number = list(series).index(name)
        for place, one in enumerate(figures):
            if one is not None:
                level, reach = place + step * (number - (len(series) - 1) / 2), min(one.half, 99)
                axes.errorbar(one.mean, level, xerr=reach if one.seeds > 1 else None, fmt="o", color=color, lw=1.5)
        axes.plot([], [], "o", color=color, label=name)
    for name, figures in (marks or {}).items():
        places = [(one.mean, place) for place, one in enumerate(figures) if one is not None]
        axes.plot(*zip(*places, strict=True), "|", color=INK, ms=18, mew=2.5) if places else None
        axes.plot([], [], "|", color=INK, ms=10, mew=2.5, label=name)
    axes.axvline(0, color=QUIET, lw=1)
    axes.set_yticks(range(len(groups)), groups)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlabel(label)


def chart_of(
    groups: Sequence[str], series: Series, marks: Series | None = None, *, height: float, label: str
) -> Figure:
    """A figure of one panel of dots with its legend, `height` inches high."""
    figure, (axes,) = panels(height)
    dots(axes, groups, series, marks, label=label)
    legend(axes)
    return figure


def curves(axes: Axes, rows: list[Row], ways: Mapping[str, str], figure: str) -> None:
    """Means of a figure by share of the gallery; `ways`: name in the rows -> name in the legend."""
    for color, (way, label) in zip((INK, *SERIES), ways.items(), strict=False):
        means = {share: mean(rows, f"{way} {figure}", share=share) for share in values_of(rows, "share")}
        points = [(float(share[:-1]), value.mean) for share, value in means.items() if value]
        axes.plot(*zip(*points, strict=True), "-o" if way != "baseline" else "-", color=color, label=label)


def legend(axes: Axes, columns: int = 3) -> None:
    """The names of the series, above the panels of the whole figure."""
    axes.get_figure(root=True).legend(  # type: ignore[union-attr]
        *axes.get_legend_handles_labels(),
        loc="outside upper left",
        ncols=columns,
        fontsize=9,
        handletextpad=0.3,
        columnspacing=1.2,
    )
