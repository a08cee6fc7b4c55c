"""Options by which an upgrade is estimated before it is made, and what is said of the gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from compatstore.cli.tables import Table, table

if TYPE_CHECKING:
    from compatstore.evaluation import DecisionRow
    from compatstore.upgrade.estimates.estimate import UpgradeEstimate
    from compatstore.upgrade.estimates.gates import Gate

labels_option = click.option(
    "--labels",
    metavar="COLUMN",
    help="Column that says which items are correct for each other; without one, the target's own neighbours are.",
)
criterion_option = click.option(
    "--criterion",
    type=click.Choice(["map", "cmc@1", "cmc@5"]),
    default="map",
    show_default=True,
    help="The figure that quality is measured by.",
)
gate_options = (
    click.option(
        "--require",
        multiple=True,
        metavar="FIGURE>=VALUE",
        help="Lowest figure to be sure of, such as map>=0.6; exit code 11 otherwise. Repeat for more.",
    ),
    click.option(
        "--max-negative-flips",
        type=float,
        metavar="SHARE",
        help="Largest share of queries that are right before and wrong after; exit code 11 otherwise.",
    ),
)
TERMS = (
    click.option(
        "--target-quality",
        type=float,
        metavar="SHARE",
        help="Take the smallest backfill that is sure to keep this share of a full backfill's quality, such as 0.98.",
    ),
    *gate_options,
    labels_option,
    criterion_option,
    click.option("--sample", type=int, metavar="N", help="Items to estimate from; 2000 where a term is named."),
)


def estimate(result: UpgradeEstimate) -> Iterator[str | Table]:
    """What an upgrade is expected to give."""
    measured, criterion = result.table, result.table.criterion
    rows = [
        (_mark(row.share, result), row.name, row.percent_of(criterion), _kept(row, criterion))
        for row in measured.budgets
    ]
    before = measured.rows[0]
    yield ""
    if measured.provenance:
        yield measured.provenance
    yield table(
        ("", "way", f"{criterion} %", "of full backfill %"),
        [("", before.name, before.percent_of(criterion), _kept(before, criterion)), *rows],
    )
    yield (
        f"{measured.num_queries} queries, correct by {measured.truth}, intervals of {measured.confidence:.0%}; "
        "> budget taken, * best figure"
    )
    yield result.promise
    yield f"{measured.advice.verdict}: {measured.advice.text}"
    yield from gates(result.gates)


def gates(judged: Sequence[Gate]) -> Iterator[str]:
    """Which gates are passed."""
    for gate in judged:
        yield f"{'passed' if gate.passed else 'FAILED'}: {gate.name}, estimated {gate.estimate.percent} %"


def _kept(row: DecisionRow, criterion: str) -> str:
    return row.kept[criterion].percent if criterion in row.kept else "-"


def _mark(share: float, result: UpgradeEstimate) -> str:
    return (">" if share == result.share else "") + ("*" if share == result.best else "")
