"""The search plan: the searched columns, the form of the query for each, and the merge of the parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from compatstore import next_step
from compatstore.errors import NotFound
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.merging import Calibration, Merge
from compatstore.search.condition import joined
from compatstore.storage.columns import VersionColumns
from compatstore.storage.records import SearchSettings
from compatstore.storage.registry import Registry, bridge_to, comparable
from compatstore.versions import Metric

PartMerge = Literal["none", "distance", "calibrated", "reciprocal rank", "fused"]

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
        form: Form of the query after that artifact, as in "unchanged".
        excluded_column: Column that has no value in the rows of this part; the others are another part's. None for all
            rows.
        settings: Search settings of the column's index.
        query: Version of the query, if it is not the plan's.
        calibration: Maps its distances into those of the other part, or None for distances as they are.
    """

    version: str
    columns: VersionColumns
    metric: Metric
    artifact: str | None = None
    excluded_column: str | None = None
    form: str = ""
    settings: SearchSettings = field(default_factory=SearchSettings)
    query: str = ""
    calibration: Calibration | None = None

    @property
    def condition(self) -> str | None:
        """SQL condition: the row belongs to this part; None if all do."""
        return f"`{self.excluded_column}` IS NULL" if self.excluded_column else None

    @property
    def index(self) -> str:
        """Settings of the index, as the end of a sentence; "" for those of Lance."""
        return f"; index: {self.settings}" if self.settings.options else ""


