"""Gains of an upgrade: measured on a sample, chosen by it, and reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from compatstore.errors import InvalidInput, NotFound
from compatstore.gallery.core import verbs
from compatstore.gallery.searching import SearchVerbs
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Criterion, Gates
from compatstore.upgrade.requests.queries import Queries

if TYPE_CHECKING:
    from compatstore.evaluation import DecisionTable
    from compatstore.evaluation.fusion import Fusion
    from compatstore.evaluation.merging import Merge
    from compatstore.gallery.judging import Judging
    from compatstore.upgrade.estimates.reporting import UpgradeReport

NO_BACKFILL = Backfill()


@verbs()
class MeasuringVerbs(SearchVerbs):
    """Measuring upgrades. A part of `compatstore.Gallery`."""

    @overload
    def evaluate(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        sample: int | None = None,
        criterion: Criterion = "map",
        shares: Sequence[float] = (0.1, 0.25, 0.5),
        transform: str | None = None,
        backfill: Backfill = NO_BACKFILL,
        progress: OnProgress = None,
    ) -> DecisionTable: ...

    @overload
    def evaluate(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        sample: int | None = None,
        criterion: Criterion = "map",
        backfill: Backfill = NO_BACKFILL,
        weight: float | Literal["best"],
        progress: OnProgress = None,
    ) -> Fusion | Merge: ...

    def evaluate(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        sample: int | None = None,
        criterion: Criterion = "map",
        shares: Sequence[float] = (0.1, 0.25, 0.5),
        transform: str | None = None,
        backfill: Backfill = NO_BACKFILL,
        weight: float | Literal["best"] | None = None,
        progress: OnProgress = None,
    ) -> DecisionTable | Fusion | Merge:
        """Measure the gain of an upgrade on a sample, with intervals; read-only unless a weight is named.

        The measured ways to serve: status quo, naive swap, hop alone, backfills, fused search, full backfill.

        Args:
            target: A registered version.
            labels: Column of labels that define which items are correct for each other; or `Queries`: application
                queries instead of sampled items. Without either, the target's own results are taken as correct.
            sample: Items to look at, 2000 by default, 1000 to choose by; those that are not native in the target yet
                are embedded, and not kept.
            criterion: The figure that decides: "map", or "cmc@1" or "cmc@5" of the ways that need no backfill; with
                judgements also "recall@10", "ndcg@10" or "mrr@10".
            shares: Budgets of the backfill to show, in (0, 1), beside the one that is advised: more are compared.
            transform: Id of the linked artifact to use.
            backfill: Its `order` is that of the backfills that are measured, its `seed` that of the sample and of the
                bootstrap.
            weight: Fusion weight of the target's distances in fused searches during an upgrade,
                from 0 to 1, or "best" to choose it on the sample. It is stored, and the choice is returned in place of
                the table. From then on `search` serves a source, and queries in both versions, by it, before and after
                the cutover, until the source is retired: two embeddings and two searches a query. Where no weight is
                significantly better than the status quo, "best" is 0 and searches go on as before; weights for larger
                native shares are chosen too, for a later `upgrade` that backfills. In an upgrade without a hop each
                item is searched in one space: "best" calibrates the distances of the two lists, where they do not
                compare as they are, and measures the gain of their merge at the current native share: call it again
                after a backfill.
            progress: Called as the sample is embedded, as its queries search, and as weights are chosen.

        Raises:
            NotFound: There is no such version. No artifact leads there, and the target has no encoder. With one the
                source is compared with the target alone.
            UpgradeError: Too few items can be embedded natively; or there is no upgrade under way to choose for.
            InvalidInput: A setting is out of its range.

        Examples:
            >>> many = {f"more-{n}": row for n, row in enumerate(np.random.default_rng(0).standard_normal((100, 2)))}
            >>> lookup = cs.encoders.Precomputed({name: row[::-1] for name, row in many.items()})
            >>> sampled = cs.Gallery.create("many.lance", v1)
            >>> sampled.add({"id": list(many), "vector": list(many.values())}).rows
            100
            >>> sampled.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=lookup))
            >>> vectors = np.array(list(many.values()), np.float32)
            >>> pairs = Pairs(vectors, vectors[:, ::-1], source_version=v1, target_version=sampled.version("v2"))
            >>> _ = sampled.artifacts.link(Procrustes().fit(pairs).amended(seen=np.array([], np.uint64)))
            >>> sampled.evaluate("v2", sample=100).rows[0].name
            'status quo'
            >>> _ = sampled.upgrade("v2")
            >>> sampled.evaluate("v2", weight=0.5, sample=100).weight
            0.5
            >>> sampled.search({"v1": [0.0, 1.0], "v2": [1.0, 0.0]}, k=3).num_rows
            3
        """
        from compatstore.evaluation.advice import with_preference
        from compatstore.upgrade.estimates.fusing import choose_serving
        from compatstore.upgrade.estimates.side_by_side import preference_of
        from compatstore.upgrade.estimates.trial import SampleSettings, try_upgrade
        from compatstore.upgrade.resolve import resolve_run

        settings = SampleSettings(
            sample=sample if sample is not None else 2000 if weight is None else 1000,
            labels=labels,
            criterion=criterion,
            shares=tuple(shares),
            seed=backfill.seed or 0,
        )
        if weight is not None:
            return choose_serving(self._catalog, target, settings, None if weight == "best" else weight, progress)
        try:
            context = resolve_run(self._catalog, target, via=transform, backfill=Backfill(order=backfill.order))
        except NotFound as error:
            if error.kind != "artifact" or transform is not None or not self._catalog.can_embed(target):
                raise
            context = resolve_run(self._catalog, target, backfill=Backfill(share=1.0))
        table = try_upgrade(context, settings, progress).showing(settings.shares)
        return replace(table, advice=with_preference(table.advice, preference_of(self._catalog, target)))

    def report(
        self,
        target: str | None = None,
        *,
        sample: int | None = None,
        labels: str | Queries | None = None,
        criterion: Criterion = "map",
        measure: bool = True,
        details: Details | None = None,
        progress: OnProgress = None,
    ) -> UpgradeReport:
        """Report on an upgrade: history, estimates and measurements; read-only.

        The measurement is made on items that the estimate has not seen; those that are not native are embedded, and
        not kept.

        Args:
            target: The upgrade's target; of the last upgrade by default.
            sample: Items to measure with; by default as many as the estimate had, and none where there was none.
            labels: Column of labels, if `sample` is named; or `Queries`: application queries instead of sampled items.
            criterion: The figure that decides, where `sample` or queries are named.
            measure: Whether to measure.
            details: Details to report query by query, such as the queries that lose most; None for none.
            progress: Called as the measurement goes on.

        Raises:
            NotFound: There was no such upgrade.
            UpgradeError: Too few items can be measured with.
            InvalidInput: There is no such column.

        Examples:
            >>> _ = gallery.upgrade("v2")
            >>> gallery.report("v2", measure=False).target
            'v2'
        """
        from compatstore.upgrade.estimates.reporting import report_upgrade

        terms = Gates(sample=sample, labels=labels, criterion=criterion)
        return report_upgrade(
            self._catalog, target, terms, measure=measure, details=details, search=self.search, progress=progress
        )

    def judge(
        self, target: str, queries: str | PathLike[str] | Mapping[str, Any], num: int = 100, seed: int = 0
    ) -> Judging:
        """Compare the results of both versions side by side, without labels; read-only until the answers are saved.

        Each query searches the source alone, and the target as it is or would be served. Queries with the same top 10
        in both versions need no answer.

        Args:
            target: Target of the upgrade under way.
            queries: File or columns of the application's queries, as in `Queries`.
            num: Cases to draw from the queries whose top 10 differ, at random.
            seed: Seed of the draw, and of which version is on the left.

        Returns:
            The cases, which take answers of a person, of a page or of clicks.

        Raises:
            NotFound: There is no such version or file.
            UpgradeError: There is no upgrade under way, a version has no vectors, or the top 10 of all queries are the
                same.
            InvalidInput: The queries cannot be read or do not fit, or `num` is below 1.

        Examples:
            >>> _ = gallery.upgrade("v2")
            >>> queries = {"id": ["q1", "q2"], "v1": [[0.0, 1.0], [1.0, 1.2]], "v2": [[0.9, 0.1], [0.4, 3.0]]}
            >>> judging = gallery.judge("v2", queries)
            >>> judging.from_clicks({"q2": {"d": 3}})
            >>> judging.save().answered
            1
        """
        from compatstore.gallery.judging import Judging
        from compatstore.upgrade.estimates.side_by_side import search_side_by_side

        if num < 1:
            raise InvalidInput(f"judge the upgrade to {target}", expected="num >= 1", found=f"{num}")
        found = search_side_by_side(self._catalog, target, Queries(queries=queries), seed, self.search)
        return Judging(found, num, seed)
