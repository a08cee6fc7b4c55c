"""The search plan: which column is searched with which form of the query, and how the parts are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from compatstore.errors import UnknownVersion
from compatstore.search.condition import joined
from compatstore.storage.columns import VersionColumns
from compatstore.storage.indexes import SearchSettings
from compatstore.storage.records import ArtifactRecord, VersionRecord
from compatstore.storage.registry import Registry, bridge_to

PartMerge = Literal["none", "distance", "reciprocal rank"]

_FORMS = {
    "Identity": "unchanged",
    "Prefix": "its first {dim} values, scaled to unit length",
    "QueryAdapter": "mapped into that space",
}


@dataclass(frozen=True)
class Part:
    """One Lance search.

    Attributes:
        version: Version whose column is searched.
        columns: Its columns.
        metric: Distance.
        artifact: Id of the artifact that turns the query into that version's space, or None for a query as it is.
        form: What that artifact makes of the query, as in "unchanged".
        excluded_column: Column that has no value in the rows of this part; the others are another part's. None for all
            rows.
        settings: How the column's index is used.
    """

    version: str
    columns: VersionColumns
    metric: str
    artifact: str | None = None
    excluded_column: str | None = None
    form: str = ""
    settings: SearchSettings = field(default_factory=SearchSettings)

    @property
    def condition(self) -> str | None:
        """SQL condition: the row belongs to this part; None where all do."""
        return f"`{self.excluded_column}` IS NULL" if self.excluded_column else None

    @property
    def index(self) -> str:
        """How the index is used, as the end of a sentence; "" where that is left to Lance."""
        return f"; index: {self.settings}" if self.settings.options else ""


@dataclass(frozen=True)
class SearchPlan:
    """How a query in one version's space is answered.

    Attributes:
        version: Version that the query belongs to.
        k: Results wanted.
        parts: One Lance search each.
        merge: How the parts' results become one list.
        where: The caller's own condition, or all of them joined, or None.
    """

    version: str
    k: int
    parts: tuple[Part, ...]
    merge: PartMerge
    where: str | None

    def using(self, settings: SearchSettings) -> SearchPlan:
        """The same plan, with other settings of the indexes."""
        return replace(self, parts=tuple(replace(part, settings=settings) for part in self.parts))

    def __str__(self) -> str:
        lines = [f"query in {self.version}, {self.k} nearest, {len(self.parts)} part(s), merge: {self.merge}"]
        for part in self.parts:
            form = "as it is" if part.artifact is None else f"through {part.artifact[:12]} ({part.form})"
            rows = " and ".join(c for c in (part.condition, self.where) if c) or "all rows"
            lines.append(f"  {part.metric} on column {part.columns.vector} with the query {form}; {rows}{part.index}")
        return "\n".join(lines)


def plan_search(registry: Registry, version: str, k: int, where: str | Sequence[str] | None) -> SearchPlan:
    """Plan a search; read-only.

    Rows that have a vector of the version are searched with the query as it is. Where an artifact brings such a
    query into the space of another version of the table, the rows that have none are searched there.

    Raises:
        UnknownVersion: No row can be searched with a query of that version.
        InvalidInput: A condition is not one SQL expression.
    """
    record = registry.record(version)
    condition = joined(where, f"search {version}")
    parts = []
    if record.columns is not None:
        parts.append(part_of(record, record.columns))
    bridge = bridge_to(registry, version)
    if bridge is not None:
        source = registry.record(bridge.source)
        excluded_column = record.columns.presence_column if record.columns is not None else None
        part, form = part_of(source, registry.columns(source.name)), _FORMS[bridge.kind].format(dim=source.dim)
        parts.append(replace(part, artifact=bridge.id, excluded_column=excluded_column, form=form))
    if not parts:
        raise UnknownVersion(
            f"search with a query of version {version}",
            expected="vectors of that version in the gallery, or an artifact that adapts its queries",
            found="neither",
            fix=f"Upgrade to it: compatstore upgrade GALLERY {version}",
        )
    return SearchPlan(version, k, tuple(parts), _merge(registry, parts, bridge), condition)


def part_of(record: VersionRecord, columns: VersionColumns) -> Part:
    """The search of all rows of a version."""
    return Part(record.name, columns, record.metric, settings=record.search or SearchSettings())


def _merge(registry: Registry, parts: list[Part], bridge: ArtifactRecord | None) -> PartMerge:
    if bridge is None or len(parts) == 1:
        return "none"
    return "distance" if _comparable(registry, bridge) else "reciprocal rank"


def _comparable(registry: Registry, bridge: ArtifactRecord) -> bool:
    """Whether distances of rows of both versions can be ranked together.

    With Identity both are in one space. With Prefix a source row is as near as the first values of the query are to
    it, and a native row as near as the whole query: these compare where all of them have unit length, by themselves or
    as the metric makes them. An adapted query lies in another space than the native rows.
    """
    source, target = registry.record(bridge.source), registry.record(bridge.target)
    if source.metric != target.metric:
        return False
    unit = target.metric == "cosine" or (source.normalised and target.normalised)
    return bridge.kind == "Identity" or (bridge.kind == "Prefix" and unit)
