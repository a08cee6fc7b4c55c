"""The protocol of trainers on pairs, and what Auto and QueryAdapter do with any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from compatstore.artifacts.artifact import Artifact
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.training import OnEpoch


class PairTrainer(Protocol):
    """A frozen dataclass of settings that learns a ForwardTransform from pairs."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Learn from pairs; `progress` is called after each epoch, if there are any."""
        ...


Trainer = TypeVar("Trainer", bound=PairTrainer)


def without_holdout(trainer: Trainer) -> Trainer:
    """Return the trainer with all rows to learn from, for callers that hold out rows of their own.

    A trainer that chooses by held-out rows has a class attribute `needs_holdout`, and is returned as it is.
    """
    if "holdout" not in trainer.__dataclass_fields__ or getattr(trainer, "needs_holdout", False):
        return trainer
    return replace(trainer, holdout=0.0)


def describe(trainer: PairTrainer) -> str:
    """Return the trainer's name and the settings that are not its defaults: "FCT(epochs=5)"."""
    changed = [f"{name}={value!r}" for name, value in _changed(trainer).items()]
    return type(trainer).__name__ + (f"({', '.join(changed)})" if changed else "")


def _changed(trainer: PairTrainer) -> Mapping[str, Any]:
    values = {field.name: (getattr(trainer, field.name), field.default) for field in fields(trainer)}
    return {name: value for name, (value, default) in values.items() if value != default}
