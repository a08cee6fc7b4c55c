"""The models of a trial once more, by another classification loss than ArcFace's: source, target, and every method."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from benchmarks.methods.models import Models

# Cross-entropy on unit features without a scale, as BT^2's authors train all.
UNSCALED = {"head": "unit-linear"}
# A margin that costs the same at every angle (benchmarks.methods.margins).
COSFACE = {"head": "cosface", "scale": 30.0, "margin": 0.2}


@dataclass(frozen=True, eq=False)
class OtherLoss(Models):
    """Source, independent target and everything that a row trains classify by `loss`, in place of ArcFace."""

    loss: dict[str, Any] = field(default_factory=dict)

    def classifier(self, **which: Any) -> dict[str, Any]:
        """Settings of every classifier; all embeddings have unit length."""
        return {**super().classifier(**which), **self.loss}


@lru_cache(maxsize=1)
def unscaled(models: Models) -> OtherLoss:
    """The same trial by cross-entropy; its source and independent target are trained once for all rows."""
    return trained_by(models, UNSCALED)


@lru_cache(maxsize=1)
def cosface(models: Models) -> OtherLoss:
    """The same trial by CosFace; its source and independent target are trained once for all rows."""
    return trained_by(models, COSFACE)


def trained_by(models: Models, loss: dict[str, Any]) -> OtherLoss:
    """The same trial by a loss."""
    return OtherLoss(**{each.name: getattr(models, each.name) for each in fields(models)}, loss=loss)
