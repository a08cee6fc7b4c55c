"""What the verbs do where GALLERY stands for several tables of a database: `app-db#photos_*`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from compatstore.cli.exit_codes import exit_code, stop_on_signals
from compatstore.cli.output import Output
from compatstore.cli.progress import onto, progress_bars
from compatstore.cli.verb import build_encoder, open_gallery, target_encoder
from compatstore.errors import CompatStoreError, UpgradeError
from compatstore.shown import view

if TYPE_CHECKING:
    from compatstore.gallery import Gallery
    from compatstore.shards import Shards, ShardsUpgrade


def is_pattern(gallery: str) -> bool:
    """Whether an address stands for several tables; Lance is loaded for those with a `#` alone."""
    if "#" not in gallery:
        return False
    from compatstore.storage import location

    return location.is_pattern(gallery)


def open_shards(pattern: str, *, trust_code: bool, target: str | None = None) -> Shards:
    """Open the galleries that a pattern stands for, with the encoder of the target where one is named."""
    from compatstore.shards import Shards

    encoder = None if target is None else target_encoder()
    encoders = None if target is None or encoder is None else {target: build_encoder(encoder)}
    return Shards.open(pattern, encoders=encoders, trust_code=trust_code)


def require_one(gallery: str, what: str) -> None:
    """Refuse a pattern where only one gallery will do.

    Raises:
        UsageError: It is one.
    """
    if is_pattern(gallery):
        raise click.UsageError(f"{what} is of one gallery: name one of the tables that {gallery} stands for.")


def exit_code_of(upgraded: ShardsUpgrade) -> int:
    """0, or the code of the first shard that failed."""
    return next((exit_code(shard.error) for shard in upgraded.shards if shard.error is not None), 0)


def show_status(ctx: click.Context, output: Output, pattern: str, watch: float | None) -> None:
    """Show all shards, again and again where that was asked for until nobody works on any."""
    shards = open_shards(pattern, trust_code=False)
    while True:
        found = shards.status()
        if watch is not None and output.as_json:
            output.show_line(found)
        else:
            output.show(found, view)
        if watch is None:
            return
        if all(shard.doing != "running" for shard in found.shards):
            failed = any(shard.doing in ("failed", "interrupted") for shard in found.shards)
            ctx.exit(exit_code(UpgradeError("upgrade")) if failed else 0)
        time.sleep(watch)


def cut_over_shards(output: Output, shards: Shards, target: str, *, force: bool = False) -> None:
    """Cut all shards over, or none."""
    with progress_bars("cutover") as bars, stop_on_signals() as should_stop:
        switched = shards.cutover(target, force=force, progress=onto(bars), should_stop=should_stop)
    output.show(switched, view)


def prepare_each(shards: Shards, prepare: Callable[[Gallery], None]) -> None:
    """Do something with each shard by itself before its upgrade, which tells of those with which that fails."""
    for address in shards.addresses:
        with suppress(CompatStoreError):
            prepare(open_gallery(address, trust_code=False))
