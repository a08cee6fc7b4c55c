"""Rendering of an upgrade as lines and tables: status, result and estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatstore import next_step
from compatstore.evaluation import DecisionRow
from compatstore.evaluation.sample import AGREEMENT
from compatstore.evaluation.views import truth_line
from compatstore.shown import Table, figures, table, view, wrapped
from compatstore.storage.records import Spent
from compatstore.upgrade.estimates.estimate import UpgradeEstimate, WaveMeasurement, Waves
from compatstore.upgrade.plan import Plan
from compatstore.upgrade.requests.gates import Gate
from compatstore.upgrade.run import UpgradeResult
from compatstore.upgrade.status import Activity, RunStatus, Status, VersionStatus


@view.register
def estimate_view(result: UpgradeEstimate) -> Iterator[str | Table]:
    """The estimate of an upgrade, the verdict first."""
    yield ""
    yield from wrapped(result.table.advice.text)
    yield from budgets_view(result)


def budgets_view(result: UpgradeEstimate) -> Iterator[str | Table]:
    """The budgets of an estimate, what it expects, and its gates."""
    measured, criterion = result.table, result.table.criterion
    before, ways = measured.rows[0], measured.served(result.terms.way)
    marks = ("", *(_mark(row.share, result) for row in ways))
    other = "of full backfill %" if measured.has_ground_truth else f"{AGREEMENT[1]} %"
    yield ""
    yield table(
        ("", "way", f"{criterion} %", other),
        [
            (
                mark,
                row.name,
                row.percent_of(criterion),
                _kept(row, criterion) if measured.has_ground_truth else row.percent_of(AGREEMENT[1]),
            )
            for mark, row in zip(marks, (before, *ways), strict=True)
        ],
    )
    if measured.provenance:
        yield from wrapped(measured.provenance)
    yield from wrapped(truth_line(measured))
    yield "> budget taken, * best figure"
    yield from wrapped(result.promise)
    yield from gate_lines(result.gates)


def gate_lines(judged: Sequence[Gate]) -> Iterator[str]:
    """Which gates are passed."""
    for gate in judged:
        yield f"{'passed' if gate.passed else 'FAILED'}: {gate.name}, estimated {gate.estimate.percent} %"


def _kept(row: DecisionRow, criterion: str) -> str:
    return row.kept[criterion].percent if criterion in row.kept else "-"


def _mark(share: float, result: UpgradeEstimate) -> str:
    return (">" if share == result.share else "") + ("*" if share == result.best else "")


@view.register
def status_view(result: Status) -> Iterator[str | Table]:
    """A gallery's status."""
    yield f"{result.gallery}: {result.rows} items, {result.active} is active"
    if result.missing:
        yield f"{result.missing} items have no vector in {result.active}: searches do not find them"
    yield table(
        ("version", "state", "dim", "metric", "native", "transformed", "missing", "encoder"),
        [(v.name, v.state, v.dim, v.metric, *_counts(v), encoder_cell(v)) for v in result.versions],
    )
    for version in result.versions:
        if version.bridged:
            yield f"{version.bridged} items without a vector in {version.name} are found through an artifact"
    for run in result.upgrades:
        yield from _run(run)
    if result.store is not None:
        at = result.store
        tracked = "; its triggers record changes" if at.tracked else ""
        yield f"mirrors {at.store}: {at.rows} rows, the app reads {at.switched or at.source}{tracked}"
        for target, count in at.held.items():
            yield f"  {count} vectors of {target} are there"


def _counts(version: VersionStatus) -> tuple[int | None, ...]:
    """Native, transformed and missing items; none of a version that has no vectors any more."""
    return (None, None, None) if version.state == "retired" else (version.native, version.transformed, version.missing)


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
    """The fusion of both versions, if one was chosen."""
    if run.weight is None:
        return
    if run.serving == "fused":
        yield f"  fused search: {1 - run.weight:.4g} {run.source} + {run.weight:.4g} {run.target}"
    else:
        yield f"  searched by one version; weight of {run.target} in a fusion: {run.weight:.4g}"
    if run.choice is not None:
        yield from wrapped(run.choice.weighed, "    ")
        if run.serving == "fused" and run.choice.loss:
            yield from wrapped(f"retiring {run.source} ends it: {run.choice.loss}", "    ")


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


