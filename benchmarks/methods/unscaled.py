"""The models of a trial once more, by cross-entropy on unit features without a scale, as BT^2's authors train all."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

from benchmarks.methods.models import Models


class Unscaled(Models):
    """Source, independent target and everything that a row trains classify by "unit-linear", in place of ArcFace."""

    def classifier(self, **which: Any) -> dict[str, Any]:
        """Settings of every classifier; all embeddings have unit length."""
        return {**super().classifier(**which), "head": "unit-linear"}


@lru_cache(maxsize=1)
def unscaled(models: Models) -> Unscaled:
    """The same trial with that loss; its source and independent target are trained once for all rows."""
    return Unscaled(**{field.name: getattr(models, field.name) for field in fields(models)})
