"""The report of an upgrade as files: one page, or a folder of Markdown for people, JSON for programs, and charts."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from compatstore.errors import StorageError
from compatstore.html import markdown
from compatstore.report.charts import picture
from compatstore.report.content import SectionPart, facts, sections, title_of
from compatstore.report.drawings import Curves
from compatstore.report.page import to_page
from compatstore.shown import Table
from compatstore.upgrade.estimates.reporting import UpgradeReport

MARKDOWN, JSON = "report.md", "report.json"
# Section whose curves are drawn -> file, text
PICTURES = {
    "Curve of the backfill": ("budgets.svg", "What each budget gives"),
    "Waves": ("waves.svg", "What each wave promised, and what came"),
}
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
    pictures = {
        section.title: (*PICTURES[section.title], part)
        for section in sections(report)
        for part in section.parts
        if section.title in PICTURES and isinstance(part, Curves)
    }
    for file, _, drawing in pictures.values():
        (folder / file).write_text(picture(drawing), encoding="utf-8")
    shown = {title: (text, file) for title, (file, text, _) in pictures.items()}
    (folder / MARKDOWN).write_text(to_markdown(report, shown), encoding="utf-8")
    (folder / JSON).write_text(json.dumps(dataclasses.asdict(report), indent=2) + "\n", encoding="utf-8")
    return (folder / MARKDOWN, folder / JSON, *(folder / file for file, _, _ in pictures.values()))


def to_markdown(report: UpgradeReport, pictures: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Write a report as Markdown.

    Args:
        report: The report.
        pictures: Title of a section -> text and file of the picture that lies beside the report for it.
    """
    parts = [f"# {markdown(title_of(report))}"]
    parts += [markdown(report.advice)] if report.advice else []
    parts.append(markdown(facts(report)))
    for section in sections(report):
        shown = [text for part in section.parts for text in _shown(part)]
        shown += [f"![{text}]({file})" for text, file in [(pictures or {}).get(section.title, ("", ""))] if file]
        parts += [f"## {section.title}", *shown] if shown else []
    return "\n\n".join(parts) + "\n"


def _shown(part: SectionPart) -> Iterator[str]:
    """Paragraphs and tables; what is drawn has its figures in a table."""
    if isinstance(part, str):
        yield markdown(part)
    elif isinstance(part, Table):
        lines = [part.headings, ["---"] * len(part.headings), *part.rows]
        yield "\n".join("| " + " | ".join(markdown(cell) for cell in line) + " |" for line in lines)
