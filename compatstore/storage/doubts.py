"""What artifacts say of vectors that they made: how much of its cosine each is expected to keep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.records import VersionRecord

FIRST = 100  # candidates of a search that are ranked by expected distances, where nobody names a number


def shrinkage_of(catalog: Catalog, origin: str) -> Shrinkage | None:
    """What was measured of the artifact that an origin names; None of several: sigma^2 is of the last one's error."""
    return None if "+" in origin else Shrinkage.of(catalog.artifact(origin).manifest.figures)


def can_doubt(catalog: Catalog, record: VersionRecord, path: Sequence[str]) -> bool:
    """Whether a version that a path of artifacts leads to can be searched by expected distances."""
    by_angle = record.metric == "cosine" or record.normalised
    measured = len(path) == 1 and shrinkage_of(catalog, path[0]) is not None
    return measured and by_angle and record.dtype != "bits"


def kept_cosines(catalog: Catalog, origins: npt.NDArray[np.object_], sigma2: FloatArray) -> Doubles:
    """What the cosine of a query with each vector is multiplied by, to be what is expected of its native vector.

    Args:
        catalog: The gallery's.
        origins: (n,) object, `NATIVE` or ids of artifacts.
        sigma2: (n,) float32, NaN where it is not known.

    Returns:
        (n,) float64, 0 or more; 1 of native vectors, and of those of artifacts that were not measured.
    """
    factors = np.ones(len(sigma2))
    for origin in set(origins) - {NATIVE}:
        shrinkage = shrinkage_of(catalog, origin)
        if shrinkage is not None:
            rows = origins == origin
            factors[rows] = shrinkage.at(sigma2[rows])
    return factors


def range_of_factors(catalog: Catalog, version: str) -> tuple[float, float]:
    """The least and the largest factor that `kept_cosines` can give for vectors of a version; 1 is between the two."""
    ids = [found.id for found in catalog.recorded().artifacts.values() if found.target == version]
    known = [shrinkage for shrinkage in map(partial(shrinkage_of, catalog), ids) if shrinkage is not None]
    factors = [1.0, *(factor for shrinkage in known for factor in shrinkage.factors)]
    return min(factors), max(factors)
