"""Shrinkage factors of the cosines of transformed vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.errors import CorruptArtifact
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.records import VersionRecord


def shrinkage_of(catalog: Catalog, origin: str) -> Shrinkage | None:
    """The shrinkage of an origin's artifact; None for several artifacts, whose sigma^2 is the last one's error only."""
    return None if "+" in origin else Shrinkage.of(catalog.manifest(origin).figures)


def has_shrinkage(catalog: Catalog, record: VersionRecord, path: Sequence[str]) -> bool:
    """True if distances to the vectors that a path of artifacts makes are shrunk by their predicted error."""
    return len(path) == 1 and by_angle(record) and shrinkage_of(catalog, path[0]) is not None


def by_angle(record: VersionRecord) -> bool:
    """True if angles alone rank the vectors of a version."""
    return (record.metric == "cosine" or record.normalised) and record.dtype != "bits"


def kept_cosines(catalog: Catalog, origins: npt.NDArray[np.object_], sigma2: FloatArray) -> Doubles:
    """Factors by which cosines of transformed vectors become the expected ones of native vectors.

    Args:
        catalog: The gallery's.
        origins: (n,) object, `NATIVE`, ids of artifacts, or "" if there is no vector.
        sigma2: (n,) float32, NaN if it is not known.

    Returns:
        (n,) float64, 0 or more; 1 of native vectors, and of those of artifacts that were not measured.
    """
    factors = np.ones(len(sigma2))
    for origin in set(origins) - {NATIVE, ""}:
        shrinkage = shrinkage_of(catalog, origin)
        if shrinkage is not None:
            rows = origins == origin
            factors[rows] = shrinkage.at(sigma2[rows])
    return factors


@dataclass(frozen=True)
class ShrinkageBounds:
    """Bounds of the shrinkage factors of a version's vectors by their sigma^2, over all artifacts.

    Args:
        shrinkages: Those of the artifacts that lead to the version and were measured.
        unmeasured: True if other artifacts, or chains of several, may have made some: their factor is 1.
    """

    shrinkages: tuple[Shrinkage, ...]
    unmeasured: bool

    @classmethod
    def of(cls, catalog: Catalog, version: str) -> ShrinkageBounds:
        """The bounds for a version, with the artifacts that are linked now."""
        records = catalog.recorded().artifacts.values()
        leading = [record for record in records if record.target == version]
        found = list[Shrinkage | None]()
        for record in leading:
            with suppress(CorruptArtifact):  # reading its vectors raises it
                found.append(shrinkage_of(catalog, record.id))
        chained = {record.source for record in leading} & {record.target for record in records}
        return cls(tuple(one for one in found if one is not None), None in found or bool(chained))

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest factor of any vector; 1, of native vectors, is between the two."""
        factors = [1.0, *(factor for shrinkage in self.shrinkages for factor in shrinkage.factors)]
        return min(factors), max(factors)

    def bounds(self, sigma2: FloatArray) -> tuple[Doubles, Doubles]:
        """The least and the largest factor by sigma^2, NaN of native vectors: (n,) float32 -> two (n,) float64."""
        found = [shrinkage.at(sigma2) for shrinkage in self.shrinkages]
        if self.unmeasured or not found:
            found.append(np.ones(len(sigma2)))
        return np.min(found, axis=0), np.max(found, axis=0)
