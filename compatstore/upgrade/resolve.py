"""Resolve the run of an upgrade: its source, path and settings, new or taken from the run that is open; read-only."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from compatstore import next_step
from compatstore.artifacts.kinds import kind_named
from compatstore.errors import Incompatible, InvalidInput, NotFound, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import now
from compatstore.storage.records import OPEN, ArtifactRecord, RunRecord
from compatstore.storage.registry import Registry, bridge_to
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.backfilling.embeddable import expected_price
from compatstore.upgrade.backfilling.policies import SPREAD, require_policy, require_readable
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.states import EXPAND, ROLLED_BACK, run_of
from compatstore.upgrade.training_pairs import Learner


def resolve_run(
    catalog: Catalog,
    target: str,
    *,
    via: str | None = None,
    backfill: Backfill | None = None,
    learner: Learner | None = None,
) -> UpgradeContext:
    """Decide source, path, budget and order of a run, or take up the one that is open; read-only.

    Args:
        catalog: The gallery.
        target: Version to upgrade to.
        via: Id of the artifact to use.
        backfill: Backfill settings of the caller: limits, order, seed and write mode.
        learner: Fits a transform on backfilled items, if no artifact leads to the target or one is to be
            improved.

    Raises:
        InvalidInput: A setting is out of its range, or the target is active already and was not upgraded to.
        NotFound: There is no such version. No chain of artifacts leads to the target and not everything is embedded
            natively.
    """
    snapshot = catalog.store.snapshot()
    registry = catalog.registry(snapshot)
    registry.record(target)
    run = run_of(registry, target) or _begin(catalog, snapshot, target, via)
    settings = backfill or Backfill()
    run = settings.applied_to(run, _price(catalog, run, settings))
    require_policy(run.policy)
    context = UpgradeContext.of(catalog, run, snapshot)
    if learner is not None and _is_to_learn(context, learner, via):
        first = min(learner.first_rows(context.count()) / max(context.count(), 1), 1.0)
        if not run.teaches and not settings.order:
            run = replace(run, policy=SPREAD)
        full_backfill, given = _full_backfill(run, settings), run.given if run.teaches else _given(context, via)
        run = replace(run, teaches=True, backfill=run.backfill or first, full_backfill=full_backfill, given=given)
        context = context.with_run(replace(run, path=run.path or ((given,) if given else ())))
    context = context.with_run(replace(context.run, path=_path(context, via)))
    if context.run.backfill > 0:
        require_readable(context.run.policy, TableRows(context), learns=context.run.teaches)
    return context


def _price(catalog: Catalog, run: RunRecord, settings: Backfill) -> float | None:
    """The price of an item, if there is a limit of money, no price is set, and the encoder knows it."""
    limit = settings.max_cost if settings.names_a_limit else run.max_cost
    if limit is None or settings.price_per_item is not None or run.price_per_item is not None:
        return None
    return expected_price(UpgradeContext.of(catalog, run), catalog.encoder(run.target))


def _begin(catalog: Catalog, snapshot: Snapshot, target: str, via: str | None) -> RunRecord:
    registry = catalog.registry(snapshot)
    if registry.active == target:
        expected, fix = "another version than the active one", f"See: {next_step.call('status')}"
        raise InvalidInput(f"upgrade to {target}", expected=expected, found=f"{target} is active", fix=fix)
    run = RunRecord(
        target=target,
        source=_source(catalog, snapshot, target, via),
        previous=registry.active,
        path=(),
        state=EXPAND,
        backfill=0.0,
        policy="random",
        seed=0,
        started_at=now(),
    )
    former = registry.runs.get(target)
    if former is None or former.state != ROLLED_BACK or former.source != run.source:
        return run
    # The vectors are still there: it is the same upgrade, with its spending and serving mode.
    return replace(run, started_at=former.started_at, begun=former.begun, lease=former.lease, reads=former.reads)


def _source(catalog: Catalog, snapshot: Snapshot, target: str, via: str | None) -> str:
    """The version that the hop reads: the one that most items can be transformed from, and of these the best.

    The next artifact was not trained on transformed vectors. So a version that an artifact leads from to the target
    directly is better than a chain, of these the one with the most natives, and the active one at a tie.
    """
    registry, wanted = catalog.registry(snapshot), None if via is None else catalog.artifact_record(via).id
    paths = {}
    for record in registry.live:
        with suppress(NotFound):
            paths[record.name] = find_path(registry, record.name, target, wanted)

    def worth(name: str) -> tuple[int, bool, int, bool]:
        columns, path, count = registry.columns(name), paths[name], snapshot.count_rows
        needed = [columns.present, *([f"`{columns.side}` IS NOT NULL"] if path[0].reads_side and columns.side else [])]
        direct = len(path) == 1
        return count(" AND ".join(needed)), direct, count(columns.native) if direct else 0, name == registry.active

    candidates = [name for name, path in paths.items() if len(path) == 1 or name == registry.active]
    return max(candidates, key=worth, default=registry.active)


def _is_to_learn(context: UpgradeContext, learner: Learner, via: str | None) -> bool:
    """True if an upgrade has an encoder and no artifact, or one to improve, and is not to embed all at any cost."""
    registry, run = context.registry, context.run
    if run.teaches:
        return via is None or context.catalog.artifact_record(via).id == run.given
    everything = run.backfill == 1.0 and run.max_rows is None and run.max_seconds is None and run.max_cost is None
    if everything or context.catalog.encoder(run.target) is None:
        return False
    if learner.improve and _given(context, via):
        return True
    if run.path or via is not None or bridge_to(registry, run.target) is not None:
        return False
    with suppress(NotFound):
        find_path(registry, run.source, run.target, None)
        return False
    return True


def _given(context: UpgradeContext, via: str | None) -> str:
    """Id of the transform that leads to the target directly, or ""."""
    registry, run = context.registry, context.run
    wanted = None if via is None else context.catalog.artifact_record(via).id
    with suppress(NotFound):
        path = [registry.artifacts[one] for one in run.path] or find_path(registry, run.source, run.target, wanted)
        if len(path) == 1 and path[0].kind == "ForwardTransform":
            return path[0].id
    return ""


def _full_backfill(run: RunRecord, settings: Backfill) -> str:
    """`RunRecord.full_backfill` after a call: a share below 1 forbids a full backfill until other limits are named.

    Args:
        run: With the limits of the call applied.
        settings: The settings of the call.
    """
    if settings.names_a_limit:
        return "" if settings.allowed_share < 1 else run.full_backfill or OPEN
    return run.full_backfill if run.backfill else OPEN


def _path(context: UpgradeContext, via: str | None) -> tuple[str, ...]:
    registry, run = context.registry, context.run
    if via is None and (run.path or run.teaches):
        return run.path
    wanted = None if via is None else context.catalog.artifact_record(via).id
    if wanted is not None and wanted == run.given:
        return run.path
    if wanted is not None and kind_named(registry.artifacts[wanted].kind).acts_on == "query":
        _require_bridge(registry, run, wanted)
        return ()
    try:
        records = find_path(registry, run.source, run.target, wanted)
    except NotFound:
        if via is None and (run.backfill == 1.0 or bridge_to(registry, run.target) is not None):
            return ()
        raise
    path = tuple(record.id for record in records)
    if run.path and path != run.path:
        expected = f"the artifact that the upgrade began with ({run.path[-1][:12]})"
        fix = f"Finish it, or drop it first: {next_step.call('retire', run.target)}"
        raise UpgradeError(f"upgrade to {run.target} via {via}", expected=expected, found=f"{path[-1][:12]}", fix=fix)
    return path


def _require_bridge(registry: Registry, run: RunRecord, wanted: str) -> None:
    """Refuse an artifact that lets other queries search other vectors than this upgrade's."""
    artifact = registry.artifacts[wanted]
    if (artifact.source, artifact.target) != (run.source, run.target):
        operation = f"upgrade to {run.target} via {wanted[:12]}"
        expected = f"an artifact from {run.source} to {run.target}"
        raise Incompatible(operation, expected=expected, found=f"one from {artifact.source} to {artifact.target}")


