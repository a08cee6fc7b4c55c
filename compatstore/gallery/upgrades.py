"""The life of an upgrade, from its plan to the end of the source."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

from compatstore.artifacts import Artifact
from compatstore.artifacts.network import PrecisionRequest
from compatstore.digests import require_fingerprint
from compatstore.errors import InvalidInput
from compatstore.gallery.core import verbs
from compatstore.gallery.versions import Artifacts, VersionVerbs
from compatstore.trainers.pairs.learn import Learn
from compatstore.upgrade.progress import Observer, OnProgress
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.versions import EmbeddingVersion

if TYPE_CHECKING:
    from compatstore.upgrade.context import UpgradeContext
    from compatstore.upgrade.engines.engine import Engine
    from compatstore.upgrade.plan import Plan
    from compatstore.upgrade.run import UpgradeResult
    from compatstore.upgrade.states import VersionChange

LEARN = Learn()
NEW_NAME = "It is another model: give the version a name of its own."


@verbs()
class UpgradeVerbs(VersionVerbs):
    """Upgrading. A part of `compatstore.Gallery`."""

    @overload
    def upgrade(
        self,
        target: str | EmbeddingVersion,
        *,
        transform: Artifact | str | os.PathLike[str] | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | None = LEARN,
        run: RunSettings | None = None,
        dry_run: Literal[False] = False,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> UpgradeResult: ...

    @overload
    def upgrade(
        self,
        target: str | EmbeddingVersion,
        *,
        transform: Artifact | str | os.PathLike[str] | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | None = LEARN,
        run: RunSettings | None = None,
        dry_run: Literal[True],
        progress: OnProgress = None,
    ) -> Plan: ...

    def upgrade(
        self,
        target: str | EmbeddingVersion,
        *,
        transform: Artifact | str | os.PathLike[str] | None = None,
        backfill: float | Backfill | None = None,
        gates: Gates | None = None,
        learn: Learn | None = LEARN,
        run: RunSettings | None = None,
        dry_run: bool = False,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> UpgradeResult | Plan:
        """Give every item a vector in the target version, without touching the source's.

        Hop by the linked artifact, embed a share natively, and wait for `cutover`. The same call again continues a
        stopped or killed one; when all is done it does nothing.

        Args:
            target: A registered version, or a new one, which is registered first.
            transform: The artifact to use: itself or its path, and it is linked first; or the id of a linked one (its
                first digits do). By default the one that leads there.
            backfill: Share of the gallery to embed natively, from 0 to 1, or `Backfill` with other limits, the order
                and the write mode. Fields that a call leaves out keep their earlier values.
            gates: Quality gates of the upgrade: `Gates(target_quality=0.98)` takes the smallest backfill that
                reaches it. The estimate is made from a sample before anything is written. `Gates(serving="fused")`
                estimates fused search, and enables it when the upgrade is ready.
            learn: Self-training on the backfilled items. `Learn()`: if no artifact leads to the target and the target
                has an encoder, the upgrade is self-training. It embeds a random sample, trains on it, evaluates the
                serving, hops, and goes on in waves until the budget or the target quality is reached; without any limit
                it embeds the first sample alone, or everything if that takes less time than learning. Searches are
                fused once that is significantly better. `Learn(improve=True)`: an artifact that leads to the target is
                only the first transform of such an upgrade, which takes a correction of it or another transform that is
                better. None: nothing, and an upgrade without an artifact is refused.
            run: Engine; device and precision of the hop; batches, retries and pace of the backfill.
            dry_run: Return the actions, cost and expected quality of the call; nothing is written. Gates
                are estimated from a sample, which is embedded natively and not kept; `estimate.passed` shows whether
                they hold.
            progress: Called after each batch.
            should_stop: Called before each batch.

        Returns:
            The result; the plan, with its steps, if `dry_run` is true.

        Raises:
            NotFound: There is no such version. No artifact leads there.
            InvalidInput: A setting is out of its range, or both a share and a target quality are named.
            UpgradeError: The target has no encoder for the backfill. The cluster cannot be started or reached, or loses
                its workers again and again.
            GateFailed: The estimate does not pass, or nothing beats the status quo; nothing was written.
            EncoderFailed: The encoder hangs, or embeds nothing at all.
            MissingExtra: The engine is not installed.
            LeaseHeld: Another process works on this upgrade.
            LeaseLost: Another process took it over, because this one was suspended or cut off for long.
            Interrupted: `should_stop` returned True, or another process requested a pause.

        Examples:
            >>> [(step.name, step.rows) for step in gallery.upgrade("v2", backfill=0.5, dry_run=True).steps]
            [('expand', 0), ('hop', 6), ('backfill', 3), ('catch-up', 0), ('cutover', 0)]
            >>> report = gallery.upgrade("v2", backfill=0.5)
            >>> report.state, report.transformed, report.backfilled
            ('ready', 6, 3)
        """
        from compatstore.stores import link
        from compatstore.upgrade.estimates.estimate import agree, require_within_reach, save_estimate
        from compatstore.upgrade.estimates.fusing import serve_as_asked
        from compatstore.upgrade.leases.holding import hold_lease
        from compatstore.upgrade.resolve import resolve_run
        from compatstore.upgrade.run import Controls, require_startable, run_upgrade

        request, terms = _requested(backfill, gates)  # refused before anything is registered or linked
        settings, via = run or RunSettings(), _id_of(transform)
        resolved = partial(resolve_run, via=via, learner=learn)
        if dry_run:
            catalog = self._catalog if isinstance(target, str) else self._catalog.supposing(target)
            name = target if isinstance(target, str) else target.name
            context = resolved(catalog, name, backfill=request)
            planned_steps = _plan(context, terms, settings.precision, progress)
            return link.planned(catalog, name, planned_steps)
        if isinstance(target, EmbeddingVersion):
            if target.name in self.versions():
                known = self.version(target.name, encoders=False)
                require_fingerprint(f"upgrade to {target.name}", known.fingerprint, target.fingerprint, NEW_NAME)
                self._catalog.use_encoders(target)
            else:
                self.register(target)
            target = target.name
        if via != transform:
            Artifacts(self._catalog).link(transform)
        planned = resolved(self._catalog, target, backfill=request)  # refuses before anything is written
        require_startable(planned, terms)
        estimate = agree(planned, terms, progress) if terms.asked and not planned.run.teaches else None
        if estimate is not None and terms.target_quality is not None:
            require_within_reach(planned, estimate)
            request = replace(request, share=estimate.share)
        caller = Observer(progress, should_stop)
        with (
            link.follow(self._catalog, target, caller) as caller,
            _engine_of(settings) as engine,
            hold_lease(self._catalog, target, "upgrade", caller) as work,
        ):
            controls = Controls(
                work.progress, work.should_stop, settings=settings, engine=engine, learner=learn, gates=terms
            )
            if estimate is not None:
                save_estimate(work.catalog, target, estimate)
            report = run_upgrade(resolved(work.catalog, target, backfill=request), controls)
            if not planned.run.teaches:
                serve_as_asked(work.catalog, target, terms)
        return self._tended(report)

    def cutover(
        self,
        target: str,
        *,
        force: bool = False,
        serving: Literal["target", "fused"] | None = None,
        weight: float | None = None,
        dry_run: bool = False,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> VersionChange:
        """Make an upgrade's target the active version; atomic.

        Args:
            target: The upgrade's target.
            force: Cut over while rows have no vector in it; searches will not find them.
            serving: "fused": searches are fused, as `evaluate(weight="best")` chose. "target": they use
                the target alone. By default they go on as before the cutover.
            weight: With "fused", the weight of the target's distances, from 0 to 1, in place of the chosen one.
            dry_run: Only count the rows that have no vector in the target (`missing`); nothing is switched.
            progress: Called after each batch of the catch-up.
            should_stop: Called before each batch, until the switch.

        Raises:
            UpgradeError: The upgrade is not ready, or no fusion was chosen for it. Rows have no vector in the target,
                and `force` is false.
            LeaseHeld: Another process works on it.
            Interrupted: `should_stop` returned True, or another process requested a pause; nothing was switched.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> gallery.cutover("v2", dry_run=True).missing
            0
            >>> gallery.cutover("v2").active
            'v2'
        """
        from compatstore.stores import link
        from compatstore.upgrade.cutover import check_cutover, cut_over
        from compatstore.upgrade.estimates.fusing import choose_serving
        from compatstore.upgrade.estimates.trial import SampleSettings
        from compatstore.upgrade.run import Controls
        from compatstore.upgrade.states import VersionChange

        if dry_run:
            active = self._catalog.recorded().active
            return VersionChange(active, active, check_cutover(self._catalog, target), changed=False)
        if weight is not None:
            if serving != "fused":
                operation = f"cut over to {target}"
                raise InvalidInput(operation, expected='serving="fused" with a weight', found=f"serving={serving!r}")
            choose_serving(self._catalog, target, SampleSettings(sample=1000), weight)
        controls = Controls(progress, should_stop)
        cut = partial(cut_over, self._catalog, target, serving=serving, controls=controls)
        caller, catch_up = Observer(progress, should_stop), partial(cut, force=True)
        return self._tended(link.switch(self._catalog, target, caller, partial(cut, force=force), catch_up))

    def abort(self, target: str, *, wait: float = 60.0) -> VersionChange:
        """End an upgrade that has not cut over and drop the target's vectors; the version stays registered.

        Args:
            target: The upgrade's target.
            wait: Seconds that a process at work on it has for finishing its batch.

        Raises:
            UpgradeError: There is none, it has cut over, or items have a vector in the target only.
            LeaseHeld: The process at work on it did not stop in time.

        Examples:
            >>> gallery.upgrade("v2").state
            'ready'
            >>> "v2" in gallery.abort("v2").dropped
            True
        """
        from compatstore.stores import link
        from compatstore.upgrade.retire import abort

        return self._tended(link.abandon(self._catalog, target, lambda: abort(self._catalog, target, wait=wait)))

    def rollback(self, target: str | None = None) -> VersionChange:
        """Go back to the version before an upgrade; atomic, nothing is dropped, rows written since stay.

        Raises:
            UpgradeError: There is nothing to roll back.

        Examples:
            >>> _ = gallery.upgrade("v2"), gallery.cutover("v2")
            >>> gallery.rollback().active
            'v1'
        """
        from compatstore.stores import link
        from compatstore.upgrade.retire import roll_back

        with link.switch_back(self._catalog):
            change = roll_back(self._catalog, target)
        return self._tended(change)

    def retire(self, version: str, *, drop_adopted: bool = False, force: bool = False) -> VersionChange:
        """Drop a version's vectors for good; with an upgrade's target before its cutover, abandon that upgrade.

        New and changed rows since the cutover are caught up with first. Apps that still write this version's vectors
        behind the gallery's back must stop before: later writes would go unnoticed.

        Args:
            version: A version that is not active.
            drop_adopted: Drop its vectors of the app too: the column of an adopted table, or of the store that the
                gallery mirrors.
            force: Do so while items have their only vector in it.

        Raises:
            UpgradeError: The version is active, or an upgrade reads it. Items have a vector in this version only, and
                `force` is false.

        Examples:
            >>> _ = gallery.upgrade("v2"), gallery.cutover("v2")
            >>> "v1" in gallery.retire("v1").dropped
            True
        """
        from compatstore.stores import link
        from compatstore.upgrade.retire import retire

        change = link.abandon(
            self._catalog,
            version,
            lambda: retire(self._catalog, version, drop_adopted=drop_adopted, force=force),
        )
        return self._tended(replace(change, store=link.settle(self._catalog, version, drop_source=drop_adopted)))


def _plan(context: UpgradeContext, terms: Gates, precision: PrecisionRequest, progress: OnProgress) -> Plan:
    """Steps and cost of an upgrade; read-only."""
    from compatstore.upgrade.estimates.estimate import estimate_upgrade, gate_of_reach
    from compatstore.upgrade.plan import make_plan

    if not terms.asked or context.run.teaches:  # nothing is known before there is something to learn from
        return make_plan(context, precision, progress)
    estimate = estimate_upgrade(context, terms, progress)
    if terms.target_quality is not None:
        context = context.with_run(replace(context.run, backfill=estimate.share))
        estimate = replace(estimate, gates=(*estimate.gates, *gate_of_reach(context, estimate)))
    return replace(make_plan(context, precision, progress), estimate=estimate)


def _requested(backfill: float | Backfill | None, gates: Gates | None) -> tuple[Backfill, Gates]:
    """The requests of a call, whole.

    Raises:
        InvalidInput: Both a share and a target quality are named.
    """
    request = backfill if isinstance(backfill, Backfill) else Backfill(share=backfill)
    terms = gates or Gates()
    if terms.target_quality is not None and request.share is not None:
        found = f"backfill={request.share:g} and target_quality={terms.target_quality:g}"
        raise InvalidInput("choose a backfill", expected="a share or a target quality", found=found)
    return request, terms


def _id_of(transform: Artifact | str | os.PathLike[str] | None) -> str | None:
    """The id of a transform that is named by an id, or its first digits; that of an artifact or of the path of one."""
    if transform is None or (isinstance(transform, str) and not os.path.exists(transform)):
        return transform
    return transform.id if isinstance(transform, Artifact) else Artifact.load(transform).id


def _engine_of(settings: RunSettings) -> AbstractContextManager[Engine]:
    """The engine for a block.

    Raises:
        MissingExtra: The engine is ray, and Ray is not installed.
    """
    from compatstore.upgrade.engines.engine import Engine
    from compatstore.upgrade.engines.ray_engine import RayEngine

    if settings.engine == "local":
        return nullcontext(Engine())
    on_gpu = settings.device is not None and settings.device != "cpu"
    return RayEngine(settings.address, settings.encoders or 1, settings.num_gpus, on_gpu)
