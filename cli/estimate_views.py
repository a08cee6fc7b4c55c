"""How the estimate of an upgrade looks to people, and its gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from compatstore.cli.tables import Table, table

if TYPE_CHECKING:
    from compatstore.evaluation import DecisionRow
    from compatstore.upgrade.estimates.estimate import UpgradeEstimate
    from compatstore.upgrade.estimates.gates import Gate


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