def forward_artifacts(registry: Registry) -> list[ArtifactRecord]:
    """Linked artifacts that change gallery vectors, the latest linked first."""
    return [
        record for record in reversed(list(registry.artifacts.values())) if kind_named(record.kind).acts_on == "gallery"
    ]


def find_path(registry: Registry, source: str, target: str, via: str | None = None) -> tuple[ArtifactRecord, ...]:
    """The shortest chain of forward transforms, a direct one first.

    Every hop of a chain loses some quality (FCT, table 5), so a direct hop from stored native vectors is preferred. In
    a chain, an artifact that reads side-information follows one that writes it (g of FCT, section 4.4).

    Args:
        registry: The gallery's state.
        source: Version to start from.
        target: Version to reach.
        via: Id of the artifact that must be the last step, in full.

    Raises:
        NotFound: No chain connects the two.
        Incompatible: `via` does not lead to the target.
    """
    artifacts = forward_artifacts(registry)
    if via is not None and registry.artifacts[via].target != target:
        found = f"one to {registry.artifacts[via].target}"
        raise Incompatible(f"upgrade to {target} via {via[:12]}", expected=f"an artifact to {target}", found=found)
    last = {artifact.id for artifact in artifacts if artifact.target == target and via in (None, artifact.id)}
    path = _shortest(artifacts, source, last)
    if path is None:
        option = next_step.either(shell=" (--encoder)", python="")
        raise NotFound(
            f"find a path from {source} to {target}" + (f" via {via[:12]}" if via else ""),
            expected="a linked ForwardTransform, or a chain of them",
            found=_links(artifacts),
            fix=f"Train and link one: {next_step.training('fct')}, {next_step.call('link', next_step.ARTIFACT)}; or "
            f"give {target} an encoder{option}, and the upgrade trains on the items it embeds; or re-embed it all: "
            f"{next_step.call('upgrade', target, backfill=1.0)}",
            kind="artifact",
        )
    return path


def _shortest(
    artifacts: Sequence[ArtifactRecord], source: str, last: Collection[str]
) -> tuple[ArtifactRecord, ...] | None:
    """Breadth first, from the artifacts that start at the source to one of the last."""
    queue: deque[tuple[ArtifactRecord, ...]] = deque((artifact,) for artifact in artifacts if artifact.source == source)
    seen = {path[0].id for path in queue}
    while queue:
        path = queue.popleft()
        if path[-1].id in last:
            return path
        for artifact in artifacts:
            if artifact.id not in seen and _follows(artifact, path[-1]):
                seen.add(artifact.id)
                queue.append((*path, artifact))
    return None


def _follows(artifact: ArtifactRecord, before: ArtifactRecord) -> bool:
    return artifact.source == before.target and (before.writes_side or not artifact.reads_side)


def _links(artifacts: Sequence[ArtifactRecord]) -> str:
    sides = {
        (True, True): " (reads and writes side-information)",
        (True, False): " (reads side-information, writes none)",
        (False, True): " (writes side-information)",
    }
    links = [f"{a.source} -> {a.target}{sides.get((a.reads_side, a.writes_side), '')}" for a in artifacts]
    return ", ".join(links) or "none linked"
