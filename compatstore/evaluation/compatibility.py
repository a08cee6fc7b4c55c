"""How compatible versions of a model are: gain and degradation of one upgrade, and a matrix over many versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray
from compatstore.boundary import array_of, checked, checked_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import measure
from compatstore.evaluation.metrics import require_ranks, summarise
from compatstore.evaluation.ranking import rank_by_labels
from compatstore.versions import Metric


@checked
def upgrade_gain(cross: float, status_quo: float) -> float:
    """What target queries gain on the source's gallery: (M(t/s) - M(s/s)) / M(s/s) (DMU, section 3.2).

    Args:
        cross: M(t/s), target queries on the source's vectors.
        status_quo: M(s/s), above 0.

    Raises:
        InvalidInput: The status quo is not above 0.

    Examples:
        >>> round(cs.evaluation.upgrade_gain(0.66, 0.60), 2)
        0.1
    """
    return (cross - status_quo) / _positive(status_quo, "M(s/s)")


@checked
def degradation(oracle: float, compatible: float) -> float:
    """What compatibility costs the target model: (M(o/o) - M(t/t)) / M(o/o) (DMU, section 3.2).

    Args:
        oracle: M(o/o), of the same model trained without regard for the source; above 0.
        compatible: M(t/t).

    Raises:
        InvalidInput: The oracle's figure is not above 0.

    Examples:
        >>> round(cs.evaluation.degradation(0.80, 0.76), 2)
        0.05
    """
    return (oracle - compatible) / _positive(oracle, "M(o/o)")


@checked_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class CompatibilityMatrix:
    """Quality of every version's queries on every version's gallery (Biondi et al., arXiv 2405.02581).

    Args:
        names: The v versions, oldest first.
        values: (v, v) float64; entry (i, j) is M(query of version i / gallery of version j), between 0 and 1.
        metric: What M is, "cmc@1" or "map".

    Raises:
        InvalidInput: The matrix is not v x v.

    Examples:
        >>> draw = np.random.default_rng(0)
        >>> labels = np.arange(30) % 3
        >>> good = np.eye(3, dtype=np.float32)[labels] + draw.normal(0, 0.1, (30, 3)).astype(np.float32)
        >>> poor = good + draw.normal(0, 1.0, (30, 3)).astype(np.float32)
        >>> matrix = cs.evaluation.compatibility_matrix(["v1", "v2"], [poor, good], [poor, good], labels, labels)
        >>> matrix.names, matrix.metric
        (('v1', 'v2'), 'cmc@1')
    """

    names: tuple[str, ...]
    values: Doubles
    metric: str = "cmc@1"

    def __post_init__(self) -> None:
        expected = (len(self.names),) * 2
        if self.values.shape != expected:
            raise InvalidInput("compare versions", expected=f"a matrix {expected}", found=f"{self.values.shape}")

    @property
    def compatibility(self) -> float:
        """AC, average compatibility: share of pairs i > j with M(i/j) > M(j/j), an upgrade that pays at once.

        Raises:
            InvalidInput: There is one version only.
        """
        later, earlier = np.tril_indices(len(self.names), -1)
        if not later.size:
            raise InvalidInput("average over pairs of versions", expected="2 versions or more", found="1")
        return float(np.mean(self.values[later, earlier] > self.values[earlier, earlier]))

    @property
    def accuracy(self) -> float:
        """AA, average accuracy: mean of M(i/j) over i >= j, the diagonal included."""
        return float(self.values[np.tril_indices(len(self.names))].mean())


@checked
def compatibility_matrix(
    names: Sequence[str],
    queries: Sequence[FloatArray],
    galleries: Sequence[FloatArray],
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    metric: str = "cmc@1",
    distance: Metric = "cosine",
) -> CompatibilityMatrix:
    """Measure every version's queries on every version's gallery.

    Where two versions differ in length, queries are cut or filled up with zeros (`fit_length`): for versions of a
    series that only ever append values this is how they are compared, for others it is the naive swap. A query that is
    cut to zeros has no direction left, and finds nothing under cosine.

    Args:
        names: The v versions, oldest first.
        queries: For each version (q, d_v) floats.
        galleries: For each version (n, d_v) floats.
        query_labels: (q,) integers or strings.
        gallery_labels: (n,) of the same kind.
        query_ids: (q,) integers or strings, or None.
        gallery_ids: (n,) of the same kind, each once, or None.
        metric: "map" or "cmc@k".
        distance: "l2", "cosine" or "dot".

    Raises:
        InvalidInput: Not as many tables as versions, and as `retrieval_metrics`. An unknown metric, and as
            `retrieval_metrics`.

    Examples:
        >>> draw = np.random.default_rng(0)
        >>> labels = np.arange(30) % 3
        >>> good = np.eye(3, dtype=np.float32)[labels] + draw.normal(0, 0.1, (30, 3)).astype(np.float32)
        >>> poor = good + draw.normal(0, 1.0, (30, 3)).astype(np.float32)
        >>> matrix = cs.evaluation.compatibility_matrix(["v1", "v2"], [poor, good], [poor, good], labels, labels)
        >>> matrix.values.shape
        (2, 2)
    """
    if not len(names) == len(queries) == len(galleries):
        found = f"{len(queries)} tables of queries, {len(galleries)} galleries"
        raise InvalidInput("compare versions", expected=f"{len(names)} of each", found=found)
    k = 1 if metric == "map" else rank_of(metric)
    require_ranks((k,))
    queries, galleries = (
        [array_of(table, "compare versions", "vectors", ndim=2) for table in tables] for tables in (queries, galleries)
    )

    def entry(query: FloatArray, gallery: FloatArray) -> float:
        cut = query.shape[1] > gallery.shape[1]
        fitted = fit_length(query, gallery.shape[1])
        distances = measure(fitted, gallery, distance, undirected="lose" if cut else "refuse")
        ranking = rank_by_labels(distances, query_labels, gallery_labels, query_ids, gallery_ids)
        found = summarise(ranking, (k,))
        return found.map if metric == "map" else found.cmc[k]

    values = np.array([[entry(query, gallery) for gallery in galleries] for query in queries])
    return CompatibilityMatrix(names=tuple(names), values=values, metric=metric)


def fit_length(vectors: FloatArray, dim: int) -> FloatArray:
    """Cut vectors (n, d) to `dim` values, or fill them up with zeros: what a naive swap of models has to do."""
    cut = vectors[:, :dim]
    return np.pad(cut, ((0, 0), (0, dim - cut.shape[1])))


def rank_of(metric: str) -> int:
    """The k of "cmc@k".

    Raises:
        InvalidInput: It is not of that form.
    """
    name, _, k = metric.partition("@")
    if name != "cmc" or not k.isdecimal():
        raise InvalidInput("read a metric", expected='"map" or "cmc@k"', found=repr(metric))
    return int(k)


def _positive(value: float, name: str) -> float:
    if not value > 0:
        raise InvalidInput("compare with a reference", expected=f"{name} above 0", found=f"{value}")
    return value
