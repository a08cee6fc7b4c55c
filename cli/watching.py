"""Verbs that tell where a gallery is: status, history."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.following import code_of, following, is_running
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import gallery_argument, open_gallery, verb

if TYPE_CHECKING:
    from click import Command


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
        output.show(opened.status(), views.status)
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
    output.show(open_gallery(gallery, trust_code=False).history(), views.history)


@verb("unbackfillable", example="unbackfillable photos.lance v2")
@gallery_argument
@click.argument("target")
@pass_output
def unbackfillable(output: Output, gallery: str, target: str) -> None:
    """List items that cannot be embedded in TARGET, with reasons."""
    output.show(open_gallery(gallery, trust_code=False).unbackfillable(target), views.unbackfillable)


VERBS: tuple[Command, ...] = (status, history, unbackfillable)
