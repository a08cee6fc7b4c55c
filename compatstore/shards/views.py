"""What people see of shards: a line for all, and a table with each."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore import next_step
from compatstore.shards.results import ShardsStatus, ShardsSwitched, ShardsUpgrade
from compatstore.shown import Table, table, view
from compatstore.upgrade.run import UpgradeResult


@view.register
def _(result: ShardsUpgrade) -> Iterator[str | Table]:
    """What was done with each shard, and what comes next."""
    yield (
        f"{result.target} of {len(result.shards)} shards: {result.ready} ready, {result.failed} failed; "
        f"{result.transformed} items transformed, {result.backfilled} embedded natively, {result.missing} missing"
    )
    yield table(
        ("shard", "state", "transformed", "embedded", "missing", "ended by", "error"),
        [
            (s.gallery, "failed", "", "", "", "", str(s.error))
            if s.result is None
            else (s.gallery, s.result.state, *_figures(s.result), s.result.ended_by, "")
            for s in result.shards
        ],
    )
    yield f"spent: {result.spent.rows} items, {result.spent.seconds:.1f} s, {result.spent.cost:g} in cost"
    if result.failed:
        yield f"{next_step.same()} tries the failed ones again: {next_step.call('upgrade', result.target, on='shards')}"
    elif result.ready == len(result.shards):
        yield f"next: {next_step.call('cutover', result.target, on='shards')}"


def _figures(result: UpgradeResult) -> tuple[int, int, int]:
    return result.transformed, result.backfilled, result.missing


@view.register
def _(result: ShardsStatus) -> Iterator[str | Table]:
    """All shards now."""
    yield (
        f"{len(result.shards)} shards, {result.rows} items; in {result.target}: {result.native} native, "
        f"{result.transformed} transformed, {result.missing} missing"
    )
    yield table(
        ("shard", "rows", "active", "state", "doing", "native", "transformed", "missing", "error"),
        [
            (s.gallery, s.rows, s.active, s.state, s.doing, s.native, s.transformed, s.missing, s.error)
            for s in result.shards
        ],
    )
    yield f"spent: {result.spent.rows} items, {result.spent.seconds:.1f} s, {result.spent.cost:g} in cost"
    yield f"a cutover {'can be made' if result.can_cut_over else 'would be refused: not all are ready'}"


@view.register
def _(result: ShardsSwitched) -> Iterator[str | Table]:
    """Which shards were switched."""
    yield f"{result.active} is active: {len(result.switched)} shards switched"
    if result.before:
        yield f"{len(result.before)} others were not touched"
