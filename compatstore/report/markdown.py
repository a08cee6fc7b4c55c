"""The report of an upgrade as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compatstore.html import markdown
from compatstore.report.content import SectionPart, facts, sections, title_of
from compatstore.shown import Table
from compatstore.upgrade.estimates.reporting import UpgradeReport


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
