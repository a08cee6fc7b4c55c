"""Predicted errors of transformed vectors: how they are spread over a gallery, and whether they come true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.evaluation import kendall_tau
from compatstore.storage.columns import NATIVE
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import Sample

BINS = 24
TENTHS = 10
FEWEST = 20  # transformed items with a native vector that say anything of ten bins


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Items whose predicted errors are alike.

    Args:
        items: How many.
        predicted: Mean of sigma squared.
        actual: Mean squared distance to the native vector, for each dimension.
    """

    items: int
    predicted: float
    actual: float


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """Predicted errors of the transformed vectors of a gallery.

    Args:
        edges: Of the bins of sigma squared, ascending, evenly spaced by their logarithms; one more than bins.
        counts: Transformed items in each bin.
        bins: Tenths of the measured items by sigma squared, ascending; () where too few were measured.
        tau: Kendall's tau-b of sigma squared and the squared distance over these items; None without them.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    bins: tuple[ReliabilityBin, ...] = ()
    tau: float | None = None


def uncertainty_of(context: UpgradeContext, sample: Sample | None) -> Uncertainty | None:
    """Read what the artifact predicts of each transformed vector; None where it predicts nothing.

    Args:
        context: The upgrade.
        sample: Items with native vectors, to hold the predictions against; None for none.
    """
    columns = context.target_record.columns
    if columns is None or columns.uncertainty is None:
        return None
    read = context.snapshot.to_batches(columns=[columns.uncertainty], filter=f"`{columns.uncertainty}` IS NOT NULL")
    parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in read]
    sigma2 = np.concatenate([np.zeros(0, np.float32), *parts])
    sigma2 = sigma2[np.isfinite(sigma2) & (sigma2 > 0)]
    if not len(sigma2):
        return None
    logs = np.log10(sigma2.astype(np.float64))
    span = (float(logs.min()), float(logs.max()))
    counts, edges = np.histogram(logs, BINS, range=span if span[1] - span[0] > 1e-6 else (span[0] - 0.5, span[0] + 0.5))
    bins, tau = ((), None) if sample is None else reliability_of(sample)
    return Uncertainty(
        edges=tuple(float(edge) for edge in 10.0**edges),
        counts=tuple(int(count) for count in counts),
        bins=bins,
        tau=tau,
    )


def reliability_of(sample: Sample) -> tuple[tuple[ReliabilityBin, ...], float | None]:
    """Hold what was predicted against what is, over items that are transformed and have a native vector."""
    served = sample.served
    rows = np.flatnonzero(served.valid & sample.embedded & (served.origin != NATIVE) & np.isfinite(served.uncertainty))
    if len(rows) < FEWEST:
        return (), None
    sigma2 = served.uncertainty[rows].astype(np.float64)
    errors = _errors(served.vectors[rows], sample.native[rows])
    order = np.argsort(sigma2, kind="stable")
    bins = tuple(
        ReliabilityBin(items=len(part), predicted=float(sigma2[part].mean()), actual=float(errors[part].mean()))
        for part in np.array_split(order, TENTHS)
    )
    varied = np.ptp(sigma2) > 0 and np.ptp(errors) > 0
    return bins, float(kendall_tau(sigma2, errors)) if varied else None


def _errors(vectors: FloatArray, natives: FloatArray) -> FloatArray:
    """(n,) float64, squared distance for each dimension."""
    errors: FloatArray = ((vectors.astype(np.float64) - natives) ** 2).mean(axis=1)
    return errors
