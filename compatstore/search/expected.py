"""Search by expected distance: of vectors that a transform made, what it doubts counts less.

The nearest candidates of a search in one version are ranked by the distance that their native vectors are expected to
have: the cosine of a transformed vector times what `Shrinkage` says of its sigma^2, that of a native vector as it is.
Nothing is embedded and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowTable, Doubles, FloatArray
from compatstore.boundary import checked_fields, require_fields
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.evaluation.distances import expected_distances
from compatstore.search.execute import execute
from compatstore.search.plan import Part, SearchPlan
from compatstore.storage.catalog import Catalog
from compatstore.storage.doubts import FIRST, kept_cosines, shrinkage_of
from compatstore.storage.indexes import SearchSettings
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import to_floats


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Expected:
    """Candidates of a search in one version are ranked by their expected distance.

    Args:
        first: Nearest candidates of each query that are ranked, >= 1; k where that is more.

    Raises:
        InvalidInput: A number is out of its range.

    Examples:
        >>> cs.Expected().first
        100
    """

    first: int = FIRST

    def __post_init__(self) -> None:
        require_fields(self)
        if self.first < 1:
            raise InvalidInput("make an Expected", expected="first >= 1", found=f"first={self.first}")


@dataclass(frozen=True)
class ExpectedPlan:
    """How a query is answered by expected distances.

    Attributes:
        k: Results wanted.
        candidates: The search that finds the candidates.
        target: The column whose transformed vectors are doubted.
    """

    k: int
    candidates: SearchPlan
    target: Part

    @property
    def version(self) -> str:
        """The version that is searched."""
        return self.candidates.version

    @property
    def parts(self) -> tuple[Part, ...]:
        """All columns that are read."""
        return self.candidates.parts

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that queries are needed in."""
        return self.candidates.versions

    def using(self, settings: SearchSettings) -> ExpectedPlan:
        """The same plan, with other settings of the indexes."""
        return replace(self, candidates=self.candidates.using(settings))

    def __str__(self) -> str:
        return "\n".join(
            [
                str(self.candidates),
                f"  expected: these are ranked by the {self.target.metric} that is expected of their "
                f"native vectors, by the sigma^2 of transformed ones; {self.k} results",
            ]
        )


def plan_expected(
    catalog: Catalog, registry: Registry, plan: SearchPlan, expected: Expected
) -> ExpectedPlan | SearchPlan:
    """Plan a search by expected distances; read-only.

    It is the search without them where no vector of the version was made by a transform, and where the rows of two
    versions are merged by rank.

    Args:
        catalog: The gallery.
        registry: Its state.
        plan: The search in one version, of k results.
        expected: How many candidates are ranked.

    Raises:
        UpgradeError: The version's vectors come from a transform that says no sigma^2 or was not measured, are bits, or
            have neither unit length nor cosine as their metric.
    """
    record = registry.record(plan.version)
    target = next((part for part in plan.parts if part.version == plan.version), None)
    paths = [run.path for run in registry.runs.values() if run.target == plan.version and run.path]
    if target is None or not paths or plan.merge == "reciprocal rank":
        return plan
    asked, fix = f"search by the expected distance in {plan.version}", "Search without it."
    if target.columns.dtype == "bits":
        raise UpgradeError(asked, expected="vectors of values", found="bits", fix=fix)
    if target.metric != "cosine" and not record.normalised:
        raise UpgradeError(asked, expected="unit length, or cosine", found=f"{target.metric}, any length", fix=fix)
    if target.columns.uncertainty is None or all(shrinkage_of(catalog, "+".join(path)) is None for path in paths):
        raise UpgradeError(
            asked,
            expected="vectors of one transform that predicts its own errors, as measured on held-out pairs",
            found=f"those of {' and '.join(part[:12] for part in paths[-1])}, without",
            fix=f"Train one on 400 pairs or more: {next_step.training('fastfill')}. Or search without it.",
        )
    return ExpectedPlan(plan.k, replace(plan, k=max(plan.k, expected.first)), target)


def search_expected(
    catalog: Catalog,
    snapshot: Snapshot,
    plan: ExpectedPlan,
    queries: Mapping[str, FloatArray],
    columns: Sequence[str],
) -> ArrowTable:
    """Search by expected distances.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_expected`.
        queries: Version -> (q, dim) float32.
        columns: Columns to return.

    Returns:
        Arrow table as `execute` gives it; `_distance` is the expected one.

    Raises:
        InvalidInput: The condition is no valid SQL for this table, or a query has length 0, under cosine.
    """
    target, doubted = plan.target, plan.target.columns.uncertainty
    assert doubted is not None, "the plan has seen to it"
    found = execute(catalog, snapshot, plan.candidates, queries, list(dict.fromkeys([*columns, doubted])))
    numbers = found["_query"].to_numpy() if "_query" in found.column_names else np.zeros(found.num_rows, np.int64)
    factors = _factors(catalog, found, target, doubted)
    added = added_by(queries[plan.version], target.metric)[numbers]
    distances = expected_distances(found["_distance"].to_numpy() - added, factors, target.metric) + added
    place = found.schema.get_field_index("_distance")
    found = found.set_column(place, "_distance", pa.chunked_array([distances.astype(np.float32)], pa.float32()))
    order = np.lexsort((distances, numbers))
    ranks = np.arange(len(order)) - np.searchsorted(numbers, numbers[order])
    kept = [name for name in found.column_names if name != doubted or doubted in columns]
    return found.take(pa.array(order[ranks < plan.k])).select(kept)


def _factors(catalog: Catalog, found: ArrowTable, target: Part, doubted: str) -> Doubles:
    """What each row's cosine is multiplied by: 1 for what was found in another version."""
    sigma2, origins = to_floats(found[doubted]), np.asarray(found["_origin"].to_pylist(), object)
    mine = np.asarray(found["_version"].to_pylist(), object) == target.version
    factors = np.ones(found.num_rows)
    factors[mine] = kept_cosines(catalog, origins[mine], sigma2[mine])
    return factors


def added_by(queries: FloatArray, metric: str) -> Doubles:
    """What a query adds to the distances of `measure` in those of Lance: (q, dim) float32 -> (q,) float64."""
    if metric != "l2":
        return np.ones(len(queries))
    lengths: Doubles = np.square(queries.astype(np.float64)).sum(axis=1)
    return lengths
