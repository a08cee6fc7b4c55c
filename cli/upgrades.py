"""Verbs that work on an upgrade until it can cut over: upgrade, pause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

import compatstore as cs
from compatstore.cli.exit_codes import BUSY, GATE_FAILED, exit_code, stop_on_signals
from compatstore.cli.logs import printed_aside
from compatstore.cli.output import Output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.settings import SHARE, read_settings
from compatstore.cli.switching import cut_over_shards, is_pattern, of_one_gallery, open_shards, switched_view
from compatstore.cli.verb import (
    gallery_verb,
    open_gallery,
    settings_options,
    target_encoder,
    trust_code_option,
    wait_option,
)
from compatstore.errors import CompatStoreError
from compatstore.paths import exists
from compatstore.shown import Table, view

if TYPE_CHECKING:
    from compatstore.upgrade.leases.lease import Paused


Function = TypeVar("Function", bound=Callable[..., object])
Ended = TypeVar("Ended")  # result of an upgrade, of a gallery or of shards
_ARTIFACT_ID = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Learning of an upgrade.

    Args:
        learn: waves: if no artifact leads to TARGET, learn a transform from embedded items, round by round; improve:
            do so as well if one leads there, and take a correction of it or another transform if that is better;
            none: refuse if no artifact leads to TARGET.
    """

    learn: Literal["waves", "improve", "none"] = "waves"

    def learner(self) -> cs.Learn | None:
        """The same as Python's argument."""
        if self.learn == "none":
            return None

        return cs.Learn(improve=self.learn == "improve")


def settings_kinds() -> dict[str, type]:
    """Sections of a file of settings, named as the arguments of `Gallery.upgrade`."""
    return {"": Learning, "backfill": cs.Backfill, "gates": cs.Gates, "run": cs.RunSettings}


