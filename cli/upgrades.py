"""Verbs of an upgrade's life: plan, upgrade, status, history, cutover, rollback, retire."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from compatstore.cli import views
from compatstore.cli.cutover_check import CutoverCheck
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import Bars, progress_bars
from compatstore.cli.stopping import stop_on_signals
from compatstore.cli.verb import (
    gallery_argument,
    open_gallery,
    open_target,
    target_encoder_option,
    trust_code_option,
    verb,
)

if TYPE_CHECKING:
    from click import Command

    from compatstore.artifacts.network import Precision
    from compatstore.gallery import Gallery
    from compatstore.upgrade.progress import Progress

_POLICY = (
    "Order of the backfill: random (the default), sigma, entropy, margin, least-confidence, a column of numbers "
    "(column:views), or a product of these (sigma*column:views)."
)
_ARTIFACT_ID = re.compile(r"[0-9a-f]+")
F = TypeVar("F", bound=Callable[..., Any])


def _upgrade_options(function: F) -> F:
    """The parameters that `plan` and `upgrade` share."""
    options = (
        gallery_argument,
        click.argument("target"),
        click.option(
            "--via", metavar="ARTIFACT", help="Artifact to use: id, its first digits, or a path to link first."
        ),
        click.option("--backfill", type=float, metavar="SHARE", help="Share to embed natively, from 0 to 1."),
        click.option("--policy", help=_POLICY),
        click.option("--seed", type=int, help="Seed of the order."),
        target_encoder_option,
        trust_code_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@verb("plan", example="plan photos.lance v2 --backfill 0.25")
@_upgrade_options
@pass_output
def plan(
    output: Output,
    gallery: str,
    target: str,
    via: str | None,
    backfill: float | None,
    policy: str | None,
    seed: int | None,
    encoder: str | None,
    trust_code: bool,
) -> None:
    """Show what an upgrade would do and cost.

    Nothing is written, but for an artifact that --via names by its path: it is linked.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    artifact = _link_first(opened, via, target, output)
    planned = opened.plan(target, via=artifact, backfill=backfill, policy=policy, seed=seed)
    output.show(planned, views.plan)


@verb("upgrade", example="upgrade photos.lance v2 --backfill 0.25 --cutover")
@_upgrade_options
@click.option("--dry-run", is_flag=True, help="Show the plan that this command would carry out, and stop.")
@click.option("--cutover", is_flag=True, help="Cut over when the upgrade is ready.")
@click.option("--device", metavar="DEVICE", help="Where the hop's network runs: cpu (the default) or cuda.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Of the hop; bfloat16 is faster where the processor has it.",
)
@pass_output
def upgrade(
    output: Output,
    gallery: str,
    target: str,
    via: str | None,
    backfill: float | None,
    policy: str | None,
    seed: int | None,
    encoder: str | None,
    trust_code: bool,
    dry_run: bool,
    cutover: bool,
    device: str | None,
    precision: Precision,
) -> None:
    """Give every item a vector in TARGET.

    The source's vectors stay as they are. Ctrl-C and SIGTERM finish the batch at hand. The same command again goes on
    where this one stopped; when all is done it does nothing. Searches use TARGET after a cutover.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    artifact = _link_first(opened, via, target, output)
    if dry_run:
        planned = opened.plan(target, via=artifact, backfill=backfill, policy=policy, seed=seed)
        output.show(planned, views.plan)
        return
    with progress_bars() as bars, stop_on_signals() as should_stop:
        report = opened.upgrade(
            target,
            via=artifact,
            backfill=backfill,
            policy=policy,
            seed=seed,
            progress=_onto(bars),
            should_stop=should_stop,
            device=device,
            precision=precision,
        )
    if not cutover:
        output.show(report, views.report)
        return
    with progress_bars() as bars:
        switched = opened.cutover(target, progress=_onto(bars))
    output.show({"upgrade": report, "cutover": switched}, views.report_and_switched)


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
    with progress_bars() as bars:
        switched = opened.cutover(target, force=force, progress=_onto(bars))
    output.show(switched, views.switched)


@verb("rollback", example="rollback photos.lance")
@gallery_argument
@click.argument("target", required=False)
@pass_output
def rollback(output: Output, gallery: str, target: str | None) -> None:
    """Go back to the version before an upgrade.

    Atomic; nothing is lost. TARGET is the active version, or else the only upgrade under way, where it is left out.
    """
    output.show(open_gallery(gallery, trust_code=False).rollback(target), views.switched)


@verb("retire", example="retire photos.lance v1")
@gallery_argument
@click.argument("version")
@click.option("--drop-adopted", is_flag=True, help="Drop an adopted column too; the app that owns it needs it no more.")
@pass_output
def retire(output: Output, gallery: str, version: str, drop_adopted: bool) -> None:
    """Drop the vectors of VERSION for good.

    With the target of an upgrade that has not cut over, this abandons that upgrade.
    """
    opened = open_gallery(gallery, trust_code=False)
    output.show(opened.retire(version, drop_adopted=drop_adopted), views.switched)


def _link_first(gallery: Gallery, via: str | None, target: str, output: Output) -> str | None:
    """Link an artifact that is given by its path; ids pass as they are."""
    if via is None or (_ARTIFACT_ID.fullmatch(via) and not Path(via).exists()):
        return via
    from compatstore.artifacts import Artifact

    artifact = Artifact.load(via)
    if all(linked.id != artifact.id for linked in gallery.artifacts()):
        # An artifact that was trained on bare files does not know its source: the upgrade's is the active version.
        source = gallery.active if artifact.manifest.source.fingerprint is None else None
        gallery.link(artifact, source, target)
        output.note(f"Linked {via} as {artifact.short_id}.")
    return artifact.id


def _onto(bars: Bars) -> Callable[[Progress], None]:
    return lambda progress: bars.update(progress.step, progress.done, progress.total)


VERBS: tuple[Command, ...] = (plan, upgrade, status, history, cutover, rollback, retire)
