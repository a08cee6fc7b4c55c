"""What an upgrade gains: measured on a sample, chosen by it, and reported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from compatstore.errors import InvalidInput, NotFound
from compatstore.evaluation import DecisionTable
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Merge
from compatstore.gallery.core import verbs
from compatstore.gallery.searching import SearchVerbs
from compatstore.upgrade.estimates.details import details_of, require_columns
from compatstore.upgrade.estimates.fusing import choose_fusion, fusable, save_fusion
from compatstore.upgrade.estimates.merging import choose_merge, save_merge
from compatstore.upgrade.estimates.reporting import UpgradeReport, report_upgrade
from compatstore.upgrade.estimates.trial import SampleSettings, try_upgrade
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.gates import Criterion, Gates
from compatstore.upgrade.requests.queries import Queries, column_of
from compatstore.upgrade.resolve import resolve_run


@verbs()
class MeasuringVerbs(SearchVerbs):
    """Measuring upgrades. A part of `compatstore.Gallery`."""

    def evaluate(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        sample: int = 2000,
        criterion: Criterion = "map",
        shares: Sequence[float] = (0.1, 0.25, 0.5),
        transform: str | None = None,
        order: str | None = None,
        seed: int = 0,
    ) -> DecisionTable:
        """Measure on a sample what an upgrade gains, with intervals; read-only.

        The ways that are measured: status quo, naive swap, merges, hop alone, backfills, both versions searched as one,
        full backfill; and hop and backfills searched by expected distances, where the transform was measured for that.

        Args:
            target: A registered version.
            labels: Column that says which items are correct for each other; or `Queries`: the app's own queries ask in
                place of items. Without either, what the target itself finds is taken as correct.
            sample: Items to look at; those that are not native in the target yet are embedded, and not kept.
            criterion: The figure that decides: "map", or "cmc@1" or "cmc@5" of the ways that need no backfill; with
                judgements also "recall@10", "ndcg@10" or "mrr@10".
            shares: Budgets of the backfill to show, in (0, 1), beside the one that is advised: more are compared.
            transform: Id of the linked artifact to use.
            order: Order of the backfill, as in `Backfill`.
            seed: Of the sample and of the bootstrap.

        Raises:
            NotFound: There is no such version. No artifact leads there, and the target has no encoder. With one the
                source is compared with the target alone.
            UpgradeError: Too few items can be embedded natively.
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
            >>> _ = sampled.artifacts.link(Procrustes().fit(pairs).having_seen(np.array([], np.uint64)))
            >>> sampled.evaluate("v2", sample=100).rows[0].name
            'status quo'
        """
        try:
            context = resolve_run(self._catalog, target, via=transform, backfill=Backfill(order=order))
        except NotFound as error:
            if error.kind != "artifact" or transform is not None or not self._catalog.can_embed(target):
                raise
            context = resolve_run(self._catalog, target, backfill=Backfill(share=1.0))
        settings = SampleSettings(
            sample=sample,
            labels=labels,
            criterion=criterion,
            shares=tuple(shares),
            seed=seed,
            expected_shares=(0.0, *shares),
        )
        return try_upgrade(context, settings).showing(settings.shares)

    def fuse(
        self,
        target: str,
        *,
        labels: str | Queries | None = None,
        criterion: Criterion = "map",
        sample: int = 1000,
        weight: float | None = None,
        seed: int = 0,
    ) -> Fusion | Merge:
        """Choose how an upgrade is served by both of its versions as one, on a sample, and store it.

        From then on `search` serves a source, and queries in both versions, by the fusion, before and after the
        cutover, until the source is retired. Where no weight is surely better than the status quo, the weight is 0 and
        searches go on as before. Weights for larger native shares are chosen too: a later `upgrade` that backfills
        takes the one for the share that it has reached. It costs two embeddings and two searches for a query.

        In an upgrade without a hop each item is searched in one space, native ones in the target's. Then a merge of the
        two lists is chosen, by distance, by calibrated distance or by reciprocal rank, and every search of both spaces
        uses it. Where an artifact adapts the target's queries to the source, a query of the target is enough.

        Args:
            target: The target of an upgrade under way.
            labels: Column that says which items are correct for each other; or `Queries`: the app's own queries ask in
                place of items. Without either, what the target itself finds is taken as correct.
            criterion: The figure that decides: "map"; or of a sample that is the whole gallery "cmc@1" or "cmc@5", and
                with judgements "recall@10", "ndcg@10" or "mrr@10".
            sample: Items to look at; those that are not native in the target yet are embedded, and not kept.
            weight: Weight of the target's distances, from 0 to 1: the sample gives what makes the distances comparable,
                and what that weight gains. Not without a hop.
            seed: Of the sample and of the bootstrap.

        Returns:
            The fusion that is stored, with its choices, or without a hop the merge.

        Raises:
            NotFound: There is no such version.
            UpgradeError: No upgrade to it is under way, or too few items can be embedded natively.
            InvalidInput: A setting is out of its range, or there is no such column of labels.

        Examples:
            >>> many = {f"more-{n}": row for n, row in enumerate(np.random.default_rng(0).standard_normal((100, 2)))}
            >>> lookup = cs.encoders.Precomputed({name: row[::-1] for name, row in many.items()})
            >>> sampled = cs.Gallery.create("fused.lance", v1)
            >>> sampled.add({"id": list(many), "vector": list(many.values())}).rows
            100
            >>> sampled.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=lookup))
            >>> vectors = np.array(list(many.values()), np.float32)
            >>> pairs = Pairs(vectors, vectors[:, ::-1], source_version=v1, target_version=sampled.version("v2"))
            >>> _ = sampled.artifacts.link(Procrustes().fit(pairs).having_seen(np.array([], np.uint64)))
            >>> _ = sampled.upgrade("v2")
            >>> sampled.fuse("v2", weight=0.5, sample=100).weight
            0.5
            >>> sampled.search({"v1": [0.0, 1.0], "v2": [1.0, 0.0]}, k=3).num_rows
            3
        """
        context = fusable(self._catalog, target)
        settings = SampleSettings(sample=sample, labels=labels, criterion=criterion, seed=seed)
        whole = not context.count(f"({context.source.present}) AND ({context.target.native}) IS NOT TRUE")
        if context.run.path or whole:
            fusion = choose_fusion(context, settings, weight)
            save_fusion(self._catalog, context.run, fusion, column_of(labels))
            return fusion
        if weight is not None:
            asked = f"weigh {context.run.source} and {target}"
            raise InvalidInput(asked, expected="an upgrade with a hop", found="one that transforms nothing")
        merge = choose_merge(context, settings)
        save_merge(self._catalog, context.run, merge, column_of(labels))
        return merge

    def report(
        self,
        target: str | None = None,
        *,
        sample: int | None = None,
        labels: str | Queries | None = None,
        criterion: Criterion = "map",
        measure: bool = True,
        details: Details | None = None,
    ) -> UpgradeReport:
        """All there is to say of an upgrade, with what was estimated beside what is measured; read-only.

        The measurement is made on items that the estimate has not seen; those that are not native are embedded, and
        not kept.

        Args:
            target: The upgrade's target; of the last upgrade by default.
            sample: Items to measure with; by default as many as the estimate had, and none where there was none.
            labels: Column of labels, where `sample` is named; or `Queries`: the app's own queries ask in place of
                items.
            criterion: The figure that decides, where `sample` or queries are named.
            measure: Whether to measure at all.
            details: What to tell query by query, such as the queries that lose most; nothing where it is None.

        Raises:
            NotFound: There was no such upgrade.
            UpgradeError: Too few items can be measured with.
            InvalidInput: There is no such column.

        Examples:
            >>> _ = gallery.upgrade("v2")
            >>> gallery.report("v2", measure=False).target
            'v2'
        """
        asked = Gates(sample=sample, labels=labels, criterion=criterion)
        if details is not None:
            require_columns(details, self._catalog.store.snapshot().schema.names)
        seen = None if details is None else partial(details_of, details=details, search=self.search)
        return report_upgrade(self._catalog, target, asked, measure=measure, details=seen)
