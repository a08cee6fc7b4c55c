"""Searches of a gallery, and a version in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compatstore.arrays import ArrowTable
from compatstore.evaluation.fusion import Serving
from compatstore.gallery.core import GalleryCore, verbs
from compatstore.search.condition import joined
from compatstore.search.plan import SearchPlan
from compatstore.search.scan import require_count, result_columns, whole_columns, with_fields
from compatstore.search.serving import plan_serving, read_served, require_fingerprints, search_planned
from compatstore.storage.app_columns import refuse_distance
from compatstore.storage.records import SearchSettings
from compatstore.storage.registry import Registry
from compatstore.stores.candidates import StoreIndexes
from compatstore.upgrade.requests.cascade import Cascade

if TYPE_CHECKING:
    from compatstore.search.cache import Cache
    from compatstore.search.cascade import QueryPlan


@verbs()
class SearchVerbs(GalleryCore):
    """Searching. A part of `compatstore.Gallery`."""

    def search(
        self,
        query: Any,
        k: int = 10,
        version: str | None = None,
        where: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        fingerprint: str | Mapping[str, str] | None = None,
        serving: Serving | Cascade | StoreIndexes | None = None,
        settings: SearchSettings | None = None,
    ) -> ArrowTable:
        """Find the nearest items.

        Args:
            query: (d,) or (q, d) vectors of `version`, or one source to embed (path, text, image). For a fused search
                such vectors of both versions, by the version's name, or one source that both embed.
            k: Results per query.
            version: Version of the query; the active one by default.
            where: Condition on the gallery's columns, in SQL, or several that must all hold. Each is checked to be one
                expression, so that a tenant's condition holds whatever the next one, from outside, says. A name with
                blanks or capitals stands in backticks; single and double quotes make a text.
            columns: Columns to return, fields of structs as "meta.lang" too; id, source and metadata by default.
                Computed columns are always included.
            fingerprint: Fingerprint of the model that made the query, or of both models by their versions' names;
                refused unless it is the version's.
            serving: "fused" ranks by the fusion of an upgrade's source and target vectors, "source" and "target"
                by those of one of them. None does as `evaluate(weight="best")` chose if both queries are there, or a
                source that this program can embed by both; vectors of one version are served by that version. A
                `Cascade` embeds the first candidates of an upgrade natively, within its budget, and ranks them by these
                vectors. `StoreIndexes` takes the candidates from the indexes of the store that the gallery mirrors.
            settings: Index parameters, such as `SearchSettings(nprobes=8, refine=10)`; by default those measured when
                they were built, with items of the gallery as queries: `status` shows the recall.

        Returns:
            Arrow table, nearest first, with `_distance`, `_version`, `_origin`; `_query` too for several queries. In a
            fused search `_distance` is a mean of standardised distances, which may be below 0. Of transformed vectors
            whose error the transform predicts (sigma^2), it is shrunk by that.

        Raises:
            InvalidInput: The query has another length, or the two versions have different numbers of queries. NaN or
                infinite values. k < 1, or a condition is no valid SQL, or more than one expression.
            Incompatible: The query is another model's.
            NotFound: There is no such version, or nothing to search with its queries.
            UpgradeError: `serving` is "fused" and no fusion was chosen, or there is no upgrade; a cascade has no
                encoder.

        Examples:
            >>> gallery.search([0.0, 1.0], k=1, columns=["id"])["id"].to_pylist()
            ['a']
            >>> gallery.search([0.0, 1.0], k=2, where="label = 1")["id"].to_pylist()
            ['d', 'c']
            >>> gallery.search([0.0, 1.0], k=1, settings=cs.SearchSettings(nprobes=8, refine=10))["id"].to_pylist()
            ['a']
        """
        snapshot = self._catalog.store.snapshot()
        registry = self._catalog.recorded(snapshot)
        plan = self._plan_search(registry, query, k, version, where, serving, settings)
        self._catalog.require(snapshot, *(part.version for part in plan.parts))
        refuse_distance(snapshot.schema.names, self._catalog.store.location)
        require_fingerprints(registry, plan.versions, fingerprint)
        queries = read_served(self._catalog, registry, plan.versions, query)
        if isinstance(serving, StoreIndexes):
            own = joined(where, "search")
            among = serving.candidates(self._catalog, queries, k)
            plan = self._plan_search(registry, query, k, version, [among, *([own] if own else [])], None, settings)
        named = result_columns(registry, snapshot.schema, columns)
        wanted = whole_columns(named)
        if isinstance(plan, SearchPlan):
            found = search_planned(self._catalog, snapshot, plan, queries, wanted)
        else:
            from compatstore.search.cascade import search_cascade

            found = search_cascade(self._catalog, snapshot, plan, queries, wanted)
        return with_fields(found, named)

    def explain(
        self,
        query: Any = None,
        k: int = 10,
        version: str | None = None,
        where: str | Sequence[str] | None = None,
        *,
        serving: Serving | Cascade | StoreIndexes | None = None,
        settings: SearchSettings | None = None,
    ) -> QueryPlan:
        """Plan of a `search` with the same arguments; print it. Nothing is searched.

        Without a query it shows the serving of a source that every version can embed. It warns if the serving was
        measured to be below the status quo.

        Examples:
            >>> gallery.explain(k=5).version
            'v1'
        """
        from compatstore.upgrade.backfilling.account import read_spent

        registry = self._catalog.registry()
        plan = self._plan_search(registry, query, k, version, where, serving, settings)
        if isinstance(plan, SearchPlan):
            return self._warned(registry, plan)
        spent = read_spent(self._catalog.store.location, plan.run).rows
        return replace(plan, candidates=self._warned(registry, plan.candidates), spent=spent)

    def cache(
        self,
        version: str | None = None,
        *,
        max_bytes: int | None = None,
    ) -> Cache:
        """Keep a version's vectors in memory, in a graph (HNSW) that finds nearly all of the nearest items fast.

        It follows the table: each search sees what was committed before, by whatever process. Needs `faiss-cpu`:
        `pip install "compatstore[faiss]"`. `maintenance.cache_size` estimates its size.

        Args:
            version: The active one by default.
            max_bytes: Memory that it may take, now and as the gallery grows; None for any.

        Returns:
            The cache; a context manager that gives the memory back.

        Raises:
            NotFound: There is no such version, or nothing to search with its queries.
            InvalidInput: It would take more than `max_bytes`; nothing was built.
            MissingExtra: FAISS is not installed.

        Examples:
            >>> with gallery.cache("v1", max_bytes=10**6) as cache:
            ...     cache.search([0.1, 1.2], k=2, columns=["id"])["id"].to_pylist()
            ['a', 'd']
        """
        from compatstore.search.cache import Cache

        name = version or self._catalog.recorded().active
        return Cache(self._catalog, name, max_bytes)

    def _warned(self, registry: Registry, plan: SearchPlan) -> SearchPlan:
        """The same plan, with strategies that were measured to be below the status quo."""
        from compatstore.upgrade.estimates.estimate import warning_of

        return replace(plan, warning=warning_of(self._catalog, registry, plan.version, plan.way))

    def _plan_search(
        self,
        registry: Registry,
        query: Any,
        k: int,
        version: str | None,
        where: str | Sequence[str] | None,
        serving: Serving | Cascade | StoreIndexes | None,
        settings: SearchSettings | None,
    ) -> QueryPlan:
        require_count(k)
        asked = self._catalog, registry, query, k, version, where
        if isinstance(serving, Cascade):
            from compatstore.search.cascade import plan_cascade

            plan: QueryPlan = plan_cascade(*asked, serving)
        elif isinstance(serving, StoreIndexes):
            plan = replace(plan_serving(*asked, None), candidates=serving.explain(self._catalog))
        else:
            plan = plan_serving(*asked, serving)
        return plan if settings is None else plan.using(settings)
