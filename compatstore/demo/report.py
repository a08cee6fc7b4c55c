"""What the demo found: one row a way to serve the gallery, as a dataclass, JSON and Markdown."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from compatstore.demo.directory import DemoDirectory


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """Retrieval quality of one way to serve the gallery, as shares between 0 and 1.

    Args:
        name: What is done.
        notation: Model of the query / what is in the gallery: s source, t target, h transformed.
        cmc1: Share of queries whose nearest item is right.
        cmc5: Share of queries with a right item among the 5 nearest.
        map: Mean average precision.
        note: How it was measured.
    """

    name: str
    notation: str
    cmc1: float
    cmc5: float
    map: float
    note: str


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """What the demo did.

    Args:
        rows: The table, from the status quo to a full backfill.
        files: Pictures, reports and artifacts that it wrote.
        gallery: The gallery, which stays.
        items: Items in the gallery.
        queries: Images searched with; none of them is in the gallery.
        seed: Seed of everything.
        seconds: Time taken.
        next_commands: What to try now.
    """

    rows: tuple[DemoRow, ...]
    files: tuple[Path, ...]
    gallery: Path
    items: int
    queries: int
    seed: int
    seconds: float
    next_commands: tuple[str, ...]

    def to_json(self) -> str:
        """Return the report as JSON; paths become strings."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    def to_markdown(self) -> str:
        """Return the report for people; pictures are linked relative to the gallery's folder."""
        table = [_markdown_row(row) for row in self.rows]
        commands = ["```", *self.next_commands, "```"]
        return "\n".join([*self._introduction(), *_HEADER, *table, "", *_EXPLANATION, *commands, ""])

    def _introduction(self) -> list[str]:
        return [
            "# A gallery changes its embedding model",
            "",
            f"{self.items} handwritten digits are searched with {self.queries} others. The source model (v1) was "
            "trained on the digits 0 to 4, the target model (v2) on all ten. The transform learned from v2's training "
            "images, embedded by both. Nothing was trained on an image of the gallery or a query. "
            f"Seed {self.seed}, {self.seconds:.0f} seconds.",
            "",
        ]


_HEADER = (
    "| gallery | query/gallery | CMC-1 % | CMC-5 % | mAP % | how |",
    "|---|---|---:|---:|---:|---|",
)

_EXPLANATION = (
    "s is the source model, t the target model, h a transformed source vector. CMC-k is the share of queries with a "
    "right item among the k nearest, mAP the mean average precision over the whole ranking.",
    "",
    "![Quality while the gallery is re-embedded](backfill_curve.png)",
    "",
    "![What queries find before and after](neighbours.png)",
    "",
    "The gallery is live; try:",
    "",
)


def _markdown_row(row: DemoRow) -> str:
    figures = " | ".join(f"{100 * value:.1f}" for value in (row.cmc1, row.cmc5, row.map))
    return f"| {row.name} | {row.notation} | {figures} | {row.note} |"


def next_commands(directory: DemoDirectory, query: Path) -> tuple[str, ...]:
    """Commands that work on the gallery as the demo leaves it.

    Args:
        directory: The demo's folder.
        query: An image to search with.
    """
    gallery = shlex.quote(str(directory.gallery))
    return (
        f"compatstore status {gallery}",
        f"compatstore search {gallery} --image {shlex.quote(str(query))} -k 5",
        f"compatstore history {gallery}",
        f"compatstore rollback {gallery}",
    )


def write_report(report: DemoReport, directory: DemoDirectory) -> None:
    """Write the report beside the gallery, as JSON and Markdown."""
    directory.report_json.write_text(report.to_json(), encoding="utf-8")
    directory.report_markdown.write_text(report.to_markdown(), encoding="utf-8")
