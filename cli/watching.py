"""Verbs that tell where a gallery is: status, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import gallery_argument, open_gallery, verb

if TYPE_CHECKING:
    from click import Command


@verb("status", example="status photos.lance")
@gallery_argument
@pass_output
def status(output: Output, gallery: str) -> None:
    """Show items, versions and upgrades."""
    output.show(open_gallery(gallery, trust_code=False).status(), views.status)


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
