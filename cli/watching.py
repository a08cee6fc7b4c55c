"""Verbs that tell where a gallery is: status, which can follow upgrades until nobody works on them, and history."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli.exit_codes import STOPPED, exit_code
from compatstore.cli.output import Output, console, fitted, pass_output
from compatstore.cli.verb import gallery_argument, open_gallery, verb
from compatstore.errors import UpgradeError
from compatstore.tables import Table, table

if TYPE_CHECKING:
    from compatstore.storage.history import HistoryEntry
    from compatstore.storage.ledger import Spent
    from compatstore.upgrade.estimates.waves import WaveFigures
    from compatstore.upgrade.status import Activity, RunStatus, Status, VersionStatus


_CODES = {
    "failed": exit_code(UpgradeError("upgrade")),
    "interrupted": exit_code(UpgradeError("upgrade")),
    "paused": STOPPED + signal.SIGINT,
}


def is_running(status: Status) -> bool:
    """Whether anybody works on an upgrade."""
    return any(run.activity.doing == "running" for run in status.upgrades)


def code_of(status: Status) -> int:
    """The exit code that says why nobody works: that of the first upgrade that did not end well, or 0."""
    return next((_CODES[run.activity.doing] for run in status.upgrades if run.activity.doing in _CODES), 0)


@contextmanager
def following(output: Output) -> Iterator[Callable[[Status], None]]:
    """Give a function that shows a look: in place on a terminal, else one below the other, or a line of JSON each."""
    if output.as_json:
        yield output.show_line
    elif sys.stdout.isatty():
        from rich.console import Group
        from rich.live import Live

        drawn = console()

        def draw(status: Status) -> None:
            live.update(
                Group(*(fitted(output.addressed(part), drawn.width) for part in status_view(status))), refresh=True
            )

        with Live(console=drawn, auto_refresh=False) as live:
            yield draw
    else:
        yield lambda status: output.show(status, status_view)


@verb("status", example="status photos.lance --watch")
@gallery_argument
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0, min_open=True),
    metavar="[SECONDS]",
    help="Look again and again, every 2 seconds by default, until nobody works on an upgrade any more. The exit code "
    "says why: 0 all is ready or over, 7 one failed or was interrupted, 130 one is paused.",
)
@pass_output
@click.pass_context
def status(ctx: click.Context, output: Output, gallery: str, watch: float | None) -> None:
    """Show items, versions and upgrades.

    With --json, --watch prints a line for each look.
    """
    opened = open_gallery(gallery, trust_code=False)
    if watch is None:
        output.show(opened.status(), status_view)
        return
    with following(output) as show:
        while True:
            found = opened.status()
            show(found)
            if not is_running(found):
                ctx.exit(code_of(found))
            time.sleep(watch)


@verb("history", example="history photos.lance")
@gallery_argument
@pass_output
def history(output: Output, gallery: str) -> None:
    """Show all steps so far, oldest first."""
    output.show(open_gallery(gallery, trust_code=False).history(), _history)


@verb("unbackfillable", example="unbackfillable photos.lance v2")
@gallery_argument
@click.argument("target")
@pass_output
def unbackfillable(output: Output, gallery: str, target: str) -> None:
    """List items that TARGET's encoder cannot embed, and why."""
    output.show(open_gallery(gallery, trust_code=False).unbackfillable(target), _unbackfillable)


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
    for run in result.upgrades:
        yield from _run(run)


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


_ENDED = {
    "backfill": "its share is reached",
    "max_rows": "its limit of items ended it",
    "max_seconds": "its limit of time ended it",
    "max_cost": "its limit of money ended it",
    "target_quality": "its target quality is sure to be reached",
    "gain": "more of it is sure to gain nothing",
}


def waves_view(waves: Sequence[WaveFigures]) -> Iterator[Table]:
    """What the lessons of an upgrade that teaches itself have found, and what more natives promise."""
    if not waves:
        return
    criterion = waves[-1].criterion
    yield table(
        ("wave", "native", "share", "cost", "seconds", f"{criterion} % before", "as served", "weight", "promised"),
        [
            (
                number,
                wave.native,
                f"{wave.share:.1%}",
                f"{wave.cost:g}" if wave.cost else "",
                f"{wave.seconds:.1f}",
                wave.status_quo.percent,
                "as before" if wave.gain is None else wave.served.percent,
                f"{wave.weight:g}",
                _next_promise(wave),
            )
            for number, wave in enumerate(waves, start=1)
        ],
    )


def _next_promise(wave: WaveFigures) -> str:
    """What twice the natives, or the next larger share that was measured, were found to give."""
    ahead = next((promise for promise in wave.ahead if promise.share >= 2 * wave.share), None)
    return "" if ahead is None else f"{ahead.share:.0%}: {ahead.figure.percent}"


def spent_lines(spent: Spent, ended_by: str, margin: str = "") -> Iterator[str]:
    """What a backfill has used so far, and which limit ended it."""
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


def encoder_cell(version: VersionStatus) -> str:
    """An encoder's spec; of a stored network's digest, the first digits do."""
    kind, _, rest = version.encoder.partition(":")
    return f"{kind}:{rest[:12]}" if kind == "stored" else version.encoder or "none"


def _history(result: Sequence[HistoryEntry]) -> Iterator[str | Table]:
    """All steps so far."""
    yield table(
        ("#", "at", "step", "version", "artifact", "rows", "seconds", "who", "note"),
        [(h.number, h.at, h.step, h.version, h.artifact[:12], h.rows, h.seconds, h.who, h.note) for h in result],
    )


def _unbackfillable(result: Any) -> Iterator[str | Table]:
    """Items that could not be embedded natively, an Arrow table."""
    yield table(result.column_names, [row.values() for row in result.to_pylist()])
