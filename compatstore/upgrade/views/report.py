"""The report of an upgrade as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore import next_step
from compatstore.evaluation import DecisionTable
from compatstore.shown import view
from compatstore.tables import Table, table
from compatstore.upgrade.estimates.measured import what_matters
from compatstore.upgrade.estimates.reporting import UpgradeReport
from compatstore.upgrade.views.details import details_view
from compatstore.upgrade.views.estimate import estimate_view


@view.register
def _(result: UpgradeReport) -> Iterator[str | Table]:
    """An upgrade as a whole."""
    yield f"{result.source} -> {result.target}: {result.state}"
    yield (
        f"{result.rows} items: {result.native} native, {result.transformed} transformed, {result.missing} missing; "
        f"{result.embedded} embedded, {result.seconds:.1f} s" + (f", cost {result.cost:.4g}" if result.cost else "")
    )
    yield table(
        ("at", "step", "rows", "seconds", "note"),
        [(step.at, step.step, step.rows, step.seconds, step.note) for step in result.history],
    )
    if result.estimate is not None:
        yield from estimate_view(result.estimate)
    if result.measured is not None and result.measured.provenance:
        yield result.measured.provenance
    if result.compared:
        yield ""
        yield table(
            ("figure", "estimated %", "measured %", "agree"),
            [(c.what, c.estimated.percent, c.measured.percent, "yes" if c.agrees else "no") for c in result.compared],
        )
    if result.measured is not None and (not result.compared or result.measured.served("fused")):
        yield ""
        yield from _measured(result.measured)
    if result.measured is not None and result.details is not None:
        yield from details_view(result.details, result.measured)
    if result.unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.unbackfillable} cannot:"
    for item, reason in result.reasons:
        yield f"not embedded: {item}: {reason}"
    if result.advice:
        yield result.advice
    if result.measured is None and result.estimate is None:
        yield f"nothing was estimated or measured; measure it: {next_step.call('report', 'TARGET', sample=500)}"


def _measured(result: DecisionTable) -> Iterator[Table]:
    """What is measured where nothing was estimated."""
    found = what_matters(result)
    names = list(dict.fromkeys(name for _, row in found for name in row.figures))
    rows = [(what, *(row.percent_of(name) for name in names)) for what, row in found]
    yield table(("way", *(f"{name} %" for name in names)), rows)
