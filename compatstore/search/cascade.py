"""A cascade: the first candidates of a search are embedded natively and ranked by the target's own vectors.

Any search of an upgrade finds the candidates: in the source's column, in the target's with its transformed vectors, or
fused. Of each query's first n those without a native vector are embedded by the target's model, all in one call of the
encoder, and these n are ranked by their exact distance in the target's space. The rest stay behind them, in their
order. An item that is not embedded, as its source cannot be read or the budget is spent, keeps its place: of the
candidates A B C D with B not embedded, B stays the second, and A, C and D share the other places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from compatstore import next_step
from compatstore.boundary import checked_fields, require_fields
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation.fusion import Fusion
from compatstore.search.execute import is_vectors
from compatstore.search.expected import Expected, ExpectedPlan, plan_expected
from compatstore.search.fusion import FusionPlan, plan_fused
from compatstore.search.plan import Part, SearchPlan, part_of, plan_search
from compatstore.search.serving import plan_serving, versions_of
from compatstore.storage.catalog import Catalog
from compatstore.storage.doubts import FIRST
from compatstore.storage.indexes import SearchSettings
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry

CandidateSearch = Literal["source", "target", "fused", "expected"]
Rank = Literal["target", "fused"]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Candidates of a search that are embedded natively for it, within a budget.

    Args:
        candidates: Search that finds the candidates: the source's, the target's (the vectors that the hop made), the
            fused one, the target's by expected distances, or by default the one that serves the query without a
            cascade.
        first: Candidates of each query that are ranked by native vectors, >= 1.
        per_query: Items that are embedded for a query at most, >= 0. Those that have a native vector cost nothing.
        in_all: Items that searches embed for an upgrade at most, in all processes together, >= 0.
        rank: What ranks the first candidates: the target's distance, or the fused one of both native vectors.
        write_back: Whether native vectors are written into the gallery, and what was spent beside it. Else a search
            writes nothing: vectors and budget are those of this process.

    Raises:
        InvalidInput: A number is out of its range, or a word is none of those.

    Examples:
        >>> cs.Cascade(first=50, per_query=10).in_all
        10000
    """

    candidates: CandidateSearch | None = None
    first: int = 10
    per_query: int = 10
    in_all: int = 10_000
    rank: Rank = "target"
    write_back: bool = True

    def __post_init__(self) -> None:
        require_fields(self)
        words = (("candidates", get_args(CandidateSearch), self.candidates), ("rank", get_args(Rank), self.rank))
        for name, known, word in words:
            if word is not None and word not in known:
                raise InvalidInput("make a Cascade", expected=f"{name}: one of {', '.join(known)}", found=repr(word))
        for name, least in (("first", 1), ("per_query", 0), ("in_all", 0)):
            if getattr(self, name) < least:
                raise InvalidInput(
                    "make a Cascade", expected=f"{name} >= {least}", found=f"{name}={getattr(self, name)}"
                )


