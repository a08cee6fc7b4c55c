"""A plan as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.shown import view
from compatstore.tables import Table, figures, table
from compatstore.upgrade.plan import Plan
from compatstore.upgrade.views.estimate import estimate_view


@view.register
def _(result: Plan) -> Iterator[str | Table]:
    """What an upgrade would do and cost."""
    via = f" by {' then '.join(result.path)}" if result.path else ""
    yield f"{result.source} -> {result.target}{via}, {result.rows} items"
    rows = [
        (step.name, step.rows, step.bytes, None if step.seconds is None else round(step.seconds, 1), step.note)
        for step in result.steps
    ]
    yield table(("step", "rows", "bytes", "seconds", "what"), rows) if rows else "nothing is left to do"
    yield from figures(result.quality)
    if result.estimate is not None:
        yield from estimate_view(result.estimate)
    for warning in result.warnings:
        yield f"warning: {warning}"
