"""Figures of a transform on rows that it was not trained on."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.trainers.pairs.kendall import kendall_tau
from compatstore.versions import Metric

# Neighbours are looked for among this many rows at most: 64 MB of distances.
_MOST_ROWS = 4096


def held_out_figures(
    predicted: FloatArray,
    target: FloatArray,
    metric: Metric | None,
    *,
    transformed: Literal["gallery", "queries"] = "gallery",
) -> dict[str, float]:
    """Compare transformed with native vectors of held-out rows.

    Args:
        predicted: (n, target dim) float32, transformed.
        target: (n, target dim) float32, native.
        metric: Of the target space; None counts as "l2".
        transformed: Which side of a search the transformed vectors stand on.

    Returns:
        `rows`; `mean_squared_error`, and that of always saying the mean vector (`mean_squared_error_of_mean`);
        mean `cosine_similarity`; `recall_at_1` and `recall_at_10`: of the nearest native neighbours of a native
        query, the share that are among the nearest when gallery or query is transformed, itself left out. A recall
        that has too few rows is missing.
    """
    figures = {
        "rows": float(len(target)),
        "mean_squared_error": float(np.square(predicted - target).mean()),
        "mean_squared_error_of_mean": float(np.square(target - target.mean(axis=0)).mean()),
        "cosine_similarity": float((_unit(predicted) * _unit(target)).sum(axis=1).mean()),
    }
    predicted, target = predicted[:_MOST_ROWS], target[:_MOST_ROWS]
    for k in (1, 10):
        if len(target) > k:
            searched = (target, predicted) if transformed == "gallery" else (predicted, target)
            figures[f"recall_at_{k}"] = _recall(target, searched, metric or "l2", k)
    return figures


def uncertainty_figures(sigma2: FloatArray, error: FloatArray, squared_distance: FloatArray) -> dict[str, float]:
    """Compare predicted uncertainty with the errors that were made on held-out rows.

    Args:
        sigma2: (n,) float32, predicted.
        error: (n,) float32, the loss of each row that sigma^2 was trained to predict.
        squared_distance: (n,) float32, from the transformed to the native vector.

    Returns:
        `mean_sigma2`; `kendall_tau` of sigma^2 with the loss and `kendall_tau_l2` with the squared distance, from -1
        to 1: 0 orders a backfill no better than chance (FastFill, section 4.2, reports 0.67 and 0.65).
    """
    return {
        "mean_sigma2": float(sigma2.astype(np.float64).mean()),
        "kendall_tau": kendall_tau(sigma2[:_MOST_ROWS], error[:_MOST_ROWS]),
        "kendall_tau_l2": kendall_tau(sigma2[:_MOST_ROWS], squared_distance[:_MOST_ROWS]),
    }


def _recall(target: FloatArray, searched: tuple[FloatArray, FloatArray], metric: Metric, k: int) -> float:
    true = _neighbours(target, target, metric, k)
    found = _neighbours(*searched, metric, k)
    return float(np.mean([len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(true, found, strict=True)]) / k)


def _neighbours(queries: FloatArray, gallery: FloatArray, metric: Metric, k: int) -> npt.NDArray[np.intp]:
    if metric == "cosine":
        queries, gallery = _unit(queries), _unit(gallery)
    distances = -2 * (queries @ gallery.T)
    if metric == "l2":
        distances += np.square(gallery).sum(axis=1)
    np.fill_diagonal(distances, np.inf)
    return np.argpartition(distances, k - 1, axis=1)[:, :k]


def _unit(vectors: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return cast(FloatArray, vectors / np.maximum(lengths, np.finfo(np.float32).tiny))