@view.register
def _(result: UpgradeResult) -> Iterator[str | Table]:
    """The result of an upgrade, and the next step."""
    yield from done_view(result)
    if result.state != "ready":
        return
    if result.has_no_gain:
        more = next_step.call("upgrade", result.target, backfill=1.0)
        yield f"next: measure it before a cutover: {next_step.call('evaluate', result.target)}; or embed more: {more}"
    else:
        yield f"next: {next_step.call('cutover', result.target)}"


def done_view(result: UpgradeResult) -> Iterator[str | Table]:
    """The result, without the next step."""
    yield (
        f"{result.target} is {result.state}: {result.transformed} items transformed, {result.backfilled} embedded "
        f"natively, {result.missing} missing, {result.seconds:.1f} s"
    )
    yield from spent_lines(result.spent, result.ended_by)
    yield from waves_view(result.waves)
    if result.full_backfill:
        yield from wrapped(result.full_backfill)
    for found in result.rounds:  # the history has the rest
        yield from wrapped(f"learned: {found.split('; ')[0]}")
    if result.served:
        yield from wrapped(result.served)
    if result.num_unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.num_unbackfillable} cannot:"
        yield from reason_lines(result.unbackfillable, result.num_unbackfillable)


@view.register
def _(result: Plan) -> Iterator[str | Table]:
    """The plan and cost of an upgrade."""
    via = f" by {' then '.join(result.path)}" if result.path else ""
    yield f"{result.source} -> {result.target}{via}, {result.rows} items"
    rows = [
        (step.name, step.rows, step.bytes, None if step.seconds is None else round(step.seconds, 1))
        for step in result.steps
    ]
    yield table(("step", "rows", "bytes", "seconds"), rows) if rows else "nothing is left to do"
    for step in result.steps:
        yield from wrapped(f"{step.name}: {step.note}")
    yield from figures(result.quality)
    if result.estimate is not None:
        yield from estimate_view(result.estimate)
    for warning in result.warnings:
        yield f"warning: {warning}"


_ENDED = {
    "backfill": "its share is reached",
    "max_rows": "its limit of items ended it",
    "max_seconds": "its limit of time ended it",
    "max_cost": "its limit of money ended it",
    "target_quality": "its target quality is reached",
    "gain": "more of it would not pay",
}


def spent_lines(spent: Spent, ended_by: str, margin: str = "") -> Iterator[str]:
    """Usage of a backfill, and the limit that ended it."""
    if spent.rows:
        cost = f", {spent.tokens} tokens" if spent.tokens else ""
        cost += f", {spent.cost:g} in cost" if spent.cost else ""
        ended = f"; {_ENDED[ended_by]}" if ended_by else ""
        yield f"{margin}backfill so far: {spent.rows} items in {spent.seconds:.1f} s{cost}{ended}"


def reason_lines(reasons: Sequence[tuple[str, str]], total: int) -> Iterator[str]:
    """The first items that cannot be embedded, with reasons, and how many more there are."""
    yield from (f"    {item}: {reason}" for item, reason in reasons)
    if total > len(reasons):
        yield f"    and {total - len(reasons)} more"


@view.register
def _(result: Waves) -> Iterator[str | Table]:
    """All training rounds so far."""
    yield from waves_view(result)


def waves_view(waves: Sequence[WaveMeasurement]) -> Iterator[Table]:
    """Results of the training rounds of a self-training upgrade, and estimates for more natives."""
    if not waves:
        return
    criterion, cost = waves[-1].criterion, ["cost"] if any(wave.cost for wave in waves) else []
    yield table(
        ("wave", "native", "share", *cost, "weight", f"{criterion} % before", "as served"),
        [
            (
                number,
                wave.native,
                f"{wave.native_share:.1%}",
                *(f"{wave.cost:g}" for _ in cost),
                f"{wave.weight:g}",
                wave.status_quo.percent,
                wave.served.percent if wave.weight else "as before",
            )
            for number, wave in enumerate(waves, start=1)
        ],
    )
