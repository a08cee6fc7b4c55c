"""Verbs that report on a gallery: status, which can follow upgrades until all are idle, history and metrics."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

import compatstore as cs
from compatstore.cli.exit_codes import STOPPED, exit_code
from compatstore.cli.output import Output, console, fitted, is_terminal, pass_output, plain, rows_view
from compatstore.cli.switching import is_pattern, open_shards
from compatstore.cli.verb import gallery_verb, open_gallery, verb
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.shown import Table, table, view

if TYPE_CHECKING:
    from compatstore.shards import Shards, ShardsStatus
    from compatstore.storage.history import HistoryEntry
    from compatstore.upgrade.status import Status


_CODES = {
    "failed": exit_code(UpgradeError("upgrade")),
    "interrupted": exit_code(UpgradeError("upgrade")),
    "paused": STOPPED + signal.SIGINT,
}


@contextmanager
def following(output: Output) -> Iterator[Callable[[Status | ShardsStatus], None]]:
    """Give a function that shows a status: in place on a terminal, else one below the other, or a line of JSON each."""
    if output.as_json:
        yield lambda status: click.echo(json.dumps(plain(status)))
    elif is_terminal(sys.stdout):
        from rich.console import Group
        from rich.live import Live

        drawn = console()

        def draw(status: Status | ShardsStatus) -> None:
            live.update(Group(*(fitted(output.addressed(part), drawn.width) for part in view(status))), refresh=True)

        with Live(console=drawn, auto_refresh=False) as live:
            yield draw
    else:
        yield lambda status: output.show(status, view)


@gallery_verb("status", "status photos.lance", "status photos.lance --watch", "status photos.lance --watch 10 --json")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0, min_open=True),
    metavar="[SECONDS]",
    help="Repeat, every 2 seconds by default, until no process works on an upgrade. The exit code "
    "gives the reason: 0 all is ready or over, 7 one failed or was interrupted, 130 one is paused.",
)
def status(output: Output, gallery: str, watch: float | None) -> int:
    """Show items, versions and upgrades.

    With --json, --watch prints a line each time. GALLERY may be DATABASE#PATTERN, for tables upgraded together.
    """
    opened: cs.Gallery | Shards = (open_shards if is_pattern(gallery) else open_gallery)(gallery, trust_code=False)
    if watch is None:
        output.show(opened.status(), view)
        return 0
    with following(output) as show:
        while True:
            found = opened.status()
            show(found)
            parts = found.shards if hasattr(found, "shards") else [run.activity for run in found.upgrades]
            doing = [part.doing for part in parts]
            if "running" not in doing:
                return next((_CODES[activity] for activity in doing if activity in _CODES), 0)
            time.sleep(watch)


@gallery_verb("history", "history photos.lance")
def history(output: Output, gallery: str) -> None:
    """Show the steps so far, oldest first."""
    output.show(open_gallery(gallery, trust_code=False).maintenance.history(), _history)


@gallery_verb("unbackfillable", "unbackfillable photos.lance v2", "unbackfillable photos.lance v2 --json")
@click.argument("target")
def unbackfillable(output: Output, gallery: str, target: str) -> None:
    """List items that TARGET's encoder cannot embed, and why."""
    output.show(open_gallery(gallery, trust_code=False).maintenance.unbackfillable(target), rows_view)


def _history(result: Sequence[HistoryEntry]) -> Iterator[str | Table]:
    """Steps so far; JSON has user, seconds and artifact of each, too."""
    yield table(
        ("#", "at (UTC)", "step", "version", "rows", "note"),
        [(h.number, h.at[:16].replace("T", " "), h.step, h.version, h.rows, h.note) for h in result],
    )


@verb(
    "metrics",
    examples=(
        "metrics photos.lance",
        "metrics photos.lance texts.lance --listen 9464",
        "metrics photos.lance --listen 0.0.0.0:9464",
    ),
)
@click.argument("galleries", metavar="GALLERY...", nargs=-1, required=True)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="Answer Prometheus at http://HOST:PORT/metrics until stopped; each answer reads the galleries again. HOST "
    "is localhost by default.",
)
@pass_output
def metrics(output: Output, galleries: tuple[str, ...], listen: str | None) -> None:
    """Print items, versions and upgrades as metrics for Prometheus.

    The names begin with compatstore_. A gallery that cannot be read any more has compatstore_up 0.
    """
    opened = [open_gallery(gallery, trust_code=False) for gallery in galleries]
    if listen is None:
        from compatstore.integrations.prometheus import exposition

        text = exposition(*opened)
        output.show(_samples(opened) if output.as_json else text, lambda _: text.splitlines())
        return
    from compatstore.integrations.prometheus import listening

    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("listen", expected="[HOST:]PORT with a port from 0 to 65535", found=repr(listen))
    host = host or "localhost"
    with listening(*opened, host=host, port=int(port)) as open_port:
        output.note(f"metrics at http://{host}:{open_port}/metrics; Ctrl-C ends")
        while True:
            time.sleep(3600)


def _samples(galleries: list[cs.Gallery]) -> list[dict[str, object]]:
    from compatstore.integrations.prometheus import GalleryCollector

    return [
        {"name": sample.name, "labels": sample.labels, "value": sample.value}
        for family in GalleryCollector(*galleries).collect()
        for sample in family.samples
    ]
