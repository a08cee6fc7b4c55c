"""Galleries that are upgraded together: a table for each tenant, or for each day.

A shard is a gallery of its own, which is searched and written as before. What shards share is an upgrade: one budget,
one status, and one rule for the cutover. A shard that fails does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from compatstore import next_step
from compatstore.boundary import checked
from compatstore.encoders import Encoder
from compatstore.errors import CompatStoreError, Interrupted, InvalidInput, NotFound, UpgradeError, first_offenders
from compatstore.gallery import Gallery
from compatstore.gallery.upgrades import LEARN
from compatstore.shards.results import (
    ShardsStatus,
    ShardsSwitched,
    ShardStatus,
    ShardsUpgrade,
    ShardUpgrade,
    SharedBudget,
    both,
    summed,
    sums,
    total,
    unready,
)
from compatstore.storage.location import is_pattern, locate
from compatstore.storage.store import matching
from compatstore.trainers.pairs.learn import Learn
from compatstore.upgrade.progress import OnProgress, Progress
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.status import Status

__all__ = ["ShardStatus", "ShardUpgrade", "Shards", "ShardsStatus", "ShardsSwitched", "ShardsUpgrade"]


@checked
class Shards:
    """Galleries whose upgrade is one.

    Args:
        addresses: Addresses of the galleries, at least one; each is opened when it is its turn.
        encoders: Encoders by version name, where only this program can make them.
        trust_code: Build encoders that a gallery names as Python code or as an address.
        storage_options: Options of the object store.

    Raises:
        InvalidInput: There is no address, or two of one table.

    Examples:
        >>> clip = cs.EmbeddingVersion("v1", dim=2, model="clip@2021")
        >>> for day in ("01", "02"):
        ...     shard = cs.Gallery.create(f"app-db#photos_{day}", clip)
        ...     _ = shard.add({"id": ["a"], "vector": np.ones((1, 2), np.float32)})
        >>> shards = cs.Shards.open("app-db#photos_*")
        >>> shards.addresses
        ('app-db#photos_01', 'app-db#photos_02')
        >>> shards.status("v1").rows
        2
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        encoders: Mapping[str, Encoder] | None = None,
        trust_code: bool = False,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        operation, spelled = "take galleries as shards", dict[str, str]()
        if not addresses:
            raise InvalidInput(operation, expected="different addresses, at least one", found="none")
        for address in addresses:  # two spellings of one table are one
            location = locate(address, storage_options)
            place = os.path.realpath(location.uri) if location.is_local else location.uri.rstrip("/")
            if place in spelled:
                found = f"{spelled[place]} and {address}, which are one"
                raise InvalidInput(operation, expected="a table once", found=found)
            spelled[place] = address
        self.addresses = tuple(addresses)
        self._encoders, self._trust_code, self._options = encoders, trust_code, storage_options

    @classmethod
    def open(
        cls,
        pattern: str,
        *,
        encoders: Mapping[str, Encoder] | None = None,
        trust_code: bool = False,
        storage_options: dict[str, str] | None = None,
    ) -> Self:
        """The tables of a database whose names match a pattern, in the order of their names.

        Args:
            pattern: `DATABASE#photos_*`: `*` stands for any characters, `?` for one, `[abc]` for one of these.
            encoders: Encoders by version name, where only this program can make them.
            trust_code: Build encoders that a gallery names as Python code or as an address.
            storage_options: Options of the object store.

        Raises:
            InvalidInput: It names no database, or has no pattern behind the `#`.
            NotFound: No table matches.
            StorageError: The database cannot be listed.
        """
        operation = f"open the shards {pattern}"
        if not is_pattern(pattern):
            raise InvalidInput(operation, expected="DATABASE#PATTERN, such as app-db#photos_*", found=pattern)
        found = matching(pattern, storage_options)
        if not found:
            raise NotFound(
                operation, expected="a table whose name matches", found="none in that database", kind="gallery"
            )
        return cls(found, encoders=encoders, trust_code=trust_code, storage_options=storage_options)

    def gallery(self, address: str) -> Gallery:
        """Open one shard.

        Raises:
            NotFound: It is gone.
            StorageError: It cannot be read.
        """
        return Gallery.open(
            address, encoders=self._encoders, trust_code=self._trust_code, storage_options=self._options
        )

    def upgrade(
        self,
        target: str,
        *,
        transform: str | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | None = LEARN,
        run: RunSettings | None = None,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> ShardsUpgrade:
        """Upgrade one shard after the other; see `Gallery.upgrade` for the steps of each.

        A share is of each shard. Limits of items, seconds and money are of all shards together, over all calls: each
        shard gets a part by its items, and the unused rest of one goes to the others. The part of a shard that failed
        is kept for it. The same call again goes on with the rest.

        Args:
            target: A version that every shard has registered.
            transform: Id of the artifact to use, in every shard.
            backfill: Share to embed natively, or a whole request.
            gates: Quality gates of each shard's upgrade; a shard that misses one counts as failed.
            learn: Self-training on the backfilled items, in each shard by itself.
            run: Engine, device, batches and pace.
            progress: Called after each batch; its `step` names the shard too.
            should_stop: Called before each batch; it stops all shards.

        Raises:
            Interrupted: `should_stop` returned True, or a pause of the shard at work was requested.
        """
        request = backfill if isinstance(backfill, Backfill) else Backfill(share=backfill)
        done: dict[str, ShardUpgrade] = {}
        budget = SharedBudget(request, {shard.gallery: shard for shard in self.status(target).shards})
        waiting = list(self.addresses)
        while waiting:
            parts, moved = budget.parts(waiting), False
            for address in waiting:
                report = None if progress is None else _naming(address, progress)
                try:
                    result = self.gallery(address).upgrade(
                        target,
                        transform=transform,
                        backfill=parts[address],
                        gates=gates,
                        learn=learn,
                        run=run,
                        progress=report,
                        should_stop=should_stop,
                    )
                except Interrupted:
                    raise
                except CompatStoreError as error:
                    done[address] = ShardUpgrade(address, None, error)
                    budget.keep(address, parts[address])
                else:
                    done[address] = ShardUpgrade(address, both(done.get(address), result), None)
                    budget.spent[address], moved = result.spent, moved or result.backfilled > 0
            waiting = [address for address in waiting if moved and budget.has_rest and done[address].used_up]
        return summed(target, [done[address] for address in self.addresses])

    def status(self, target: str | None = None) -> ShardsStatus:
        """State of the upgrade of all shards to a target; read-only. A shard that cannot be read says why.

        Args:
            target: The version; by default that of the only upgrade there is, else the active one.

        Raises:
            InvalidInput: No target is named, and the shards have several upgrades, or several active versions.
        """
        read: dict[str, Status | CompatStoreError] = {}
        for address in self.addresses:
            try:
                read[address] = self.gallery(address).status()
            except CompatStoreError as error:
                read[address] = error
        if target is None:
            target = _only_target([found for found in read.values() if isinstance(found, Status)])
        shards = tuple(_status_of(address, found, target) for address, found in read.items())
        return ShardsStatus(
            target=target,
            **sums(shards, "rows", "native", "transformed", "missing"),
            spent=total(shard.spent for shard in shards),
            can_cut_over=not unready(shards, target),
            shards=shards,
        )

    def cutover(
        self,
        target: str,
        *,
        force: bool = False,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> ShardsSwitched:
        """Make a target the active version of all shards, or of none.

        Each shard's switch is atomic; between the first and the last one some use the target already. Shards that lack
        vectors come first, so that refusals come before any switch. Where one fails, those that this
        call has switched are rolled back. Killed in between, the same call again switches the rest.

        Args:
            target: The upgrade's target.
            force: Cut over while rows have no vector in it; every shard must be ready also then.
            progress: Called after each batch of the catch-up.
            should_stop: Called before each batch.

        Raises:
            UpgradeError: A shard's upgrade is not ready; nothing was switched. Rows of a shard have no vector in the
                target, and `force` is false.
            Interrupted: `should_stop` said so while a shard was caught up with.
        """
        shards = self.status(target).shards
        waiting = unready(shards, target)
        if waiting:
            raise UpgradeError(
                f"cut {len(shards)} shards over to {target}",
                expected="all of them to be ready",
                found=first_offenders(waiting),
                fix=f"Run: {next_step.call('upgrade', target, on='shards')}",
            )
        before = tuple(shard.gallery for shard in shards if shard.active == target)
        rest = sorted((shard for shard in shards if shard.active != target), key=lambda shard: -shard.missing)
        switched: list[str] = []
        try:
            for address in (shard.gallery for shard in rest):
                report = None if progress is None else _naming(address, progress)
                self.gallery(address).cutover(target, force=force, progress=report, should_stop=should_stop)
                switched.append(address)
        except CompatStoreError:
            for address in reversed(switched):
                self.gallery(address).rollback(target)
            raise
        return ShardsSwitched(target, tuple(switched), before)

    def rollback(self, target: str) -> ShardsSwitched:
        """Go back to the version before in all shards that use the target.

        Where one fails that could be read, those before it are rolled back, and the same call again goes on.

        Raises:
            UpgradeError: None of them does, or a shard cannot be read, so that it may; nothing was switched.
        """
        shards = self.status(target).shards
        unread = [f"{shard.gallery}: {shard.error}" for shard in shards if not shard.active]
        if unread:
            raise UpgradeError(
                f"roll {target} back in {len(shards)} shards",
                expected="shards that can all be read",
                found=first_offenders(unread),
                fix=f"Check it: {next_step.call('verify')}; or roll the others back without it.",
            )
        using = [shard.gallery for shard in shards if shard.active == target]
        if not using:
            raise UpgradeError(f"roll {target} back", expected="a shard that uses it", found="none")
        changes = [self.gallery(address).rollback(target) for address in using]
        return ShardsSwitched(changes[0].active, tuple(using), tuple(a for a in self.addresses if a not in using))


def _status_of(address: str, found: Status | CompatStoreError, target: str) -> ShardStatus:
    """Status of an upgrade in one shard."""
    if isinstance(found, CompatStoreError):
        return ShardStatus(address, error=str(found))
    version = next((version for version in found.versions if version.name == target), None)
    if version is None:
        return ShardStatus(address, found.rows, found.active, missing=found.rows, error=f"{target} is not registered")
    native, transformed, missing = version.native, version.transformed, version.missing
    shard = ShardStatus(address, found.rows, found.active, native=native, transformed=transformed, missing=missing)
    run = next((run for run in found.upgrades if run.target == target), None)
    if run is None:
        return shard
    return replace(shard, state=run.state, doing=run.activity.doing, spent=run.spent, error=run.activity.error)


def _only_target(found: Sequence[Status]) -> str:
    """The target of the only upgrade that shards have, else their active version.

    Raises:
        InvalidInput: There are several.
    """
    targets = {run.target for status in found for run in status.upgrades} or {status.active for status in found}
    if len(targets) != 1:
        names = ", ".join(sorted(targets)) or "none that can be read"
        alone = next_step.call("status", at="DATABASE#TABLE")
        fix = f"Name one: shards.status(target); or look at a shard by itself: {alone}"
        raise InvalidInput("tell where shards are", expected="one upgrade in all of them", found=names, fix=fix)
    return targets.pop()


def _naming(address: str, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Progress that names the shard."""
    return lambda report: progress(replace(report, step=f"{address.rpartition('#')[2]}: {report.step}"))