@dataclass(frozen=True)
class SearchPlan:
    """The plan of a search.

    Attributes:
        version: Version that the query belongs to, and the target's of a fused search.
        k: Results wanted.
        parts: One Lance search each; the source's and the target's of a fused search.
        merge: Rule that merges the parts' results into one list.
        where: The caller's own condition, or all of them joined, or None.
        chosen: Measurement of the merge, or None if it follows from the two spaces.
        fusion: Weight and constants of a fused search, else None.
        warning: Message if its measured quality is below the baseline, or "".
        shrinkage: True if the first candidates are ranked by shrunk distances.
        candidates: Source of the candidates outside the gallery, or "".
    """

    version: str
    k: int
    parts: tuple[Part, ...]
    merge: PartMerge
    where: str | None
    chosen: Merge | None = None
    fusion: Fusion | None = None
    warning: str = ""
    shrinkage: bool = False
    candidates: str = ""

    @property
    def way(self) -> Literal["fused", "merged", "target"]:
        """The way in which an upgrade to the version is searched."""
        return "fused" if self.fusion is not None else "merged" if len(self.parts) > 1 else "target"

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that queries are needed in."""
        return tuple(dict.fromkeys(part.query or self.version for part in self.parts))

    def using(self, settings: SearchSettings) -> SearchPlan:
        """The same plan, with other settings of the indexes."""
        return replace(self, parts=tuple(replace(part, settings=settings) for part in self.parts))

    def __str__(self) -> str:
        versions = " and ".join(self.versions)
        merge = self.merge if self.fusion is None else f"{self.merge}, {_weights(self.fusion, *self.versions)}"
        lines = [f"query in {versions}, {self.k} nearest, {len(self.parts)} part(s), merge: {merge}"]
        if self.candidates:
            lines.append(f"  candidates: {self.candidates}; ranked here")
        for part in self.parts:
            own = f"of {part.query or self.version}" if len(self.versions) > 1 else "as it is"
            form = own if part.artifact is None else f"through {part.artifact[:12]} ({part.form})"
            rows = " and ".join(c for c in (part.condition, self.where) if c) or "all rows"
            lines.append(f"  {part.metric} on column {part.columns.vector} with the query {form}; {rows}{part.index}")
            if part.calibration is not None:
                lines.append(f"    distances mapped into those of {self.version}: {part.calibration}")
        if self.fusion is not None:
            lines += _explained(self.fusion, *self.parts)
        elif self.chosen is not None:
            lines.append(f"  merge {self.chosen}")
        elif len(self.parts) > 1:
            lines.append("  merge by rule, without a measurement")
        if self.shrinkage:
            lines.append("  distances of transformed vectors are shrunk by their predicted error (sigma^2)")
        if self.warning:
            lines.append(f"  warning: {self.warning}")
        return "\n".join(lines)


def _weights(fusion: Fusion, source: str, target: str) -> str:
    return f"{1 - fusion.weight:.4g} {source} + {fusion.weight:.4g} {target}"


def _explained(fusion: Fusion, source: Part, target: Part) -> Iterator[str]:
    """A fused search, line by line."""
    apart = ((f"native {target.version}", fusion.native), (f"transformed {target.version}", fusion.transformed))
    kinds = ((source.version, fusion.source), *(apart if fusion.per_origin else ((target.version, fusion.mixture),)))
    shrunk = " shrunk" if fusion.shrinkage and target.columns.uncertainty else ""
    constants = "; ".join(f"{name} (d - {kind.mean:.4g}) / {kind.deviation:.4g}" for name, kind in kinds)
    yield "  candidates: threshold algorithm, exact; with an index, the rows that it compares"
    yield f"  standardised{shrunk} distances: {constants}"
    yield f"  an item without one of the two vectors has {fusion.correlation:.4g} of its other distance"
    yield f"  {fusion.weighed}"
    yield f"  price: two embeddings and two searches for a query, and the column of {source.version} is kept"


def plan_search(registry: Registry, version: str, k: int, where: str | Sequence[str] | None) -> SearchPlan:
    """Plan a search; read-only.

    Rows that have a vector of the version are searched with the query as it is. If an artifact brings such a
    query into the space of another version of the table, the rows that have none are searched there.

    Raises:
        NotFound: No row can be searched with a query of that version.
        InvalidInput: A condition is not one SQL expression.
    """
    record = registry.record(version)
    condition = joined(where, f"search {version}")
    parts = []
    if record.columns is not None:
        parts.append(part_of(registry, version))
    bridge = bridge_to(registry, version)
    if bridge is not None:
        source = registry.record(bridge.source)
        excluded_column = record.columns.presence_column if record.columns is not None else None
        part, form = part_of(registry, source.name), _FORMS[bridge.kind].format(dim=source.dim)
        parts.append(replace(part, artifact=bridge.id, excluded_column=excluded_column, form=form))
    if not parts:
        raise NotFound(
            f"search with a query of version {version}",
            expected="vectors of that version in the gallery, or an artifact that adapts its queries",
            found="neither",
            fix=f"Upgrade to it: {next_step.call('upgrade', version)}",
            kind="version",
        )
    if bridge is None or len(parts) == 1:
        return SearchPlan(version, k, tuple(parts), "none", condition)
    chosen = registry.merge_of(version)
    if chosen is not None:
        return _merged(version, k, parts[0], parts[1], chosen, condition)
    rule: PartMerge = "distance" if comparable(registry, bridge) else "reciprocal rank"
    return SearchPlan(version, k, tuple(parts), rule, condition)


def plan_both(
    registry: Registry, source: str, target: str, how: Fusion | Merge, k: int, where: str | Sequence[str] | None
) -> SearchPlan:
    """Plan a search with queries of both versions of an upgrade; read-only.

    A fusion ranks all rows by both queries. A merge ranks native rows by the target's query, the others by the
    source's. It is the search of one version if a fusion has the weight 0 or 1, or if the other version has no vectors
    in the table: the target before its upgrade has begun, the source after it is retired.

    Raises:
        NotFound: Neither version has vectors.
        InvalidInput: A condition is not one SQL expression.
    """
    left, right = registry.record(source).columns, registry.record(target).columns
    weight = how.weight if isinstance(how, Fusion) else None
    if right is None or weight == 0:
        return plan_search(registry, source, k, where)
    if left is None or weight == 1:
        return plan_search(registry, target, k, where)
    condition = joined(where, f"search {source} and {target}")
    own, other = part_of(registry, target), replace(part_of(registry, source), query=source)
    if isinstance(how, Fusion):
        return SearchPlan(target, k, (other, own), "fused", condition, fusion=how)
    return _merged(target, k, own, replace(other, excluded_column=right.presence_column), how, condition)


def _merged(version: str, k: int, native: Part, others: Part, merge: Merge, where: str | None) -> SearchPlan:
    """The plan of two parts by a merge that was measured."""
    parts = native, replace(others, calibration=merge.calibration)
    return SearchPlan(version, k, parts, merge.how, where, merge)


def part_of(registry: Registry, version: str) -> Part:
    """The search of all rows of a version."""
    record = registry.record(version)
    return Part(version, registry.columns(version), record.metric, settings=record.search or SearchSettings())
