"""Apply the artifacts of an upgrade's path, one after the other, to vectors of its source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.artifacts import Artifact
from compatstore.artifacts.network import Precision
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import BoolArray, VersionValues
from compatstore.storage.records import RunRecord


@dataclass(frozen=True)
class Transformer:
    """A chain of forward transforms, h then the next h on what h and g made (FCT, section 4.4).

    Args:
        artifacts: In the order in which they are applied.
        device: "cpu" or "cuda"; None takes the CPU.
        precision: "float32", or "bfloat16" where speed matters more than the last digits.
    """

    artifacts: tuple[Artifact, ...]
    device: str | None = None
    precision: Precision = "float32"

    @property
    def origin(self) -> str:
        """What the transformed vectors record as their origin: the artifacts' short ids."""
        return "+".join(artifact.short_id for artifact in self.artifacts)

    @property
    def needs_side(self) -> bool:
        """Whether the first artifact reads side-information."""
        return self.artifacts[0].manifest.side_source is not None

    def possible(self, source: VersionValues) -> BoolArray:
        """Which rows can be transformed: (n,) bool. A vector must be there and finite, side-information likewise."""
        rows = source.valid & np.isfinite(source.vectors).all(axis=1)
        if self.needs_side:
            rows = rows & source.side_valid
        return rows

    def apply(self, source: VersionValues) -> VersionValues:
        """Transform all rows, every one of which must be `possible`; their basis is left to the caller."""
        vectors, side, uncertainty = source.vectors, source.side, None
        for artifact in self.artifacts:
            read = side if artifact.manifest.side_source is not None else None
            made = artifact.apply(vectors, read, device=self.device, precision=self.precision)
            vectors, side, uncertainty = made.vectors, made.side, made.uncertainty
        n = len(vectors)
        return VersionValues(
            vectors=vectors,
            valid=np.ones(n, bool),
            origin=np.full(n, self.origin, object),
            uncertainty=np.full(n, np.nan, np.float32) if uncertainty is None else uncertainty,
            basis=np.zeros(n, np.uint64),
            side=side,
            side_valid=np.full(n, side is not None),
        )

    def fill(self, target: VersionValues, source: VersionValues, todo: BoolArray) -> None:
        """Transform the rows of `todo` that can be, in place."""
        rows = todo & self.possible(source)
        if rows.any():
            target.put(rows, self.apply(source.take(rows)))


def transformer_of(
    catalog: Catalog, run: RunRecord, *, device: str | None = None, precision: Precision = "float32"
) -> Transformer:
    """The transformer of an upgrade; its artifacts are loaded and verified."""
    artifacts = tuple(catalog.artifact(artifact_id) for artifact_id in run.path)
    return Transformer(artifacts, device, precision)