def upgrade_arguments(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `Gallery.upgrade`, from the options of costs, gates and settings of a verb."""
    own = {"share": "backfill", "max_cost": "max_cost", "price_per_item": "price_per_item"}
    given = {f"backfill.{name}": options[option] for name, option in own.items()}
    given["gates.require"] = options["require"] or None
    words, config = options["words"], options["config"]
    read = read_settings(settings_kinds(), config=config, words=words, given=given, where=where)
    return read | {"learn": read.pop("").learner()}


def budget_options(function: Function) -> Function:
    """Options of costs and gates that have a name of their own."""
    share = click.option(
        "--backfill", type=SHARE, metavar="SHARE", help="Share of the items to embed, such as 0.25 or 25%."
    )
    cost = click.option("--max-cost", type=float, metavar="MONEY", help="Most money to spend on embedding.")
    price = click.option(
        "--price-per-item",
        type=float,
        metavar="MONEY",
        help="Price of embedding an item, if the encoder does not report it.",
    )
    require = click.option(
        "--require",
        multiple=True,
        metavar="FIGURE>=VALUE",
        help="Gate: a figure that the sample must reach before any work.",
    )
    return share(cost(price(require(function))))


@gallery_verb(
    "upgrade",
    "upgrade notes.lance v2 --encoder model2vec:new-model",
    "upgrade photos.lance v2 --max-cost 50 --price-per-item 0.0001 --dry-run",
    "upgrade 'app-db#photos_*' v2 --backfill 25% --cutover",
    settings=settings_kinds,
    groups={
        "Model": ("given", "transform", "modules", "trust_code"),
        "Costs and gates": ("backfill", "max_cost", "price_per_item", "require", "words", "config"),
        "Run": ("dry_run", "cutover", "json", "log", "help"),
    },
)
@click.argument("target")
@click.option("--transform", metavar="ARTIFACT", help="Artifact to use: id, its first digits, or a path to link first.")
@trust_code_option
@budget_options
@settings_options
@click.option("--dry-run", is_flag=True, help="Show the plan that this command would carry out, and stop.")
@click.option("--cutover", is_flag=True, help="Cut over when the upgrade is ready.")
def upgrade(
    output: Output,
    gallery: str,
    target: str,
    transform: str | None,
    trust_code: bool,
    dry_run: bool,
    cutover: bool,
    **settings: Any,
) -> int:
    """Give every item a vector in TARGET.

    The source's vectors stay as they are. Ctrl-C and SIGTERM finish the current batch. The same command again continues
    this one; when all is done it does nothing. Searches use TARGET after a cutover.

    If GALLERY is DATABASE#PATTERN, such as app-db#photos_*, all tables whose names match are upgraded together:
    limits of items, seconds and money are of all together, a table that fails does not stop the others, and --cutover
    switches all or none.

    If no artifact leads to TARGET, the upgrade learns one from the items it embeds; --encoder registers a new TARGET.
    Without any limit a first sample is embedded, 2 % of the gallery, or everything if that takes less time than
    learning.

    With --dry-run nothing is written, but for an artifact that --transform names by its path: it is linked. With
    gates, the plan gives an estimate: a sample is embedded with the target's model and not kept.
    """
    arguments = upgrade_arguments("compatstore upgrade", settings)

    def run(upgrading: Callable[..., Ended], via: str | None) -> Ended:
        aside = printed_aside(output.log)  # Ray prints the loss of workers on stdout
        with aside, progress_bars("upgrade") as bars, stop_on_signals() as should_stop, output.noting_warnings():
            return upgrading(target, transform=via, **arguments, progress=onto(bars), should_stop=should_stop)

    if is_pattern(gallery):
        if dry_run:
            raise of_one_gallery("--dry-run", gallery)
        shards = open_shards(gallery, trust_code=trust_code, target=target)
        linked = transform
        for address in shards.addresses:
            with suppress(CompatStoreError):  # the upgrade reports a shard that fails
                shard = open_gallery(address, trust_code=False)
                _register_first(shard, target, output)
                linked = _link_first(shard, transform, target, output)
        upgraded = run(shards.upgrade, linked)
        output.show(upgraded, view)
        if cutover and not upgraded.failed:
            cut_over_shards(output, shards, target)
        return next((exit_code(shard.error) for shard in upgraded.shards if shard.error is not None), 0)
    opened = open_gallery(gallery, trust_code=trust_code)
    goal: str | cs.EmbeddingVersion = target
    if dry_run and target not in opened.versions() and (new := _as_asked(opened, target)) is not None:
        goal = new
    else:
        if not dry_run:
            _register_first(opened, target, output)
        opened = open_gallery(gallery, trust_code=trust_code, target=target)
        transform = _link_first(opened, transform, target, output)
    if dry_run:
        with progress_bars("plan") as bars:
            planned = opened.upgrade(goal, transform=transform, **arguments, dry_run=True, progress=onto(bars))
        output.show(planned, view)
        return 0 if planned.estimate is None or planned.estimate.passed else GATE_FAILED
    report = run(opened.upgrade, transform)
    if not cutover:
        output.show(report, view)
        return 0
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = opened.cutover(target, progress=onto(bars), should_stop=should_stop)
    from compatstore.upgrade.views import done_view

    parts = [*done_view(report), *switched_view(switched)]
    output.show({"upgrade": report, "cutover": switched}, lambda _: parts)
    return 0


@gallery_verb("pause", "pause photos.lance v2", "pause photos.lance v2 --wait 0")
@click.argument("target")
@wait_option
def pause(output: Output, gallery: str, target: str, wait: float) -> int:
    """Stop an upgrade that another process runs.

    That process finishes its batch, with --wait 0 after this command has ended. The same upgrade command goes on.
    """
    from compatstore.storage.catalog import Catalog
    from compatstore.storage.location import locate
    from compatstore.storage.store import Store
    from compatstore.upgrade.leases.lease import pause as request_stop

    paused = request_stop(Catalog(Store.open(locate(gallery))), target, wait=wait)
    output.show(paused, _paused)
    return 0 if paused.stopped or not wait else BUSY


def _register_first(gallery: cs.Gallery, target: str, output: Output) -> None:
    """Register a new target, if the command line names its model."""
    if target in gallery.versions() or (new := _as_asked(gallery, target)) is None:
        return
    gallery.register(new)
    active = gallery.version()
    output.note(f"Registered {target} with {target_encoder()}, compared by {active.metric} as {active.name} is.")


def _as_asked(gallery: cs.Gallery, target: str) -> cs.EmbeddingVersion | None:
    """The version that `--encoder` makes of a name: compared and stored as the active one is."""
    from compatstore.cli.versions import VersionSettings

    encoder, active = target_encoder(), gallery.version()
    if encoder is None:
        return None
    return VersionSettings(encoder=encoder, metric=active.metric, dtype=active.dtype).version(target)


def _link_first(gallery: cs.Gallery, via: str | None, target: str, output: Output) -> str | None:
    """Link an artifact that is given by its path; ids pass as they are."""
    if via is None or (_ARTIFACT_ID.fullmatch(via) and not exists(via)):
        return via

    artifact = cs.Artifact.load(via)
    if all(linked.id != artifact.id for linked in gallery.artifacts):
        # An artifact that was trained on bare files does not know its source: the upgrade's is the active version.
        source = gallery.active if artifact.manifest.source.fingerprint is None else None
        gallery.artifacts.link(artifact, source, target)
        output.note(f"Linked {via} as {artifact.short_id}.")
    return artifact.id


def _paused(result: Paused) -> Iterator[str | Table]:
    """Result of a pause."""
    if not result.holder:
        yield f"no process works on {result.target}"
    elif result.stopped:
        yield f"{result.holder} has stopped; go on: compatstore upgrade GALLERY {result.target}"
    else:
        yield f"{result.holder} has been requested to stop, and still runs"
