"""Protocol of trainers on pairs, their artifacts, and figures on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, fields, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Network
from compatstore.evaluation import kendall_tau, recall_at_k
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import nearest_rows
from compatstore.trainers.pairs.pairs import Pairs, unit
from compatstore.trainers.pairs.shrinking import HeldOutRows, shrinkage_figure
from compatstore.trainers.training import OnEpoch
from compatstore.versions import Metric

# Neighbours are looked for among this many rows at most: 128 MB of distances.
_MOST_ROWS = 4096


class PairTrainer(Protocol):
    """A frozen dataclass of settings that learns a ForwardTransform from pairs."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Learn from pairs; `progress` is called after each epoch, if there are any."""


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
    settings = [(field.name, getattr(trainer, field.name), field.default) for field in fields(trainer) if field.repr]
    changed = [f"{name}={value!r}" for name, value, default in settings if value != default]
    return type(trainer).__name__ + (f"({', '.join(changed)})" if changed else "")


def forward_transform(
    trainer: PairTrainer,
    pairs: Pairs,
    networks: Mapping[str, Network],
    figures: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
) -> Artifact:
    """Make a ForwardTransform of trained networks.

    Args:
        trainer: The trainer, whose name and settings are recorded.
        pairs: All of the trainer's pairs, those held out too.
        networks: h, and g where the target's side-information is transformed.
        figures: Held-out figures.
        settings: Further settings to record.
    """
    return Artifact.create(
        "ForwardTransform",
        method=type(trainer).__name__,
        source=pairs.source_space,
        target=pairs.target_space,
        side_source=None if networks["h"].architecture.side_dim is None else pairs.side_source,
        side_target=pairs.side_target if "g" in networks else None,
        networks={name: network.architecture for name, network in networks.items()},
        tensors={f"{name}.{key}": tensor for name, made in networks.items() for key, tensor in made.tensors.items()},
        settings={**asdict(trainer), **(settings or {})},
        figures=figures,
        seen=pairs.seen,
    )


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
        transformed: The transformed side of a search.

    Returns:
        `rows`; `mean_squared_error`, and that of always predicting the mean vector (`mean_squared_error_of_mean`);
        mean `cosine_similarity`; `recall_at_1` and `recall_at_10`: of the nearest native neighbours of a native
        query, the share that are among the nearest when gallery or query is transformed; the query's own item is left
        out. A recall for which there are too few rows is missing.
    """
    figures = {
        "rows": float(len(target)),
        "mean_squared_error": float(np.square(predicted - target).mean()),
        "mean_squared_error_of_mean": float(np.square(target - target.mean(axis=0)).mean()),
        "cosine_similarity": float((unit(predicted) * unit(target)).sum(axis=1).mean()),
    }
    predicted, target = predicted[:_MOST_ROWS], target[:_MOST_ROWS]
    if metric == "cosine":  # vectors without a direction are orthogonal to all others here; a search refuses them
        predicted, target = unit(predicted), unit(target)
    named = "dot" if metric == "cosine" else metric or "l2"
    searched = (target, predicted) if transformed == "gallery" else (predicted, target)
    true, found, itself = measure(target, target, named), measure(*searched, named), np.arange(len(target))
    for k in (1, 10):
        if len(target) > k:
            figures[f"recall_at_{k}"] = recall_at_k(nearest_rows(found, k, itself), nearest_rows(true, k, itself))
    return figures


def hop_figures(
    predicted: FloatArray,
    sigma2: FloatArray | None,
    held_out: Pairs,
    metric: Metric | None,
    error: FloatArray | None = None,
) -> dict[str, Any]:
    """`held_out_figures` of a hop, and a comparison of its predicted uncertainty with the errors that it made.

    Args:
        predicted: (n, target dim) float32, transformed vectors of rows held out.
        sigma2: (n,) float32, predicted; None of a transform that predicts none.
        held_out: These rows.
        metric: Of the target space.
        error: (n,) float32, the loss of each row that sigma^2 was trained to predict; None for the squared distance.

    Returns:
        With sigma^2 also `mean_sigma2`; `kendall_tau` of sigma^2 with the loss and `kendall_tau_l2` with the squared
        distance, from -1 to 1: 0 orders a backfill no better than chance (FastFill reports 0.67 and 0.65, section 4.2
        and appendix E); and the figure of `shrinkage_figure`.
    """
    figures: dict[str, Any] = held_out_figures(predicted, held_out.target, metric)
    if sigma2 is None:
        return figures
    some, apart = slice(_MOST_ROWS), np.square(predicted - held_out.target).sum(axis=1)
    figures["mean_sigma2"] = float(sigma2.astype(np.float64).mean())
    figures["kendall_tau"] = agreement(sigma2[some], (apart if error is None else error)[some])
    figures["kendall_tau_l2"] = agreement(sigma2[some], apart[some])
    return figures | shrinkage_figure(HeldOutRows(sigma2, predicted, held_out.target, held_out.labels), metric)


def agreement(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Kendall's tau-b of two scores of the same items, (n,) each; 0 if either score is the same for all items."""
    return kendall_tau(one, other) if np.ptp(np.asarray(one)) > 0 and np.ptp(np.asarray(other)) > 0 else 0.0
