"""Verbs that say which version searches use, and that end one: cutover, rollback, abort, retire.

Also helpers for a GALLERY that matches several tables of a database: `app-db#photos_*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

import compatstore as cs
from compatstore.cli.exit_codes import exit_code, stop_on_signals
from compatstore.cli.output import Output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import gallery_verb, named_encoders, open_gallery, trust_code_option, wait_option
from compatstore.errors import UpgradeError
from compatstore.shown import Table, view

if TYPE_CHECKING:
    from compatstore.upgrade.states import VersionChange


@gallery_verb(
    "cutover", "cutover photos.lance v2", "cutover photos.lance v2 --check", "cutover photos.lance v2 --serving fused"
)
@click.argument("target")
@click.option("--check", is_flag=True, help="Only check if it is possible; exit code 7 if items are missing.")
@click.option("--force", is_flag=True, help="Do it while items have no vector in TARGET; searches will not find them.")
@click.option(
    "--serving",
    type=click.Choice(["fused", "target"]),
    help="fused: fused search over both versions, as `evaluate --weight` chose; target: TARGET alone. "
    "By default as before the cutover.",
)
@click.option(
    "--weight", type=float, metavar="W", help="With --serving fused: the weight of TARGET's distances, 0 to 1."
)
@trust_code_option
def cutover(
    output: Output,
    gallery: str,
    target: str,
    check: bool,
    force: bool,
    serving: Literal["fused", "target"] | None,
    weight: float | None,
    trust_code: bool,
) -> int:
    """Make TARGET the version that searches use; atomic.

    If GALLERY is DATABASE#PATTERN, all tables whose names match are switched, or none: refused while one of them is
    not ready.
    """
    if is_pattern(gallery):
        if check or serving is not None:
            raise of_one_gallery("--check" if check else "--serving", gallery)
        cut_over_shards(output, open_shards(gallery, trust_code=trust_code), target, force=force)
        return 0
    opened = open_gallery(gallery, trust_code=trust_code)
    if check:
        missing = opened.cutover(target, dry_run=True).missing
        message = f"{missing} items have no vector in {target}" if missing else f"{target} can cut over"
        output.show({"target": target, "missing": missing}, lambda _: [message])
        return exit_code(UpgradeError("cut over")) if missing else 0
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = opened.cutover(
            target, force=force, serving=serving, weight=weight, progress=onto(bars), should_stop=should_stop
        )
    output.show(switched, switched_view)
    return 0


@gallery_verb("rollback", "rollback photos.lance", "rollback photos.lance v2")
@click.argument("target", required=False)
def rollback(output: Output, gallery: str, target: str | None) -> None:
    """Go back to the version before an upgrade.

    Atomic; nothing is lost, and no process is waited for. TARGET is by default the active version, or else that of the
    only upgrade under way.
    """
    if is_pattern(gallery):
        shards = open_shards(gallery, trust_code=False)
        output.show(shards.rollback(target or shards.status().target), view)
        return
    output.show(open_gallery(gallery, trust_code=False).rollback(target), switched_view)


@gallery_verb("abort", "abort photos.lance v2")
@click.argument("target")
@wait_option
def abort(output: Output, gallery: str, target: str, wait: float) -> None:
    """End an upgrade before its cutover, and drop its vectors.

    A process that works on it finishes its batch and stops. TARGET stays registered; a new upgrade starts from nothing.
    """
    output.show(open_gallery(gallery, trust_code=False).abort(target, wait=wait), switched_view)


@gallery_verb("retire", "retire photos.lance v1", "retire app-db#photos v1 --drop-adopted")
@click.argument("version")
@click.option(
    "--drop-adopted",
    is_flag=True,
    help="Drop the vectors of the app too: the column of an adopted table, or of the database that is mirrored.",
)
@click.option("--force", is_flag=True, help="Do it while items have their only vector in VERSION.")
def retire(output: Output, gallery: str, version: str, drop_adopted: bool, force: bool) -> None:
    """Drop the vectors of VERSION for good.

    With the target of an upgrade that has not cut over, this abandons that upgrade.
    """
    opened = open_gallery(gallery, trust_code=False)
    output.show(opened.retire(version, drop_adopted=drop_adopted, force=force), switched_view)


def switched_view(result: VersionChange) -> Iterator[str | Table]:
    """Result of a cutover, rollback, abort or retire."""
    was = f", {result.previous} before" if result.previous != result.active else ""
    yield f"{result.active} is active{was}" if result.changed else f"{result.active} is active; nothing to do"
    if result.missing:
        yield f"{result.missing} items have no vector in {result.active}: searches do not find them"
    if result.dropped:
        yield f"dropped: {', '.join(result.dropped)}"
    alone = (f"{result.active} alone", f"{result.previous} alone")  # the first line has it already
    if result.serving != result.served_before and (result.serving, result.served_before) != alone:
        yield f"searches are answered by {result.serving} (before: {result.served_before})"
    if result.fusion_ended is not None:
        yield result.fusion_ended.loss or "the loss in quality by that was not measured"
    if result.store:
        yield result.store


def is_pattern(gallery: str) -> bool:
    """True if an address matches several tables; Lance is loaded for those with a `#` alone."""
    if "#" not in gallery:
        return False
    from compatstore.storage import location

    return location.is_pattern(gallery)


def open_shards(pattern: str, *, trust_code: bool, target: str | None = None) -> cs.Shards:
    """Open the galleries that match a pattern; arguments as of `open_gallery`."""
    return cs.Shards.open(pattern, encoders=named_encoders(trust_code, target), trust_code=trust_code)


def of_one_gallery(what: str, pattern: str) -> click.UsageError:
    """The error of an option that takes no pattern."""
    return click.UsageError(f"{what} is of one gallery: name one of the tables that match {pattern}.")


def cut_over_shards(output: Output, shards: cs.Shards, target: str, *, force: bool = False) -> None:
    """Cut all shards over, or none."""
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = shards.cutover(target, force=force, progress=onto(bars), should_stop=should_stop)
    output.show(switched, view)
