"""Query adapter: search the source's gallery with target queries, before any stored vector has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.pairs.trainer import PairTrainer, describe, held_out_figures, without_holdout
from compatstore.trainers.settings import Share, require_settings
from compatstore.trainers.training import OnEpoch


@checked_fields
@dataclass(frozen=True, kw_only=True)
class QueryAdapter:
    """Learn a map target -> source for queries (Drift-Adapter, arXiv 2509.23471).

    Args:
        form: The map: any trainer on pairs, a closed form or a network; it is trained from target to source.
        holdout: Share of the rows kept out of learning to measure on, in [0, 1); 0 measures nothing. Takes the place
            of the form's own.
        seed: Of the choice of rows held out.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    form: PairTrainer = field(default_factory=Ridge)
    holdout: Share = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_settings(self)

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Learn from pairs in the direction of the upgrade, source to target; the map is trained from target to source.

        Args:
            pairs: What to learn from; side-information is left out, as a query has none.
            progress: Called after each epoch, if there are any.

        Returns:
            A QueryAdapter of the upgrade source -> target. In its figures the recall is that of adapted queries among
            the native source vectors, against a native source query.

        Raises:
            InvalidInput: The form cannot learn from these pairs.
        """
        kept, held_out = pairs.split(self.holdout, self.seed) if self.holdout else (pairs, None)
        learned = without_holdout(self.form).fit(reversed_pairs(kept), progress)
        adapter = self._adapter(pairs, learned, learned.manifest.figures)
        if held_out is None:
            return adapter
        adapted = adapter.apply(held_out.target).vectors
        measured = held_out_figures(adapted, held_out.source, held_out.source_space.metric, transformed="queries")
        figures = learned.manifest.figures
        return self._adapter(pairs, learned, {**figures, "h": {**figures.get("h", {}), **measured}})

    def _adapter(self, pairs: Pairs, learned: Artifact, figures: Mapping[str, Any]) -> Artifact:
        return Artifact.create(
            "QueryAdapter",
            method=learned.manifest.method,
            source=pairs.source_space,
            target=pairs.target_space,
            networks=learned.manifest.networks,
            tensors=learned.tensors,
            settings=asdict(self) | {"form": describe(self.form)},
            figures=figures,
            seen=pairs.seen,
        )


def reversed_pairs(pairs: Pairs) -> Pairs:
    """Swap source and target; side-information is left out."""
    return Pairs(
        pairs.target,
        pairs.source,
        labels=pairs.labels,
        ids=pairs.ids,
        source_version=pairs.target_version,
        target_version=pairs.source_version,
    )
