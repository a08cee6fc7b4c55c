"""A gallery as of now, as lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore import next_step
from compatstore.shown import view
from compatstore.tables import Table, table
from compatstore.upgrade.status import Activity, RunStatus, Status, VersionStatus
from compatstore.upgrade.views.spending import reason_lines, spent_lines
from compatstore.upgrade.views.waves import waves_view


@view.register
def status_view(result: Status) -> Iterator[str | Table]:
    """A gallery as of now."""
    yield f"{result.gallery}: {result.rows} items, {result.active} is active"
    if result.missing:
        yield f"{result.missing} items have no vector in {result.active}: searches do not find them"
    yield table(
        ("version", "state", "dim", "metric", "native", "transformed", "missing", "encoder"),
        [
            (v.name, v.state, v.dim, v.metric, v.native, v.transformed, v.missing, encoder_cell(v))
            for v in result.versions
        ],
    )
    for version in result.versions:
        if version.bridged:
            yield f"{version.bridged} items without a vector in {version.name} are found through an artifact"
        if version.expected is not None:
            yield f"searches in {version.name} rank their first {version.expected} candidates by expected distances"
    for run in result.upgrades:
        yield from _run(run)


@view.register
def _run(run: RunStatus) -> Iterator[str | Table]:
    via = f" by {' then '.join(run.path)}" if run.path else ""
    yield f"upgrade {run.source} -> {run.target}{via}: {run.state}, {_doing(run)}"
    yield from _activity(run.activity)
    if run.staged:
        yield f"  {run.staged} natives are safe beside the table and not in it yet"
    yield from _serving(run)
    yield from (f"  warning: {text}" for text in run.warnings)
    yield from waves_view(run.waves)
    if run.left is not None and run.spent.rows:
        yield f"  {run.left}"
    yield from spent_lines(run.spent, run.ended_by, "  ")
    if run.searched.rows:
        cost = f", {run.searched.cost:g} in cost" if run.searched.cost else ""
        yield f"  searches have embedded {run.searched.rows} items{cost}"
    if run.missing:
        yield f"  without a vector that a query of {run.target} finds: {', '.join(run.missing)}, ..."
    if run.unbackfillable:
        yield f"  {run.embeddable} items can be embedded natively, {run.unbackfillable} cannot:"
        yield from reason_lines(run.reasons, run.unbackfillable)


def _serving(run: RunStatus) -> Iterator[str]:
    """How searches use both versions, where that was chosen."""
    if run.weight is None:
        return
    if run.serving == "fused":
        yield f"  searched by both versions as one: {1 - run.weight:.4g} {run.source} + {run.weight:.4g} {run.target}"
    else:
        yield f"  searched by one version; weight of {run.target} in a fusion: {run.weight:.4g}"
    if run.choice is not None:
        yield f"    weight {run.choice}"
        if run.serving == "fused" and run.choice.loss:
            yield f"    retiring {run.source} ends it: {run.choice.loss}"


def _doing(run: RunStatus) -> str:
    if run.activity.doing == "waiting":
        over, _, how = run.waiting_for.partition("nothing: ")
        return how or f"waiting for {over}"
    if run.activity.doing == "running":
        return "running"
    return f"{run.activity.doing}; go on: {next_step.call('upgrade', run.target)}"


def _activity(activity: Activity) -> Iterator[str]:
    at = f": {activity.step}, {activity.done} of {activity.total}" if activity.step else ""
    if activity.doing == "running":
        left = "" if activity.eta is None else f", {activity.eta:.0f} s left"
        rate = f", {activity.rate:.0f}/s{left}" if at else ""
        yield f"  {activity.verb} by {activity.holder} since {activity.since}{at}{rate}"
    elif activity.doing != "waiting" and activity.holder:
        yield f"  last at work was {activity.holder}{at}"
    if activity.error:
        yield f"  last error, at {activity.error_at}: {activity.error}"


def encoder_cell(version: VersionStatus) -> str:
    """An encoder's spec; of a stored network's digest, the first digits do."""
    kind, _, rest = version.encoder.partition(":")
    return f"{kind}:{rest[:12]}" if kind == "stored" else version.encoder or "none"
