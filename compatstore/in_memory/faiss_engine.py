"""FAISS itself, imported where it is needed, and the metrics as it computes them."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.versions import METRICS, Metric

Device = Literal["auto", "cpu", "gpu"]


@cache
def load_faiss() -> Any:
    """The module `faiss`, of `faiss-cpu` or of `faiss-gpu`.

    Raises:
        MissingExtra: Neither is installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("faiss", "faiss") from error
    return faiss


def uses_gpu(device: Device) -> bool:
    """Whether a GPU computes: "auto" takes one where FAISS has one.

    Raises:
        MissingExtra: FAISS is not installed, or a GPU is asked for and FAISS was built without support for it.
        InvalidInput: A GPU is asked for, and this machine has none.
    """
    faiss = load_faiss()
    built = hasattr(faiss, "StandardGpuResources")
    found = faiss.get_num_gpus() if built else 0
    if device == "gpu" and not built:
        raise MissingExtra("faiss with support for GPUs", "gpu")
    if device == "gpu" and not found:
        raise InvalidInput("compute on a GPU", expected="a GPU that FAISS can use", found="none", fix='Use "cpu".')
    return device != "cpu" and found > 0


def metric_number(metric: Metric) -> int:
    """FAISS's number of the metric that orders vectors, as `as_compared` gives them, as `metric` does.

    Raises:
        InvalidInput: An unknown metric.
    """
    if metric not in METRICS:
        raise InvalidInput("compare vectors", expected=f"metric of {', '.join(METRICS)}", found=repr(metric))
    faiss = load_faiss()
    return int(faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)


def as_compared(vectors: FloatArray, metric: Metric) -> FloatArray:
    """Vectors as FAISS compares them: (n, dim) float32 -> (n, dim) float32, scaled to unit length under cosine."""
    if metric != "cosine":
        return np.ascontiguousarray(vectors)
    doubles = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", doubles, doubles))
    return np.ascontiguousarray(doubles / np.where(lengths > 0, lengths, 1)[:, None], np.float32)


def as_distances(found: FloatArray, metric: Metric) -> FloatArray:
    """What FAISS returns as distances of Lance: squared (l2), 1 - cosine, 1 - product (dot)."""
    return found if metric == "l2" else np.float32(1) - found
