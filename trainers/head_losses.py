"""Logits of a classifier head that compares directions: scaled cosines, with an optional margin."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch.nn import functional

MarginKind = Literal["arcface", "cosface"]


def scaled_cosines(
    vectors: torch.Tensor,
    rows: torch.Tensor,
    *,
    scale: float,
    classes: torch.Tensor | None = None,
    margin: float = 0.0,
    kind: MarginKind = "arcface",
) -> torch.Tensor:
    """Multiply the cosines of vectors and head rows by a scale, those of true rows less by a margin.

    Args:
        vectors: (n, dim) float32, of any length.
        rows: (classes, dim) float32, of any length.
        scale: Multiplies the cosines, > 0.
        classes: (n,) int64, the true row of each vector, -1 for none; None leaves the cosines as they are.
        margin: Of "arcface", added to the angle between a vector and its true row, in radians, in [0, pi/2] (ArcFace,
            arXiv 1801.07698, equation 3); of "cosface", taken from their cosine, >= 0 (CosFace, arXiv 1801.09414,
            equation 4).
        kind: Kind of the margin.

    Returns:
        (n, classes) float32.
    """
    cosines = functional.normalize(vectors, dim=1) @ functional.normalize(rows, dim=1).T
    if classes is not None:
        is_true = torch.arange(len(rows), device=rows.device) == classes[:, None]
        true = with_margin(cosines, margin) if kind == "arcface" else cosines - margin
        cosines = torch.where(is_true, true, cosines)
    return scale * cosines


def with_margin(cosines: torch.Tensor, margin: float) -> torch.Tensor:
    """Return cos(angle + margin); where that angle would pass pi, a line that keeps falling, as in ArcFace's code."""
    sines = (1 - cosines.square()).clamp_min(1e-12).sqrt()  # the root of 0 has no gradient
    moved = cosines * math.cos(margin) - sines * math.sin(margin)
    return torch.where(cosines >= -math.cos(margin), moved, cosines - margin * math.sin(margin))
