"""Shrinkage factors of a transformed vector's cosines, by its sigma^2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from compatstore.arrays import Doubles, FloatArray

FIGURE: Final = "shrinkage"  # among the figures of a transform's network h


@dataclass(frozen=True)
class Shrinkage:
    """Factors of the cosine of a query with a transformed vector; `trainers.pairs.shrinking` measures them.

    Args:
        log_sigma2: (b,) log sigma^2, ascending, among those of the held-out rows.
        factors: (b,) of vectors with these, 0 or more; above 1 if the least uncertain vectors should rank before
            native ones.
        exponent: The power of E[cos(h, n) | sigma^2] / E[cos(h, n)]^level that the factors are, at most 1; 0 leaves
            cosines.
        level: 0 if native vectors are compared with the expected cosines of transformed ones, 1 if these are scaled
            to be as near on average.
    """

    log_sigma2: tuple[float, ...]
    factors: tuple[float, ...]
    exponent: float
    level: float = 1.0

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Shrinkage | None:
        """Read it from the figures of an artifact; None if none was measured."""
        network = figures.get("h")
        found = network.get(FIGURE) if isinstance(network, Mapping) else None
        if found is None:
            return None
        return cls(tuple(found["log_sigma2"]), tuple(found["factors"]), found["exponent"], found["level"])

    def figure(self) -> dict[str, Any]:
        """JSON-able values, as `of` reads them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def at(self, sigma2: FloatArray) -> Doubles:
        """(n,) float32 -> (n,) float64: the factor of each row; 1 if sigma^2 is NaN."""
        known = ~np.isnan(sigma2)
        logs = np.log(np.where(known, np.maximum(sigma2, np.finfo(np.float32).tiny), 1.0).astype(np.float64))
        found: Doubles = np.where(known, np.interp(logs, self.log_sigma2, self.factors), 1.0)
        return found
