"""Verbs that bring an upgrade to where it can cut over: plan, upgrade, pause."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compatstore.cli import views
from compatstore.cli.bundle import bundle
from compatstore.cli.exit_codes import BUSY, GATE_FAILED
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.stopping import stop_on_signals
from compatstore.cli.terms import TERMS
from compatstore.cli.verb import (
    gallery_argument,
    open_gallery,
    open_target,
    target_encoder_option,
    trust_code_option,
    verb,
    wait_option,
)

if TYPE_CHECKING:
    from click import Command

    from compatstore.gallery import Gallery
    from compatstore.upgrade.backfilling.backfill_settings import BackfillSettings
    from compatstore.upgrade.plan import Plan
    from compatstore.upgrade.precision import PrecisionRequest

_POLICY = (
    "Order of the backfill: random (the default), sigma, entropy, margin, least-confidence, a column of numbers "
    "(column:views), or a product of these (sigma*column:views)."
)
_LIMITS = "The limits that are named replace those of earlier calls; the smallest ends the backfill."
_NONE = "Without it and the four limits below nothing is embedded; later calls keep what an earlier one named."
_NATIVES = (
    "How native vectors are stored: rows moves the rows that get one, columns leaves every row where it is, auto (the "
    "default) moves them where that writes much less, and never in an adopted table."
)
_REFIT = (
    "Correct the transform by what the backfill has embedded, and hop the rest again where held-out rows come nearer. "
    "A fifth of the backfill is drawn at random to judge that."
)
_ARTIFACT_ID = re.compile(r"[0-9a-f]+")
_REQUEST = (
    click.option("--via", metavar="ARTIFACT", help="Artifact to use: id, its first digits, or a path to link first."),
    click.option("--backfill", type=float, metavar="SHARE", help=f"Share to embed natively, from 0 to 1. {_NONE}"),
    click.option("--max-rows", type=int, metavar="N", help=f"Items to embed natively. {_LIMITS}"),
    click.option("--max-seconds", type=float, metavar="S", help="Wall time of the backfill."),
    click.option("--max-cost", type=float, metavar="C", help="Money to spend on embedding, with --price-per-item."),
    click.option("--price-per-item", type=float, metavar="P", help="What embedding an item costs."),
    click.option("--policy", help=_POLICY),
    click.option("--seed", type=int, help="Seed of the order, and of the sample of an estimate."),
    *TERMS,
    click.option("--natives", type=click.Choice(["auto", "rows", "columns"]), help=_NATIVES),
    click.option("--refit", is_flag=True, help=_REFIT),
)
request_options = bundle("request", _REQUEST)
precision_option = click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Of the hop; auto tries both and takes bfloat16 where it is faster and gives the same vectors.",
)


def _backfill_settings() -> type:
    """The dataclass behind the options of batches, retries and pace."""
    from compatstore.upgrade.backfilling.backfill_settings import BackfillSettings

    return BackfillSettings


@verb("plan", example="plan photos.lance v2 --backfill 0.25")
@gallery_argument
@click.argument("target")
@request_options
@target_encoder_option
@trust_code_option
@precision_option
@pass_output
@click.pass_context
def plan(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    request: dict[str, Any],
    encoder: str | None,
    trust_code: bool,
    precision: PrecisionRequest,
) -> None:
    """Show what an upgrade would do and cost.

    With --target-quality, --require, --max-negative-flips or --sample also what it is expected to give: a sample is
    embedded with the target's model and forgotten. Nothing is written, but for an artifact that --via names by its
    path: it is linked.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    with progress_bars("plan"):
        planned = opened.plan(target, **_settled(request, opened, target, output), precision=precision)
    _show_plan(ctx, output, planned)


@verb("upgrade", example="upgrade photos.lance v2 --backfill 0.25 --cutover", settings=_backfill_settings)
@gallery_argument
@click.argument("target")
@request_options
@target_encoder_option
@trust_code_option
@click.option("--dry-run", is_flag=True, help="Show the plan that this command would carry out, and stop.")
@click.option("--cutover", is_flag=True, help="Cut over when the upgrade is ready.")
@click.option("--device", metavar="DEVICE", help="Where the hop's network runs: cpu (the default) or cuda.")
@precision_option
@pass_output
@click.pass_context
def upgrade(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    request: dict[str, Any],
    encoder: str | None,
    trust_code: bool,
    dry_run: bool,
    cutover: bool,
    device: str | None,
    precision: PrecisionRequest,
    settings: BackfillSettings,
) -> None:
    """Give every item a vector in TARGET.

    The source's vectors stay as they are. Ctrl-C and SIGTERM finish the batch at hand. The same command again goes on
    where this one stopped; when all is done it does nothing. Searches use TARGET after a cutover.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    asked = _settled(request, opened, target, output)
    if dry_run:
        with progress_bars("plan"):
            planned = opened.plan(target, **asked, precision=precision)
        _show_plan(ctx, output, planned)
    with progress_bars("upgrade") as bars, stop_on_signals() as should_stop, output.noting_warnings():
        report = opened.upgrade(
            target,
            **asked,
            progress=onto(bars),
            should_stop=should_stop,
            device=device,
            precision=precision,
            settings=settings,
        )
    if not cutover:
        output.show(report, views.report)
        return
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = opened.cutover(target, progress=onto(bars), should_stop=should_stop)
    output.show({"upgrade": report, "cutover": switched}, views.report_and_switched)


def _show_plan(ctx: click.Context, output: Output, planned: Plan) -> None:
    """Show a plan and end the command; where a gate fails, so does the command."""
    output.show(planned, views.plan)
    ctx.exit(0 if planned.estimate is None or planned.estimate.passed else GATE_FAILED)


@verb("pause", example="pause photos.lance v2")
@gallery_argument
@click.argument("target")
@wait_option
@pass_output
@click.pass_context
def pause(ctx: click.Context, output: Output, gallery: str, target: str, wait: float) -> None:
    """Stop an upgrade that another process runs.

    That process finishes its batch, with --wait 0 after this command has ended. The same upgrade command goes on.
    """
    paused = open_gallery(gallery, trust_code=False).pause(target, wait=wait)
    output.show(paused, views.paused)
    ctx.exit(0 if paused.stopped or not wait else BUSY)


def _settled(request: dict[str, Any], gallery: Gallery, target: str, output: Output) -> dict[str, Any]:
    """The request as the API takes it: the artifact linked, and the flag for a refit made one."""
    refit = None
    if request["refit"]:
        from compatstore.trainers import Refit

        refit = Refit()
    return {**request, "via": _link_first(gallery, request["via"], target, output), "refit": refit}


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


VERBS: tuple[Command, ...] = (plan, upgrade, pause)
