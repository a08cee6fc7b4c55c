"""Verbs that say which version searches use, and that end one: cutover, rollback, abort, retire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.exit_codes import exit_code
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.stopping import stop_on_signals
from compatstore.cli.verb import gallery_argument, open_gallery, trust_code_option, verb, wait_option
from compatstore.errors import RowsMissing

if TYPE_CHECKING:
    from click import Command


@dataclass(frozen=True)
class CutoverCheck:
    """Whether an upgrade can cut over.

    Attributes:
        target: Its target.
        missing: Items without a vector in it.
    """

    target: str
    missing: int

    @property
    def exit_code(self) -> int:
        """0, or that of the error with which the cutover would be refused."""
        return exit_code(RowsMissing("cut over")) if self.missing else 0


@verb("cutover", example="cutover photos.lance v2")
@gallery_argument
@click.argument("target")
@click.option("--check", is_flag=True, help="Only say whether it can be done; exit code 7 where items are missing.")
@click.option("--force", is_flag=True, help="Do it while items have no vector in TARGET; searches will not find them.")
@trust_code_option
@pass_output
@click.pass_context
def cutover(
    ctx: click.Context, output: Output, gallery: str, target: str, check: bool, force: bool, trust_code: bool
) -> None:
    """Make TARGET the version that searches use; atomic."""
    opened = open_gallery(gallery, trust_code=trust_code)
    if check:
        checked = CutoverCheck(target, opened.check_cutover(target))
        output.show(checked, views.cutover_check)
        ctx.exit(checked.exit_code)
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = opened.cutover(target, force=force, progress=onto(bars), should_stop=should_stop)
    output.show(switched, views.switched)


@verb("rollback", example="rollback photos.lance")
@gallery_argument
@click.argument("target", required=False)
@pass_output
def rollback(output: Output, gallery: str, target: str | None) -> None:
    """Go back to the version before an upgrade.

    Atomic; nothing is lost, and nobody is waited for. TARGET is the active version, or else the only upgrade under
    way, where it is left out.
    """
    output.show(open_gallery(gallery, trust_code=False).rollback(target), views.switched)


@verb("abort", example="abort photos.lance v2")
@gallery_argument
@click.argument("target")
@wait_option
@pass_output
def abort(output: Output, gallery: str, target: str, wait: float) -> None:
    """End an upgrade before its cutover, and drop what it made.

    A process that works on it finishes its batch and stops. TARGET stays registered; a new upgrade starts from nothing.
    """
    output.show(open_gallery(gallery, trust_code=False).abort(target, wait=wait), views.switched)


@verb("retire", example="retire photos.lance v1")
@gallery_argument
@click.argument("version")
@click.option("--drop-adopted", is_flag=True, help="Drop an adopted column too; the app that owns it needs it no more.")
@click.option("--force", is_flag=True, help="Do it while items have their only vector in VERSION.")
@pass_output
def retire(output: Output, gallery: str, version: str, drop_adopted: bool, force: bool) -> None:
    """Drop the vectors of VERSION for good.

    With the target of an upgrade that has not cut over, this abandons that upgrade.
    """
    opened = open_gallery(gallery, trust_code=False)
    output.show(opened.retire(version, drop_adopted=drop_adopted, force=force), views.switched)


VERBS: tuple[Command, ...] = (cutover, rollback, abort, retire)
