"""The search plan: which column is searched with which form of the query, and how the parts are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compatstore.artifacts.kinds import kind_named
from compatstore.errors import UnknownVersion
from compatstore.storage.columns import VersionColumns
from compatstore.storage.registry import ArtifactRecord, Registry

Merge = Literal["none", "distance", "reciprocal rank"]


@dataclass(frozen=True)
class Part:
    """One Lance search.

    Attributes:
        version: Version whose column is searched.
        columns: Its columns.
        metric: Distance.
        artifact: Id of the artifact that turns the query into that version's space, or None for a query as it is.
        condition: Rows that belong to this part, as SQL, or None for all.
    """

    version: str
    columns: VersionColumns
    metric: str
    artifact: str | None = None
    condition: str | None = None


@dataclass(frozen=True)
class SearchPlan:
    """How a query in one version's space is answered.

    Attributes:
        version: Version that the query belongs to.
        k: Results wanted.
        parts: One Lance search each.
        merge: How the parts' results become one list.
        where: The caller's own condition, or None.
    """

    version: str
    k: int
    parts: tuple[Part, ...]
    merge: Merge
    where: str | None

    def __str__(self) -> str:
        lines = [f"query in {self.version}, {self.k} nearest, {len(self.parts)} part(s), merge: {self.merge}"]
        for part in self.parts:
            form = "as it is" if part.artifact is None else f"through {part.artifact[:12]}"
            rows = " and ".join(c for c in (part.condition, self.where) if c) or "all rows"
            lines.append(f"  {part.metric} on column {part.columns.vector} with the query {form}; {rows}")
        return "\n".join(lines)


def plan_search(registry: Registry, version: str, k: int, where: str | None) -> SearchPlan:
    """Plan a search; read-only.

    Rows that have a vector of the version are searched with the query as it is. Where an artifact brings such a
    query into the space of another version of the table, the rows that have none are searched there.

    Raises:
        UnknownVersion: No row can be searched with a query of that version.
    """
    record = registry.record(version)
    parts = []
    if record.columns is not None:
        parts.append(Part(version, record.columns, record.metric))
    bridge = _bridge(registry, version)
    if bridge is not None:
        source = registry.record(bridge.source)
        condition = record.columns.missing if record.columns is not None else None
        parts.append(Part(source.name, registry.columns(source.name), source.metric, bridge.id, condition))
    if not parts:
        raise UnknownVersion(
            f"search with a query of version {version}",
            expected="vectors of that version in the gallery, or an artifact that adapts its queries",
            found="neither",
            fix=f"Upgrade to it: compatstore upgrade GALLERY {version}",
        )
    return SearchPlan(version, k, tuple(parts), _merge(parts, bridge), where)


def _bridge(registry: Registry, version: str) -> ArtifactRecord | None:
    """The artifact linked last that adapts queries of a version to one whose vectors are in the table."""
    for artifact in reversed(list(registry.artifacts.values())):
        adapts = kind_named(artifact.kind).acts_on == "query" and artifact.target == version
        if adapts and registry.record(artifact.source).columns is not None:
            return artifact
    return None


def _merge(parts: list[Part], bridge: ArtifactRecord | None) -> Merge:
    if len(parts) == 1:
        return "none"
    # Distances of two parts compare only where both are in one and the same space.
    return "distance" if bridge is not None and bridge.kind == "Identity" else "reciprocal rank"