@dataclass(frozen=True)
class CascadePlan:
    """How a query is answered by a cascade.

    Attributes:
        k: Results wanted.
        run: The upgrade whose target embeds the candidates.
        candidates: The search that finds them.
        target: The target's column.
        source: The source's column.
        cascade: What was asked for.
        fusion: Ranks the first candidates; None where the target's distance does.
        spent: Items that searches have embedded for the upgrade so far.
    """

    k: int
    run: RunRecord
    candidates: SearchPlan | FusionPlan | ExpectedPlan
    target: Part
    source: Part
    cascade: Cascade
    fusion: Fusion | None
    spent: int

    @property
    def version(self) -> str:
        """The version upgraded to."""
        return self.target.version

    @property
    def parts(self) -> tuple[Part, ...]:
        """All columns that are read."""
        return (*self.candidates.parts, self.source, self.target)

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that queries are needed in."""
        ranked = (self.target.version,) if self.fusion is None else (self.source.version, self.target.version)
        return tuple(dict.fromkeys([*self.candidates.versions, *ranked]))

    def using(self, settings: SearchSettings) -> CascadePlan:
        """The same plan, with other settings of the indexes."""
        return replace(self, candidates=self.candidates.using(settings))

    def __str__(self) -> str:
        asked, target = self.cascade, self.target
        by = f"{target.metric} in {target.version}"
        if self.fusion is not None:
            by = f"both native vectors, weight {self.fusion.weight:.4g} of {target.version}"
        kept = "written back as native vectors" if asked.write_back else "kept in this process, not written"
        left = max(asked.in_all - self.spent, 0)
        return "\n".join(
            [
                str(self.candidates),
                f"  cascade: the first {asked.first} are embedded natively in {target.version} and ranked by {by}; "
                f"{self.k} results",
                f"  price: at most {asked.per_query} encodings for a query in one call of the encoder, {left} of "
                f"{asked.in_all} left in all; {kept}",
            ]
        )


def plan_cascade(
    catalog: Catalog,
    registry: Registry,
    query: Any,
    k: int,
    version: str | None,
    where: str | Sequence[str] | None,
    cascade: Cascade,
) -> CascadePlan | SearchPlan | FusionPlan | ExpectedPlan:
    """Plan a cascade; read-only.

    Where the upgrade is over (retired, rolled back, aborted) it is the search without one: nothing can be written back
    and no target serves.

    Args:
        catalog: The gallery.
        registry: Its state.
        query: What `Gallery.search` takes; of the target at least, and of the source where candidates are found or
            ranked by it. None for a source that every version can embed.
        k: Results wanted.
        version: Version of the query; the active one by default.
        where: The caller's conditions.
        cascade: What is asked for.

    Raises:
        InvalidInput: The query does not fit what is asked for, or a condition is not one expression.
        NotFound: There is no such version, or nothing to search with its queries.
        UpgradeError: There was no upgrade, no fusion was chosen, or the target has no encoder here.
    """
    names = versions_of(registry, query, version)
    name = version or (names[0] if len(names) == 1 else registry.active)
    known = names
    if not names and query is not None and is_vectors(query, registry.record(name).dim):
        known = (name,)
    run = _run_of(registry, known, name)
    if not run.open or any(registry.record(each).columns is None for each in (run.source, run.target)):
        return plan_serving(catalog, registry, query, k, version, where, None)
    fetched = max(k, cascade.first)
    found: SearchPlan | FusionPlan | ExpectedPlan
    if cascade.candidates is None:
        found = plan_serving(catalog, registry, query, fetched, version, where, None)
    elif cascade.candidates == "expected":
        hopped = plan_search(registry, run.target, fetched, where)
        found = plan_expected(catalog, registry, hopped, Expected(first=max(fetched, FIRST)))
    elif cascade.candidates == "fused":
        found = plan_fused(registry, run.source, run.target, _fusion_of(registry, run), fetched, where)
    else:
        found = plan_search(registry, getattr(run, cascade.candidates), fetched, where)
    fusion = _fusion_of(registry, run).at(1.0) if cascade.rank == "fused" else None
    source, target = (part_of(registry.record(each), registry.columns(each)) for each in (run.source, run.target))
    plan = CascadePlan(k, run, found, target, source, cascade, fusion, 0)
    missing = [each for each in plan.versions if known and each not in known]
    if missing:
        raise InvalidInput(
            f"search by a cascade in {run.target}",
            expected=f"a query of each of {', '.join(plan.versions)}, or a source that they embed",
            found=f"no query of {', '.join(missing)}",
            fix=f"Hand them over: search({{{', '.join(f'{each!r}: ...' for each in plan.versions)}}}).",
        )
    if catalog.encoder(run.target) is None:
        raise UpgradeError(
            f"search by a cascade in {run.target}",
            expected=f"an encoder for {run.target}",
            found="none: its vectors come from outside",
            fix=f"Hand one over: Gallery.open(..., encoders={{'{run.target}': ...}}); or search without a cascade.",
        )
    return plan


def _run_of(registry: Registry, known: Sequence[str], name: str) -> RunRecord:
    """The upgrade that a query belongs to: between its two versions, to its one version, or of a source.

    Raises:
        UpgradeError: There was none.
    """
    runs = list(registry.runs.values())
    if len(known) == 2:
        runs = [run for run in runs if {run.source, run.target} == set(known)]
    else:
        leading = [run for run in runs if run.target == name]
        leaving = [run for run in runs if run.source == name]
        runs = leading or leaving if known else leading + leaving
    if not runs:
        raise UpgradeError(
            f"search by a cascade with a query of {' and '.join(known) or name}",
            expected="an upgrade from or to that version",
            found="none",
            fix=f"Begin one: {next_step.call('upgrade', 'VERSION')}",
        )
    return max(runs, key=lambda run: (run.open, run.started_at))


def _fusion_of(registry: Registry, run: RunRecord) -> Fusion:
    fusion = registry.fusion_of(run.target)
    if fusion is None:
        raise UpgradeError(
            f"search by a cascade, fused in {run.source} and {run.target}",
            expected="a fusion that was chosen for the upgrade",
            found="none",
            fix=f"Choose one: {next_step.call('evaluate', run.target, weight='best')}",
        )
    return fusion
