"""Query routing: single-version or fused search."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray
from compatstore.digests import require_fingerprint
from compatstore.errors import CompatStoreWarning, Incompatible, InvalidInput, UpgradeError
from compatstore.evaluation.fusion import Fusion, Serving
from compatstore.evaluation.merging import Merge
from compatstore.search.execute import as_queries, execute, is_vectors
from compatstore.search.fusion import search_fused
from compatstore.search.plan import SearchPlan, plan_both, plan_search
from compatstore.search.shrinkage import with_shrinkage
from compatstore.storage.catalog import Catalog
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.storage.same_model import of_fingerprint
from compatstore.storage.snapshot import Snapshot


def plan_serving(
    catalog: Catalog,
    registry: Registry,
    query: Any,
    k: int,
    version: str | None,
    where: str | Sequence[str] | None,
    serving: Serving | None,
) -> SearchPlan:
    """Plan a search by one version or by two; read-only.

    Args:
        catalog: The gallery.
        registry: Its state.
        query: A query as of `Gallery.search`, or None for a source that can be embedded by every version.
        k: Results wanted.
        version: Version of the query; the active one by default.
        where: The caller's conditions.
        serving: "fused": by both versions of an upgrade; "source" or "target": by that version of it. None: fused if a
            fusion was chosen for an upgrade of the version and both of its queries are there, or can be made of a
            source; otherwise by the version.

    Raises:
        InvalidInput: The query does not fit the serving, or a condition is not one expression.
        NotFound: There is no such version, or nothing to search with its queries.
        UpgradeError: There is no upgrade, or no fusion was chosen for it.
    """
    names = versions_of(registry, query, version)
    if serving in ("source", "target"):
        plan = plan_search(registry, _version_of(registry, names, version, serving), k, where)
        return with_shrinkage(catalog, registry, plan)
    name = names[0] if names else version or registry.active
    if len(names) == 2:
        run = _last_run(registry, names)
        if run is None:
            raise InvalidInput(
                f"search the fusion of {' and '.join(names)}",
                expected="the source and the target of an upgrade",
                found="no upgrade between the two",
            )
        name, has_both = registry.active if registry.active in names else run.target, True
        retired = registry.record(run.source).columns is None
        fused = not retired and (serving == "fused" or _fused_by_default(registry, run))
    else:
        run, value = _last_run(registry, (name,), chosen=True), query[name] if names else query
        has_both = not names and (value is None or not is_vectors(value, registry.record(name).dim))
        by_default = serving is None and has_both and version is None
        fused = serving == "fused" or (by_default and _answers_both(catalog, registry, run, name, value))
    if not fused:
        return with_shrinkage(catalog, registry, plan_search(registry, name, k, where))
    how = None if run is None else _chosen(registry, run)
    if run is None or how is None:
        from compatstore.upgrade.estimates.fusing import without_fusion

        last = run or _last_run(registry, (name,))
        raise without_fusion(catalog, name if last is None else last.target)
    if not has_both:
        raise InvalidInput(
            f"search the fusion of {run.source} and {run.target}",
            expected="a query of each version, or a source that both embed",
            found=f"a query of {name}",
            fix=f"Hand both over: search({{'{run.source}': ..., '{run.target}': ...}}).",
        )
    return with_shrinkage(catalog, registry, plan_both(registry, run.source, run.target, how, k, where))


def search_planned(
    catalog: Catalog, snapshot: Snapshot, plan: SearchPlan, queries: Mapping[str, FloatArray], columns: Sequence[str]
) -> ArrowTable:
    """Search by a plan of `plan_serving`; arguments and result as of `execute`."""
    return (execute if plan.fusion is None else search_fused)(catalog, snapshot, plan, queries, columns)


def _version_of(registry: Registry, names: Sequence[str], version: str | None, serving: Serving) -> str:
    """The source or the target of the upgrade that a query belongs to.

    Raises:
        InvalidInput: The query is of the other version.
        UpgradeError: There is no such upgrade.
    """
    known = set(names or ([version] if version else []))
    runs = [run for run in registry.runs.values() if {run.source, run.target} & (known or {registry.active})]
    operation = f"search by the {serving} of an upgrade"
    if not runs:
        raise UpgradeError(
            operation, expected=f"an upgrade of {' and '.join(sorted(known)) or registry.active}", found="none"
        )
    run = max(runs, key=lambda run: (known <= {run.source, run.target}, run.open, run.started_at))
    name = run.source if serving == "source" else run.target
    if known and name not in known:
        raise InvalidInput(operation, expected=f"a query of {name}", found=f"a query of {' and '.join(sorted(known))}")
    return name


def read_served(catalog: Catalog, registry: Registry, versions: Iterable[str], query: Any) -> dict[str, FloatArray]:
    """Read a query in each version that a plan needs: version -> (q, dim) float32.

    Raises:
        InvalidInput: The vectors have another length. NaN or infinite values. No vector at all, a source that cannot be
            embedded, or no encoder for it.
    """
    return {
        name: as_queries(catalog, registry, name, query[name] if isinstance(query, Mapping) else query)
        for name in versions
    }


def require_fingerprints(
    registry: Registry, versions: Sequence[str], fingerprint: str | Mapping[str, str] | None
) -> None:
    """Refuse queries of another model than their version's.

    Args:
        registry: State of the gallery.
        versions: Versions of the plan's queries.
        fingerprint: Of the model that made the query, or one for each version.

    Raises:
        Incompatible: A query is another model's.
        InvalidInput: One fingerprint for queries in two versions, or one for a version without a query.
    """
    if fingerprint is None:
        return
    if isinstance(fingerprint, str) and len(versions) > 1:
        raise InvalidInput(
            f"search the fusion of {' and '.join(versions)}",
            expected="a fingerprint for each version, by its name",
            found="one fingerprint",
        )
    given = {versions[0]: fingerprint} if isinstance(fingerprint, str) else fingerprint
    for name in versions:
        if name in given:
            fix = of_fingerprint(registry, name, given[name])
            wanted = registry.record(name).version().fingerprint
            require_fingerprint(f"search with a query of {name}", wanted, given[name], fix)


def versions_of(registry: Registry, query: Any, version: str | None) -> tuple[str, ...]:
    """Versions that a mapping has queries for; none for any other query."""
    if not isinstance(query, Mapping):
        return ()
    names = tuple(query)
    if not 1 <= len(names) <= 2 or version not in (None, *names) or (version is not None and len(names) == 2):
        raise InvalidInput(
            "search with queries of versions",
            expected="queries of one version or two, and no other version named",
            found=f"queries of {', '.join(map(str, names)) or 'none'}" + (f" and version={version}" if version else ""),
        )
    for name in names:
        registry.record(name)
    return names


def _answers_both(catalog: Catalog, registry: Registry, run: RunRecord | None, name: str, value: Any) -> bool:
    """True if both versions of an upgrade answer a source by default; warns if an encoder is missing for that."""
    if run is None or not _fused_by_default(registry, run):
        return False
    if value is None or _both_embed(catalog, run):
        return True
    without = next((one for one in (run.source, run.target) if not catalog.can_embed(one)), None)
    if without is not None:
        given = next_step.either(shell=f"--encoder {without}=ENCODER", python=f"encoders={{{without!r}: ...}}")
        warnings.warn(
            f"{run.source} and {run.target} are served fused, but {without} has no encoder here: this search is "
            f"answered by {name} alone. Give it one: {given}, or "
            f"for good: register it again with its encoder.",
            CompatStoreWarning,
            stacklevel=2,
        )
    return False


def _last_run(registry: Registry, versions: Sequence[str], *, chosen: bool = False) -> RunRecord | None:
    """The last upgrade from or to all of some versions; if `chosen`, among those with a fusion or a merge."""
    runs = [run for run in registry.runs.values() if set(versions) <= {run.source, run.target}]
    return max(
        (run for run in runs if not chosen or _chosen(registry, run) is not None),
        key=lambda run: run.started_at,
        default=None,
    )


def _chosen(registry: Registry, run: RunRecord) -> Fusion | Merge | None:
    """The fusion of both versions, or the merge of an upgrade without a hop; None if none was chosen."""
    merge = registry.merge_of(run.target)
    return registry.fusion_of(run.target) or (merge if merge is not None and not merge.bridge else None)


def _fused_by_default(registry: Registry, run: RunRecord) -> bool:
    """True if searches use both versions by default."""
    chosen = _chosen(registry, run)
    return chosen.worth if isinstance(chosen, Merge) else registry.fusion_served(run.target) is not None


def _both_embed(catalog: Catalog, run: RunRecord) -> bool:
    """True if this program can embed a source by both versions of an upgrade."""
    with suppress(Incompatible):
        return all(catalog.encoder(name) is not None for name in (run.source, run.target))
    return False
