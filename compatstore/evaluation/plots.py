"""Pictures of backfilling curves and decision tables, ready for a report or a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compatstore.boundary import checked
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.curve import BackfillCurve
from compatstore.evaluation.decision import DecisionRow, DecisionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib, so pictures look alike everywhere
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "compatstore",  # the same figures give the same file
}
_INK = "#808080"  # its contrast is 4 to 1 on a white page and on a dark one (#1e2129)
# A page shows through, light or dark.
_ON_ANY_PAGE = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@contextmanager
def canvas(width: float, height: float, *, on_white: bool = False) -> Iterator[Figure]:
    """Give a figure of width x height inches; style settings hold inside the block only.

    Args:
        width: In inches.
        height: In inches.
        on_white: Black on white; else without a background, in grey that can be read on light and dark pages.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    with mpl.rc_context(_STYLE if on_white else _STYLE | _ON_ANY_PAGE):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure


def write(figure: Figure, path: str | Path, dpi: int = 200) -> Path:
    """Write a figure as the suffix says; call it inside the `canvas` block.

    Raises:
        InvalidInput: The suffix is neither .png nor .svg.
    """
    target = Path(path)
    if target.suffix not in {".png", ".svg"}:
        raise InvalidInput("write a picture", expected="a path that ends in .png or .svg", found=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if target.suffix == ".svg" else {}
    figure.savefig(target, dpi=dpi, metadata=metadata)
    return target


# Okabe and Ito's colours, told apart with every common kind of colour blindness; brown in place of their black, which a
# dark page hides. Markers differ as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6A4F")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_REFERENCE_COLOUR = _INK
_GRID: dict[str, Any] = {"color": _INK, "alpha": 0.3, "linewidth": 0.6}
_REFERENCE_DASHES = ((5, 2), (1, 1.5), (5, 1.5, 1, 1.5), (2, 2))


@checked
def plot_curve(
    curves: Mapping[str, BackfillCurve],
    path: str | Path,
    *,
    metric: str = "cmc@1",
    references: Mapping[str, float] | None = None,
) -> Path:
    """Draw backfilling curves over the share of native vectors, 6 x 4 inches.

    Args:
        curves: Name in the legend -> curve; at most 7.
        path: Where to write; ".png" (1200 x 800 pixels) or ".svg".
        metric: "map" or "cmc@k".
        references: Name -> value between 0 and 1 of a horizontal line, such as the status quo or a full backfill.

    Returns:
        The path written.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: No curve or too many, another suffix, or a metric that was not measured.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> asked = np.array([[0.4], [5.4], [2.9]])
        >>> labels = {"query_labels": [0, 1], "gallery_labels": [0, 0, 1, 1]}
        >>> curve = cs.evaluation.backfill_curve(asked[:2], stored[::-1], stored, order=range(4), alphas=3, **labels)
        >>> cs.evaluation.plot_curve({"by id": curve}, "curve.svg", metric="map").name
        'curve.svg'
    """
    if not 0 < len(curves) <= len(_COLOURS):
        raise InvalidInput("plot curves", expected=f"1 to {len(_COLOURS)} curves", found=f"{len(curves)}")
    with canvas(6.0, 4.0) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        for (name, curve), colour, marker in zip(curves.items(), _COLOURS, _MARKERS, strict=False):
            _draw_curve(axes, name, curve, metric, colour, marker)
        for index, (name, value) in enumerate((references or {}).items()):
            _draw_reference(axes, name, value, index)
        _label(axes, metric)
        return write(figure, path)


@checked
def plot_decision(table: DecisionTable, path: str | Path, *, metric: str | None = None) -> Path:
    """Draw a decision table: a dot and its interval for each strategy, 6 inches wide.

    The strategy that is advised is coloured; a dashed line marks the status quo.

    Args:
        table: From `decide`.
        path: Where to write; ".png" (1200 pixels wide) or ".svg".
        metric: "map" or "cmc@k"; None for the one that decided.

    Returns:
        The path written.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: Another suffix, or a metric that was not measured.

    Examples:
        >>> cs.evaluation.plot_decision(cs.evaluation.decide(sample), "decision.svg").name
        'decision.svg'
    """
    name = metric or table.criterion
    before = _figure_of(table.rows[0], name)
    with canvas(6.0, 1.0 + 0.3 * len(table.rows)) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        axes.axvline(100 * before.value, color=_REFERENCE_COLOUR, linewidth=1.0, linestyle="--")
        for place, row in enumerate(table.rows):
            if name not in row.figures:
                continue
            advised = name == table.criterion and row.name == table.advice.row
            _draw_estimate(axes, place, row.figures[name], _COLOURS[0] if advised else _REFERENCE_COLOUR)
        axes.set_yticks(range(len(table.rows)), [f"{row.name}  {row.notation}" for row in table.rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"{_named(name)}, {table.confidence:.0%} interval over {table.num_queries} queries")
        axes.grid(axis="x", **_GRID)
        axes.tick_params(length=3, width=0.8)
        return write(figure, path)


@checked
def plot_budgets(
    table: DecisionTable, path: str | Path, *, metric: str | None = None, taken: tuple[float, Estimate] | None = None
) -> Path:
    """Draw what each budget of a backfill is expected to give, with a band of its intervals, 6 x 4 inches.

    Args:
        table: From `decide`.
        path: Where to write; ".png" (1200 x 800 pixels) or ".svg".
        metric: "map" or "cmc@k"; None for the one that decided.
        taken: Share of native vectors of a gallery, and what was measured there.

    Returns:
        The path written.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: Another suffix, or a metric that was not measured.

    Examples:
        >>> cs.evaluation.plot_budgets(cs.evaluation.decide(sample), "budgets.svg").name
        'budgets.svg'
    """
    name = metric or table.criterion
    before = _figure_of(table.rows[0], name)
    budgets = [row for row in table.budgets if name in row.figures]
    shares = [100 * row.share for row in budgets]
    lows, values, highs = zip(*(_in_percent(_figure_of(row, name)) for row in budgets), strict=True)
    with canvas(6.0, 4.0) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        axes.fill_between(shares, lows, highs, color=_COLOURS[0], alpha=0.18, linewidth=0)
        axes.plot(shares, values, "o-", label="estimated", color=_COLOURS[0], markersize=4.5, linewidth=1.6, zorder=3)
        if taken is not None:
            _draw_points(axes, [taken], "measured", _COLOURS[1], "s")
        _draw_reference(axes, "status quo, estimated", before.value, 0)
        _label(axes, name)
        return write(figure, path)


@dataclass(frozen=True, kw_only=True)
class DrawnWave:
    """What was found when some share of a gallery was native, and what was promised for larger ones.

    Args:
        share: Share of the gallery that was native, in (0, 1].
        gain: What the gallery as it was served then had over its status quo; None where it was served as before.
        promised: (share, gain) of larger shares, ascending.
        name: "map" or "cmc@k".
    """

    share: float
    gain: Estimate | None
    promised: tuple[tuple[float, Estimate], ...]
    name: str


def plot_waves(waves: Sequence[DrawnWave], path: str | Path, *, taken: tuple[float, Estimate] | None = None) -> Path:
    """Draw what an upgrade gained as it went, with what each wave promised for larger shares, 6 x 4 inches.

    Gains are over the status quo of the same wave: without labels, waves differ in what counts as right, and their
    figures do not compare.

    Args:
        waves: One or more, in their order.
        path: Where to write; ".png" (1200 x 800 pixels) or ".svg".
        taken: Share of native vectors of the gallery, and the gain that was measured there afterwards.

    Returns:
        The path written.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: Another suffix.
    """
    with canvas(6.0, 4.0) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        went = [
            (wave.share, Estimate(value=0.0, low=0.0, high=0.0) if wave.gain is None else wave.gain) for wave in waves
        ]
        for number, (wave, now) in enumerate(zip(waves, went, strict=True), start=1):
            ahead = [now, *wave.promised]
            lows, values, highs = zip(*(_in_percent(found) for _, found in ahead), strict=True)
            shares, colour = [100 * share for share, _ in ahead], _COLOURS[number % len(_COLOURS)]
            axes.fill_between(shares, lows, highs, color=colour, alpha=0.1, linewidth=0)
            axes.plot(shares, values, "--", label=f"promised by wave {number}", color=colour, linewidth=1.0)
        _draw_points(axes, went, "as it went", _COLOURS[0], "o-")
        if taken is not None:
            _draw_points(axes, [taken], "measured", _COLOURS[1], "s")
        _draw_reference(axes, "status quo", 0.0, 0)
        _label(axes, waves[-1].name)
        axes.set_ylabel(f"Gain over the status quo, {_named(waves[-1].name)}")
        return write(figure, path)


def _draw_points(axes: Any, points: Sequence[tuple[float, Estimate]], label: str, colour: str, style: str) -> None:
    lows, values, highs = (np.array(ends) for ends in zip(*(_in_percent(found) for _, found in points), strict=True))
    shares = [100 * share for share, _ in points]
    bars = [values - lows, highs - values]
    axes.errorbar(shares, values, bars, fmt=style, label=label, color=colour, capsize=3, markersize=4.5, zorder=4)


def _figure_of(row: DecisionRow, metric: str) -> Estimate:
    if metric not in row.figures:
        raise InvalidInput("plot a decision", expected=f"one of {sorted(row.figures)}", found=repr(metric))
    return row.figures[metric]


def _in_percent(estimate: Estimate) -> tuple[float, float, float]:
    return 100 * estimate.low, 100 * estimate.value, 100 * estimate.high


def _draw_estimate(axes: Any, place: int, estimate: Estimate, colour: str) -> None:
    axes.hlines(place, 100 * estimate.low, 100 * estimate.high, color=colour, linewidth=1.8, zorder=3)
    axes.plot(100 * estimate.value, place, "o", color=colour, markersize=5.5, zorder=4)
    axes.annotate(
        f"{100 * estimate.value:.1f}",
        (1.0, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
    )


def _draw_curve(axes: Any, name: str, curve: BackfillCurve, metric: str, colour: str, marker: str) -> None:
    axes.plot(
        100 * curve.alphas,
        100 * curve.values(metric),
        label=f"{name} (mean {100 * curve.area[metric]:.1f})",
        color=colour,
        marker=marker,
        markersize=4.5,
        linewidth=1.6,
        clip_on=False,
        zorder=3,
    )


def _draw_reference(axes: Any, name: str, value: float, index: int) -> None:
    dashes = (0, _REFERENCE_DASHES[index % len(_REFERENCE_DASHES)])
    label = f"{name} ({100 * value:.1f})"
    axes.axhline(100 * value, label=label, color=_REFERENCE_COLOUR, linewidth=1.1, linestyle=dashes, zorder=2)


def _label(axes: Any, metric: str) -> None:
    axes.set_xlabel("Gallery embedded natively (%)")
    axes.set_ylabel(_named(metric))
    axes.set_xlim(0, 100)
    axes.margins(y=0.08)
    axes.grid(axis="y", **_GRID)
    axes.tick_params(length=3, width=0.8)
    axes.figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )


def _named(metric: str) -> str:
    return "mAP (%)" if metric == "map" else f"{metric.upper().replace('@', '-')} (%)"
