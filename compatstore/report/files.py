"""The report of an upgrade as files: one page, or a folder of Markdown for people, JSON for programs, and pictures."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from compatstore.errors import StorageError
from compatstore.evaluation import plot_budgets
from compatstore.evaluation.plots import DrawnWave, plot_waves
from compatstore.report.markdown import to_markdown
from compatstore.report.page import to_page
from compatstore.upgrade.estimates.measured import as_served
from compatstore.upgrade.estimates.reporting import UpgradeReport
from compatstore.upgrade.estimates.waves import WaveFigures

MARKDOWN, JSON, PICTURE, WAVES = "report.md", "report.json", "budgets.svg", "waves.svg"
PAGES = (".html", ".htm")


def write_report(report: UpgradeReport, place: str | Path) -> tuple[Path, ...]:
    """Write a report: into one page where the path ends in .html, else into a folder; earlier files are replaced.

    The page needs no other file: its style, charts and pictures are in it, and it asks for nothing.

    Args:
        report: The report.
        place: A file that ends in .html, or a folder, which is made where it is missing.

    Returns:
        The files.

    Raises:
        StorageError: The file or the folder cannot be made or written.
        MissingExtra: A folder is asked for, there is an estimate to draw, and matplotlib is not installed.
    """
    path = Path(place)
    page = path.suffix.lower() in PAGES
    try:
        return _write_page(report, path) if page else _write_folder(report, path)
    except OSError as error:
        what = "a file to write" if page else "a folder to write in"
        raise StorageError(f"write a report into {path}", expected=what, found=str(error)) from error


def _write_page(report: UpgradeReport, path: Path) -> tuple[Path, ...]:
    """Write the page beside its place and move it there, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(to_page(report), encoding="utf-8")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return (path,)


def _write_folder(report: UpgradeReport, folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _draw(report, folder)
    shown = {
        "Curve of the backfill": ("What each budget gives", PICTURE),
        "Waves": ("What each wave promised, and what came", WAVES),
    }
    drawn = {title: (text, file) for title, (text, file) in shown.items() if folder / file in pictures}
    (folder / MARKDOWN).write_text(to_markdown(report, drawn), encoding="utf-8")
    text = json.dumps(dataclasses.asdict(report), indent=2)
    (folder / JSON).write_text(text + "\n", encoding="utf-8")
    return (folder / MARKDOWN, folder / JSON, *pictures)


def _draw(report: UpgradeReport, folder: Path) -> tuple[Path, ...]:
    if report.estimate is None:
        return ()
    taken = gained = None
    if report.measured is not None and report.rows:
        share, criterion, row = report.native / report.rows, report.measured.criterion, as_served(report.measured)
        taken, gained = (share, row.figures[criterion]), (share, row.gains[criterion])
    budgets = plot_budgets(report.estimate.table, folder / PICTURE, taken=taken)
    if not report.waves:
        return (budgets,)
    return budgets, plot_waves([_drawn(wave) for wave in report.waves], folder / WAVES, taken=gained)


def _drawn(wave: WaveFigures) -> DrawnWave:
    return DrawnWave(
        share=wave.share,
        gain=wave.gain,
        promised=tuple((promise.share, promise.gain) for promise in wave.ahead),
        name=wave.criterion,
    )
