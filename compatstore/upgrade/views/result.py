"""What an upgrade did, as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from compatstore import next_step
from compatstore.shown import view
from compatstore.tables import Table
from compatstore.upgrade.run import UpgradeResult
from compatstore.upgrade.views.spending import reason_lines, spent_lines
from compatstore.upgrade.views.waves import waves_view

WIDTH = 100  # columns of a line


@view.register
def _(result: UpgradeResult) -> Iterator[str | Table]:
    """What an upgrade did, and what comes next."""
    yield from done_view(result)
    if result.state != "ready":
        return
    if result.has_no_gain:
        more = next_step.call("upgrade", result.target, backfill=1.0)
        yield f"next: measure it before a cutover: {next_step.call('evaluate', result.target)}; or embed more: {more}"
    else:
        yield f"next: {next_step.call('cutover', result.target)}"


def done_view(result: UpgradeResult) -> Iterator[str | Table]:
    """What was done, without what comes next."""
    yield (
        f"{result.target} is {result.state}: {result.transformed} items transformed, {result.backfilled} embedded "
        f"natively, {result.missing} missing, {result.seconds:.1f} s"
    )
    yield from (f"warning: {warning}" for warning in result.warnings)
    yield from spent_lines(result.spent, result.ended_by)
    yield from waves_view(result.waves)
    if result.full_backfill:
        yield result.full_backfill
    for lesson in result.lessons:  # the history has the rest
        yield from wrap(f"learned: {lesson.split('; ')[0]}", WIDTH, subsequent_indent="  ")
    if result.served:
        yield result.served
    if result.num_unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.num_unbackfillable} cannot:"
        yield from reason_lines(result.unbackfillable, result.num_unbackfillable)
