"""Verbs that make a gallery smaller: optimize, unregister, unlink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import progress_bars
from compatstore.cli.verb import gallery_argument, open_gallery, verb

if TYPE_CHECKING:
    from click import Command


@verb("optimize", example="optimize photos.lance --dry-run")
@gallery_argument
@click.option("--dry-run", is_flag=True, help="Say what there is to do, and do nothing.")
@click.option("--adopted", is_flag=True, help="Do it to the table of an app too, its old versions included.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a table version that was superseded stays for those who read it: 5 by default, and 7 days in the "
    "table of an app.",
)
@pass_output
def optimize(output: Output, gallery: str, dry_run: bool, adopted: bool, grace: float | None) -> None:
    """Merge fragments and indexes, and remove what nothing needs.

    Refused while somebody works on an upgrade or an index; safe beside apps that search and write. What tags pin is
    kept. Galleries of our own merge small fragments by themselves; this does the rest at once.
    """
    opened = open_gallery(gallery, trust_code=False)
    with progress_bars("optimize"):
        result = opened.optimize(adopted=adopted, grace=grace, dry_run=dry_run)
    output.show(result, views.optimized)


@verb("unregister", example="unregister photos.lance v1")
@gallery_argument
@click.argument("version")
@pass_output
def unregister(output: Output, gallery: str, version: str) -> None:
    """Forget a version that nothing uses.

    It is refused while the gallery keeps vectors of VERSION, an upgrade is under way from or to it, or an artifact
    leads from or to it.
    """
    opened = open_gallery(gallery, trust_code=False)
    opened.unregister(version)
    output.show(opened.status(), views.status)


@verb("unlink", example="unlink photos.lance 3f2a9c")
@gallery_argument
@click.argument("artifact")
@pass_output
def unlink(output: Output, gallery: str, artifact: str) -> None:
    """Forget an artifact that nothing uses.

    ARTIFACT is its id, or the first digits of it. It is refused while an upgrade applies it, vectors were made by it,
    or searches use it.
    """
    opened = open_gallery(gallery, trust_code=False)
    opened.unlink(artifact)
    output.show(opened.status(), views.status)


VERBS: tuple[Command, ...] = (optimize, unregister, unlink)
