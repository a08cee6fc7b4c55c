"""Verbs that bring an upgrade to where it can cut over: plan, upgrade, pause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from compatstore.cli.exit_codes import BUSY, GATE_FAILED, stop_on_signals
from compatstore.cli.logs import printed_aside
from compatstore.cli.output import Output, pass_output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.sharded import cut_over_shards, exit_code_of, is_pattern, open_shards, prepare_each, require_one
from compatstore.cli.switching import switched_view
from compatstore.cli.verb import (
    gallery_argument,
    open_gallery,
    open_target,
    target_encoder_option,
    trust_code_option,
    verb,
    wait_option,
)
from compatstore.paths import exists
from compatstore.shown import Table, view

if TYPE_CHECKING:
    from compatstore.cli.settings import Options
    from compatstore.gallery import Gallery
    from compatstore.trainers.pairs.learn import Learn
    from compatstore.upgrade.leases.stop_request import Paused
    from compatstore.upgrade.plan import Plan
    from compatstore.upgrade.refit import Refitter
    from compatstore.upgrade.requests.backfill import Backfill
    from compatstore.upgrade.requests.gates import Gates
    from compatstore.upgrade.requests.run_settings import RunSettings
    from compatstore.versions import EmbeddingVersion


Ended = TypeVar("Ended")  # what an upgrade gives back, of a gallery or of shards
_ARTIFACT_ID = re.compile(r"[0-9a-f]+")
via_option = click.option(
    "--via", metavar="ARTIFACT", help="Artifact to use: id, its first digits, or a path to link first."
)
refit_option = click.option(
    "--refit",
    is_flag=True,
    help="Correct the transform by what the backfill has embedded, and hop the rest again where held-out rows come "
    "nearer. A fifth of the backfill is drawn at random to validate that.",
)
no_learn_option = click.option(
    "--no-learn",
    is_flag=True,
    help="Refuse where no artifact leads to TARGET. Else the upgrade teaches itself: it learns a transform from what "
    "it embeds, wave by wave, and searches use both versions as one once that is sure to be better.",
)


def _of_plan() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_plan

    return of_plan()


def _of_upgrade() -> Mapping[str, Options]:
    from compatstore.cli.requests import of_upgrade

    return of_upgrade()


@verb(
    "plan",
    examples=(
        "plan photos.lance v2 --backfill 0.25",
        "plan photos.lance v2 --target-quality 0.98 --labels category",
    ),
    requests=_of_plan,
)
@gallery_argument
@click.argument("target")
@via_option
@refit_option
@no_learn_option
@target_encoder_option
@trust_code_option
@pass_output
@click.pass_context
def plan(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    via: str | None,
    refit: bool,
    no_learn: bool,
    encoder: str | None,
    trust_code: bool,
    backfill: Backfill,
    gates: Gates,
    settings: RunSettings,
) -> None:
    """Show what an upgrade would do and cost.

    With --target-quality, --require, --max-negative-flips or --sample also what it is expected to give: a sample is
    embedded with the target's model and not kept. Nothing is written, but for an artifact that --via names by its
    path: it is linked.
    """
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    with progress_bars("plan"):
        via = _link_first(opened, via, target, output)
        planned = opened.upgrade(
            target,
            transform=via,
            backfill=backfill,
            gates=gates,
            learn=_learning(refit, no_learn),
            run=settings,
            dry_run=True,
        )
    _show_plan(ctx, output, planned)


@verb(
    "upgrade",
    examples=(
        "upgrade notes.lance v2 --encoder model2vec:new-model",
        "upgrade photos.lance v2 --max-cost 50 --price-per-item 0.0001 --dry-run",
        "upgrade 'app-db#photos_*' v2 --backfill 0.25 --cutover",
    ),
    requests=_of_upgrade,
)
@gallery_argument
@click.argument("target")
@via_option
@refit_option
@no_learn_option
@target_encoder_option
@trust_code_option
@click.option("--dry-run", is_flag=True, help="Show the plan that this command would carry out, and stop.")
@click.option("--cutover", is_flag=True, help="Cut over when the upgrade is ready.")
@pass_output
@click.pass_context
def upgrade(
    ctx: click.Context,
    output: Output,
    gallery: str,
    target: str,
    via: str | None,
    refit: bool,
    no_learn: bool,
    encoder: str | None,
    trust_code: bool,
    dry_run: bool,
    cutover: bool,
    backfill: Backfill,
    gates: Gates,
    settings: RunSettings,
) -> None:
    """Give every item a vector in TARGET.

    The source's vectors stay as they are. Ctrl-C and SIGTERM finish the batch at hand. The same command again goes on
    where this one stopped; when all is done it does nothing. Searches use TARGET after a cutover.

    Where GALLERY is DATABASE#PATTERN, such as app-db#photos_*, all tables whose names match are upgraded as one:
    limits of items, seconds and money are of all together, a table that fails does not stop the others, and --cutover
    switches all or none.

    Where no artifact leads to TARGET, the upgrade learns one from what it embeds; --encoder registers a TARGET that is
    new. Without any limit a first sample is embedded, 2 % of the gallery, or everything if that takes less time than
    learning.
    """
    learning = _learning(refit, no_learn)

    def run(upgrading: Callable[..., Ended], via: str | None) -> Ended:
        aside = printed_aside(output.log)  # Ray tells on stdout of workers that were lost
        with aside, progress_bars("upgrade") as bars, stop_on_signals() as should_stop, output.noting_warnings():
            return upgrading(
                target,
                transform=via,
                backfill=backfill,
                gates=gates,
                learn=learning,
                run=settings,
                progress=onto(bars),
                should_stop=should_stop,
            )

    if is_pattern(gallery):
        if dry_run:
            require_one(gallery, "--dry-run")
        shards = open_shards(gallery, trust_code=trust_code, target=target, encoder=encoder)
        linked: list[str | None] = []

        def prepare(shard: Gallery) -> None:
            if encoder is not None:
                _register_first(shard, target, encoder, output)
            linked.append(_link_first(shard, via, target, output))

        prepare_each(shards, prepare)
        upgraded = run(shards.upgrade, next(iter(linked), via))
        output.show(upgraded, view)
        if cutover and not upgraded.failed:
            cut_over_shards(output, shards, target)
        ctx.exit(exit_code_of(upgraded))
    if encoder is not None and not dry_run:
        _register_first(open_gallery(gallery, trust_code=trust_code), target, encoder, output)
    if dry_run and encoder is not None:
        opened = open_gallery(gallery, trust_code=trust_code)
        if target not in opened.versions():
            with progress_bars("plan"):
                new = _as_asked(opened, target, encoder)
                planned = opened.upgrade(
                    new, transform=via, backfill=backfill, gates=gates, learn=learning, run=settings, dry_run=True
                )
            _show_plan(ctx, output, planned)
    opened = open_target(gallery, target, encoder, trust_code=trust_code)
    via = _link_first(opened, via, target, output)
    if dry_run:
        with progress_bars("plan"):
            planned = opened.upgrade(
                target, transform=via, backfill=backfill, gates=gates, learn=learning, run=settings, dry_run=True
            )
        _show_plan(ctx, output, planned)
    report = run(opened.upgrade, via)
    if not cutover:
        output.show(report, view)
        return
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = opened.cutover(target, progress=onto(bars), should_stop=should_stop)
    output.show({"upgrade": report, "cutover": switched}, _result_and_cutover)


def _show_plan(ctx: click.Context, output: Output, planned: Plan) -> None:
    """Show a plan and end the command; where a gate fails, so does the command."""
    output.show(planned, view)
    ctx.exit(0 if planned.estimate is None or planned.estimate.passed else GATE_FAILED)


@verb(
    "pause",
    examples=(
        "pause photos.lance v2",
        "pause photos.lance v2 --wait 0",
    ),
)
@gallery_argument
@click.argument("target")
@wait_option
@pass_output
@click.pass_context
def pause(ctx: click.Context, output: Output, gallery: str, target: str, wait: float) -> None:
    """Stop an upgrade that another process runs.

    That process finishes its batch, with --wait 0 after this command has ended. The same upgrade command goes on.
    """
    from compatstore.storage.catalog import Catalog
    from compatstore.storage.location import locate
    from compatstore.storage.store import Store
    from compatstore.upgrade.leases.stop_request import pause as request_stop

    paused = request_stop(Catalog(Store.open(locate(gallery))), target, wait=wait)
    output.show(paused, _paused)
    ctx.exit(0 if paused.stopped or not wait else BUSY)


def _learning(refit: bool, no_learn: bool) -> Learn | Refitter | None:
    """What --refit and --no-learn stand for.

    Raises:
        UsageError: Both are given.
    """
    if refit and no_learn:
        raise click.UsageError("--refit learns from what is embedded: leave --no-learn out.")
    if refit:
        from compatstore.trainers import Refit

        return Refit()
    if no_learn:
        return None
    from compatstore.trainers.pairs.learn import Learn

    return Learn()


def _register_first(gallery: Gallery, target: str, encoder: str, output: Output) -> None:
    """Register a target that the gallery does not know."""
    if target in gallery.versions():
        return
    active = gallery.version()
    gallery.register(_as_asked(gallery, target, encoder))
    output.note(f"Registered {target} with {encoder}, compared by {active.metric} as {active.name} is.")


def _as_asked(gallery: Gallery, target: str, encoder: str) -> EmbeddingVersion:
    """The version that `--encoder` makes of a name: compared and stored as the active one is."""
    from compatstore.cli.requests import VersionSettings

    active = gallery.version()
    return VersionSettings(encoder=encoder, metric=active.metric, dtype=active.dtype).version(target)


def _link_first(gallery: Gallery, via: str | None, target: str, output: Output) -> str | None:
    """Link an artifact that is given by its path; ids pass as they are."""
    if via is None or (_ARTIFACT_ID.fullmatch(via) and not exists(via)):
        return via
    from compatstore.artifacts import Artifact

    artifact = Artifact.load(via)
    if all(linked.id != artifact.id for linked in gallery.artifacts):
        # An artifact that was trained on bare files does not know its source: the upgrade's is the active version.
        source = gallery.active if artifact.manifest.source.fingerprint is None else None
        gallery.artifacts.link(artifact, source, target)
        output.note(f"Linked {via} as {artifact.short_id}.")
    return artifact.id


def _result_and_cutover(result: Mapping[str, Any]) -> Iterator[str | Table]:
    """What an upgrade and its cutover did."""
    from compatstore.upgrade.views.status import done_view

    yield from done_view(result["upgrade"])
    yield from switched_view(result["cutover"])


def _paused(result: Paused) -> Iterator[str | Table]:
    """What a pause did."""
    if not result.holder:
        yield f"nobody works on {result.target}"
    elif result.stopped:
        yield f"{result.holder} has stopped; go on: compatstore upgrade GALLERY {result.target}"
    else:
        yield f"{result.holder} was asked to stop, and has not yet"
