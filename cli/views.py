"""How results look to people: lines and tables, one function for each kind of result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compatstore.cli import estimate_views
from compatstore.cli.tables import Table, table

if TYPE_CHECKING:
    from compatstore.cli.models import RegisteredModels
    from compatstore.cli.switching import CutoverCheck
    from compatstore.cli.training import Trained
    from compatstore.demo import DemoReport
    from compatstore.evaluation import DecisionTable
    from compatstore.ingest.write import Added
    from compatstore.search import SearchPlan
    from compatstore.storage.history import HistoryEntry
    from compatstore.storage.ledger import Spent
    from compatstore.storage.records import ArtifactRecord
    from compatstore.upgrade.leases.stop_request import Paused
    from compatstore.upgrade.plan import Plan
    from compatstore.upgrade.run import UpgradeResult
    from compatstore.upgrade.states import VersionChange
    from compatstore.upgrade.status import Activity, RunStatus, Status, VersionStatus
    from compatstore.upkeep.optimize import Optimized

    View = Iterator[str | Table]


def status(result: Status) -> View:
    """A gallery as of now."""
    yield f"{result.gallery}: {result.rows} items, {result.active} is active"
    if result.missing:
        yield f"{result.missing} items have no vector in {result.active}: searches do not find them"
    yield table(
        ("version", "state", "dim", "metric", "native", "transformed", "missing", "encoder"),
        [(v.name, v.state, v.dim, v.metric, v.native, v.transformed, v.missing, _encoder(v)) for v in result.versions],
    )
    for version in result.versions:
        if version.bridged:
            yield f"{version.bridged} items without a vector in {version.name} are found through an artifact"
    for run in result.upgrades:
        yield from _run(run)


def dropped_columns(result: Mapping[str, Sequence[str]]) -> View:
    """Metadata columns that were dropped, and those that are left."""
    yield f"dropped {', '.join(result['dropped'])}; left: {', '.join(result['left']) or 'none'}"


def _run(run: RunStatus) -> Iterator[str]:
    via = f" by {' then '.join(run.path)}" if run.path else ""
    yield f"upgrade {run.source} -> {run.target}{via}: {run.state}, {_doing(run)}"
    yield from _activity(run.activity)
    if run.staged:
        yield f"  {run.staged} natives are safe beside the table and not in it yet"
    yield from _spent(run.spent, run.ended_by, "  ")
    if run.missing:
        yield f"  without a vector that a query of {run.target} finds: {', '.join(run.missing)}, ..."
    if run.unbackfillable:
        yield f"  {run.embeddable} items can be embedded natively, {run.unbackfillable} cannot:"
        yield from _reasons(run.reasons, run.unbackfillable)


def _doing(run: RunStatus) -> str:
    if run.activity.doing == "waiting":
        return f"waiting for {run.waiting_for}"
    if run.activity.doing == "running":
        return "running"
    return f"{run.activity.doing}; go on: compatstore upgrade GALLERY {run.target}"


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


def models(result: RegisteredModels) -> View:
    """Versions with their models, and artifacts."""
    yield table(
        ("version", "state", "dim", "metric", "fingerprint", "encoder"),
        [(v.name, v.state, v.dim, v.metric, v.fingerprint, _encoder(v)) for v in result.versions],
    )
    if result.artifacts:
        yield ""
        rows = [(a.id[:12], a.kind, a.method, a.source, a.target) for a in result.artifacts]
        yield table(("artifact", "kind", "method", "from", "to"), rows)


def linked(result: ArtifactRecord) -> View:
    """An artifact that was linked."""
    yield f"{result.id[:12]}  {result.method or result.kind}  {result.source} -> {result.target}"


def history(result: Sequence[HistoryEntry]) -> View:
    """All steps so far."""
    yield table(
        ("#", "at", "step", "version", "artifact", "rows", "seconds", "who", "note"),
        [(h.number, h.at, h.step, h.version, h.artifact[:12], h.rows, h.seconds, h.who, h.note) for h in result],
    )


def added(result: Added) -> View:
    """What an add did."""
    yield f"{result.rows} items added in {result.version}"


def found(result: Any) -> View:
    """What a search found, an Arrow table."""
    yield table(result.column_names, [row.values() for row in result.to_pylist()])


def search_plan(result: SearchPlan) -> View:
    """How a search would go."""
    yield from str(result).splitlines()


def plan(result: Plan) -> View:
    """What an upgrade would do and cost."""
    via = f" by {' then '.join(result.path)}" if result.path else ""
    yield f"{result.source} -> {result.target}{via}, {result.rows} items"
    rows = [(step.name, step.rows, step.bytes, step.seconds, step.note) for step in result.steps]
    yield table(("step", "rows", "bytes", "seconds", "what"), rows) if rows else "nothing is left to do"
    yield from _figures(result.quality)
    if result.estimate is not None:
        yield from estimate_views.estimate(result.estimate)
    for warning in result.warnings:
        yield f"warning: {warning}"


def decision(result: DecisionTable) -> View:
    """What every way to serve the gallery is worth, and what to do."""
    names = list(dict.fromkeys(name for row in result.rows for name in row.figures))
    criterion = result.criterion
    rows = [
        (
            row.name,
            row.notation,
            *(row.percent_of(name) for name in names),
            row.gains[criterion].percent if criterion in row.gains else "-",
        )
        for row in result.rows
    ]
    headings = ("way", "query/gallery", *(f"{name} %" for name in names), f"{criterion} gained")
    if result.provenance:
        yield result.provenance
    yield table(headings, rows)
    yield f"{result.num_queries} queries, correct by {result.truth}, intervals of {result.confidence:.0%}"
    yield f"{result.advice.verdict}: {result.advice.text}"


def unbackfillable(result: Any) -> View:
    """Items that could not be embedded natively, an Arrow table."""
    yield table(result.column_names, [row.values() for row in result.to_pylist()])


def report(result: UpgradeResult) -> View:
    """What an upgrade did, and what comes next."""
    yield from _done(result)
    if result.state == "ready":
        yield f"next: compatstore cutover GALLERY {result.target}"


def _done(result: UpgradeResult) -> View:
    yield (
        f"{result.target} is {result.state}: {result.transformed} items transformed, {result.backfilled} embedded "
        f"natively, {result.missing} missing, {result.seconds:.1f} s"
    )
    yield from (f"warning: {warning}" for warning in result.warnings)
    yield from _spent(result.spent, result.ended_by)
    if result.num_unbackfillable:
        yield f"{result.embeddable} items can be embedded natively, {result.num_unbackfillable} cannot:"
        yield from _reasons(result.unbackfillable, result.num_unbackfillable)


def paused(result: Paused) -> View:
    """What a pause did."""
    if not result.holder:
        yield f"nobody works on {result.target}"
    elif result.stopped:
        yield f"{result.holder} has stopped; go on: compatstore upgrade GALLERY {result.target}"
    else:
        yield f"{result.holder} was asked to stop, and has not yet"


_ENDED = {
    "backfill": "its share is reached",
    "max_rows": "its limit of items ended it",
    "max_seconds": "its limit of time ended it",
    "max_cost": "its limit of money ended it",
}


def _spent(spent: Spent, ended_by: str, margin: str = "") -> Iterator[str]:
    """What a backfill has used so far, and which limit ended it."""
    if spent.rows:
        cost = f", {spent.cost:g} in cost" if spent.cost else ""
        ended = f"; {_ENDED[ended_by]}" if ended_by else ""
        yield f"{margin}backfill so far: {spent.rows} items in {spent.seconds:.1f} s{cost}{ended}"


def report_and_switched(result: Mapping[str, Any]) -> View:
    """What an upgrade and its cutover did."""
    yield from _done(result["upgrade"])
    yield from switched(result["cutover"])


def switched(result: VersionChange) -> View:
    """What a cutover, rollback, abort or retire did."""
    was = f", {result.previous} before" if result.previous != result.active else ""
    yield f"{result.active} is active{was}" if result.changed else f"{result.active} is active; nothing to do"
    if result.missing:
        yield f"{result.missing} items have no vector in {result.active}: searches do not find them"
    if result.dropped:
        yield f"dropped: {', '.join(result.dropped)}"


def cutover_check(result: CutoverCheck) -> View:
    """Whether an upgrade can cut over."""
    yield (
        f"{result.missing} items have no vector in {result.target}"
        if result.missing
        else f"{result.target} can cut over"
    )


def trained(result: Trained) -> View:
    """What training made."""
    source, target = result.manifest.source, result.manifest.target
    yield f"{result.id[:12]}  {result.manifest.method}  {source.dim} -> {target.dim} values, in {result.out}"
    yield from _figures(result.manifest.figures)


def demo(result: DemoReport) -> View:
    """What the demo measured and left behind."""
    rows = [(r.name, r.notation, 100 * r.cmc1, 100 * r.cmc5, 100 * r.map, r.note) for r in result.rows]
    percent = [(n, s, f"{a:.1f}", f"{b:.1f}", f"{c:.1f}", note) for n, s, a, b, c, note in rows]
    yield table(("gallery", "query/gallery", "CMC-1 %", "CMC-5 %", "mAP %", "how"), percent)
    yield ""
    yield from (str(file) for file in result.files)
    yield ""
    yield "The gallery is live; try:"
    yield from (f"  {command}" for command in result.next_commands)


def _encoder(version: VersionStatus) -> str:
    """An encoder's spec; of a stored network's digest, the first digits do."""
    kind, _, rest = version.encoder.partition(":")
    return f"{kind}:{rest[:12]}" if kind == "stored" else version.encoder or "none"


def _figures(figures: Mapping[str, Any]) -> View:
    """Held-out figures of an artifact: of each network, and a table for each list of candidates."""
    rows = [(path[0], " ".join(path[1:]), value) for path, value in flat(figures) if not _is_list(value)]
    if rows:
        yield ""
        yield table(("held out", "figure", "value"), rows)
    for _, value in flat(figures):
        if _is_list(value):
            yield ""
            yield _records(value)


def flat(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names from the outside to the inside, and the value, of mappings in mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, name))
        else:
            yield (*path, name), value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def _records(items: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each item; a column for each value that one of them has."""
    rows = [{" ".join(path): value for path, value in flat(item)} for item in items]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) for row in rows)]
    return table(names, [[row.get(name) for name in names] for row in rows])


def _reasons(reasons: Sequence[tuple[str, str]], total: int) -> Iterator[str]:
    yield from (f"    {item}: {reason}" for item, reason in reasons)
    if total > len(reasons):
        yield f"    and {total - len(reasons)} more"


def optimized(result: Optimized) -> View:
    """What an optimisation did, or would do."""
    names = ("fragments", "index parts", "table versions", "files", "MB")
    before, after = (
        (size.fragments, size.index_parts, size.versions, size.files, f"{size.bytes / 1e6:,.1f}")
        for size in (result.before, result.after)
    )
    yield table(("", "before", "would be" if result.dry_run else "after"), list(zip(names, before, after, strict=True)))
    verb = "would be removed" if result.dry_run else "removed"
    for count, what in (
        (len(result.dropped), f"columns that no version has: {', '.join(result.dropped)}"),
        (result.orphans, "files of the table that no version names"),
        (len(result.leftovers), "files beside the table that nothing needs"),
    ):
        if count:
            yield f"{verb}: {count} {what}"
    if result.tags:
        yield f"kept: the table versions of {', '.join(result.tags)}"
    if result.left_alone:
        yield f"left alone: {result.left_alone}"
