"""What an upgrade is expected to give, as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatstore.evaluation import DecisionRow
from compatstore.shown import view
from compatstore.tables import Table, table
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.estimates.gates import Gate


@view.register
def estimate_view(result: UpgradeEstimate) -> Iterator[str | Table]:
    """What an upgrade is expected to give."""
    measured, criterion = result.table, result.table.criterion
    rows = [
        (_mark(row.share, result), row.name, row.percent_of(criterion), _kept(row, criterion))
        for row in measured.served(result.terms.serving)
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
    yield from gate_lines(result.gates)


def gate_lines(judged: Sequence[Gate]) -> Iterator[str]:
    """Which gates are passed."""
    for gate in judged:
        yield f"{'passed' if gate.passed else 'FAILED'}: {gate.name}, estimated {gate.estimate.percent} %"


def _kept(row: DecisionRow, criterion: str) -> str:
    return row.kept[criterion].percent if criterion in row.kept else "-"


def _mark(share: float, result: UpgradeEstimate) -> str:
    return (">" if share == result.share else "") + ("*" if share == result.best else "")
