"""The report of an upgrade as files: Markdown for people, JSON for programs, and a picture of the budgets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from compatstore.errors import StorageError
from compatstore.evaluation import plot_budgets
from compatstore.evaluation.plots import DrawnWave, plot_waves
from compatstore.upgrade.estimates.measured import as_served, what_matters
from compatstore.upgrade.estimates.reporting import UpgradeReport
from compatstore.upgrade.estimates.waves import WaveFigures
from compatstore.visible import markdown

MARKDOWN, JSON, PICTURE, WAVES = "report.md", "report.json", "budgets.svg", "waves.svg"


def write_report(report: UpgradeReport, directory: str | Path) -> tuple[Path, ...]:
    """Write a report into a folder, which is made where it is missing; earlier files of these names are replaced.

    Returns:
        The files.

    Raises:
        StorageError: The folder cannot be made or written.
        MissingExtra: There is an estimate to draw, and matplotlib is not installed.
    """
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = _draw(report, folder)
        (folder / MARKDOWN).write_text(to_markdown(report, picture=bool(pictures)), encoding="utf-8")
        text = json.dumps(dataclasses.asdict(report), indent=2)
        (folder / JSON).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"write a report into {folder}", expected="a folder to write in", found=str(error)
        ) from error
    return (folder / MARKDOWN, folder / JSON, *pictures)


def _draw(report: UpgradeReport, folder: Path) -> tuple[Path, ...]:
    if report.estimate is None:
        return ()
    taken = None
    if report.measured is not None and report.rows:
        served = as_served(report.measured).figures[report.measured.criterion]
        taken = (report.native / report.rows, served)
    budgets = plot_budgets(report.estimate.table, folder / PICTURE, taken=taken)
    if not report.waves:
        return (budgets,)
    return budgets, plot_waves([_drawn(wave) for wave in report.waves], folder / WAVES, taken=taken)


def _drawn(wave: WaveFigures) -> DrawnWave:
    return DrawnWave(
        share=wave.share,
        gain=wave.gain,
        promised=tuple((promised.share, promised.gain) for promised in wave.ahead),
        name=wave.criterion,
    )


def to_markdown(report: UpgradeReport, *, picture: bool = False) -> str:
    """Write a report as Markdown.

    Args:
        report: The report.
        picture: Whether a picture of the budgets lies beside it.
    """
    parts = [
        [f"# {markdown(f'Upgrade of {report.source} to {report.target}: {report.state}')}"],
        [markdown(report.advice)] if report.advice else [],
        [markdown(paragraph) for paragraph in _facts(report)],
        ["## Estimated and measured", *_comparison(report)] if report.estimate or report.measured else [],
        [f"![What each budget gives]({PICTURE})"] if picture else [],
        ["## Waves", *_waves(report, picture=picture)] if report.waves else [],
        ["## Steps", _table(("at", "step", "rows", "seconds", "who", "note"), _steps(report))],
        ["## Items that cannot be embedded", *_refusals(report)] if report.unbackfillable else [],
    ]
    return "\n\n".join(paragraph for part in parts for paragraph in part) + "\n"


def _facts(report: UpgradeReport) -> Iterator[str]:
    by = f" by {' then '.join(report.path)}" if report.path else ""
    yield (
        f"Gallery {report.gallery}: {report.rows} items, of which {report.native} are native, "
        f"{report.transformed} transformed{by} and {report.missing} missing in {report.target}. "
        f"A backfill of {report.backfill:.4g} in {report.policy} order embedded {report.embedded} items"
        f"{_possible(report)}. "
        f"All steps took {report.seconds:.1f} s" + (f" and cost {report.cost:.4g}." if report.cost else ".")
    )


def _possible(report: UpgradeReport) -> str:
    """How many items can be embedded at all, where not all can."""
    return f"; {report.embeddable} can be embedded at all" if report.unbackfillable else ""


def _comparison(report: UpgradeReport) -> Iterator[str]:
    if report.estimate is not None:
        yield markdown(report.estimate.promise)
        if report.estimate.gates:
            yield _table(
                ("gate", "estimated %", ""),
                [(g.name, g.estimate.percent, "passed" if g.passed else "failed") for g in report.estimate.gates],
            )
    if report.measured is None:
        yield "Nothing was measured afterwards."
        return
    if report.measured.provenance:
        yield markdown(report.measured.provenance)
    yield markdown(
        f"Measured with {report.measured.num_queries} items that the estimate has not seen, correct by "
        f"{report.measured.truth}; intervals of {report.measured.confidence:.0%}."
    )
    rows = [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in report.compared]
    if rows:
        yield _table(("figure", "estimated %", "measured %", "agree"), rows)
        if not report.measured.served("fused"):
            return
    found = what_matters(report.measured)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    lines = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    yield _table(("way", *(f"{name} %" for name in names)), lines)


def _waves(report: UpgradeReport, *, picture: bool) -> Iterator[str]:
    last = report.waves[-1]
    yield markdown(
        f"What the lesson after each wave found, by {last.criterion}, correct by {last.truth}: before, and as the "
        "gallery was searched from then on."
    )
    if any(wave.truth != last.truth for wave in report.waves):
        yield markdown(
            "Without labels each wave counts other neighbours as right, fewer the larger its sample: compare a wave "
            "with its own status quo, not with another wave."
        )
    yield _table(
        ("wave", "native", "cost", "before %", "as served %", "weight"),
        [
            (
                f"{number}",
                f"{wave.native}",
                f"{wave.cost:.4g}",
                wave.status_quo.percent,
                "as before" if wave.gain is None else wave.served.percent,
                f"{wave.weight:g}",
            )
            for number, wave in enumerate(report.waves, start=1)
        ],
    )
    if picture:
        yield f"![What each wave promised, and what came]({WAVES})"


def _steps(report: UpgradeReport) -> Iterator[tuple[str, ...]]:
    for step in report.history:
        yield step.at, step.step, f"{step.rows or ''}", f"{step.seconds or ''}", step.who, step.note


def _refusals(report: UpgradeReport) -> Iterator[str]:
    yield _table(("item", "reason"), report.reasons)
    if report.unbackfillable > len(report.reasons):
        more = report.unbackfillable - len(report.reasons)
        yield markdown(f"And {more} more: compatstore unbackfillable GALLERY {report.target}")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(markdown(cell) for cell in line) + " |" for line in lines)
