"""Apply the artifacts of an upgrade's path, one after the other, to vectors of its source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, FloatArray
from compatstore.artifacts import Artifact
from compatstore.artifacts.network import Precision
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.storage.records import RunRecord
from compatstore.storage.vector_form import VectorForm


@dataclass(frozen=True)
class Transformer:
    """A chain of forward transforms, h then the next h on what h and g made (FCT, section 4.4).

    Args:
        artifacts: In the order in which they are applied.
        device: "cpu" or "cuda"; None takes the CPU.
        precision: "float32", or "bfloat16" where speed matters more than the last digits.
        form: How the target keeps what is made; None where it is not kept.
    """

    artifacts: tuple[Artifact, ...]
    device: str | None = None
    precision: Precision = "float32"
    form: VectorForm | None = None

    @property
    def origin(self) -> str:
        """What the transformed vectors record as their origin: the artifacts' short ids."""
        return "+".join(artifact.short_id for artifact in self.artifacts)

    @property
    def exact(self) -> bool:
        """Whether native vectors stay native: nothing is learned, all is derived."""
        return all(artifact.behaviour.exact for artifact in self.artifacts)

    def origins(self, source: VersionValues) -> npt.NDArray[np.object_]:
        """What vectors that are made of these record as their origin: (n,) object.

        What is derived of a native vector is native, and of any other vector what made that one and the derivation.
        """
        n = len(source.origin)
        if not self.exact:
            return np.full(n, self.origin, object)
        origins, made = np.full(n, NATIVE, object), source.origin != NATIVE
        origins[made] = source.origin[made] + f"+{self.origin}"
        return origins

    @property
    def needs_side(self) -> bool:
        """Whether the first artifact reads side-information."""
        return self.artifacts[0].manifest.side_source is not None

    def possible(self, source: VersionValues) -> BoolArray:
        """Which rows can be transformed: (n,) bool. The vector, and side-information if it is read, must be finite."""
        rows = source.valid & np.isfinite(source.vectors).all(axis=1)
        if self.needs_side:
            rows = rows & source.side_valid
        return rows

    def apply(self, source: VersionValues) -> VersionValues:
        """Transform all rows, every one of which must be `possible`; their input hash is left to the caller.

        What an artifact makes is checked as what users hand over is: a row that comes out as NaN, infinite, beyond
        what the target stores or without a direction under its cosine is not valid, and counts as missing. Of
        side-information and uncertainty only the values at fault are left out.
        """
        n = len(source.vectors)
        vectors, side, uncertainty = source.vectors, source.side, None
        valid, side_valid = np.ones(n, bool), source.side_valid
        for artifact in self.artifacts:
            read = None
            if artifact.manifest.side_source is not None:
                read, valid = side, valid & side_valid
            made = artifact.apply(vectors, read, device=self.device, precision=self.precision)
            uncertainty, side, side_valid = made.uncertainty, None, np.zeros(n, bool)
            vectors, finite = _finite(made.vectors)
            valid = valid & finite
            if made.side is not None:
                side, side_valid = _finite(made.side)
        if self.form is not None:
            vectors = self.form.stored(vectors)
            valid = valid & self.form.searchable(vectors)
        return VersionValues(
            vectors=vectors,
            valid=valid,
            origin=self.origins(source),
            uncertainty=_known(uncertainty, n),
            input_hash=np.zeros(n, np.uint64),
            side=side,
            side_valid=side_valid & valid,
        )

    def fill(self, target: VersionValues, source: VersionValues, todo: BoolArray) -> None:
        """Transform the rows of `todo` that can be, in place."""
        rows = todo & self.possible(source)
        if rows.any():
            target.put(rows, self.apply(source.take(rows)))


def transformer_of(
    catalog: Catalog,
    run: RunRecord,
    *,
    device: str | None = None,
    precision: Precision = "float32",
) -> Transformer:
    """The transformer of an upgrade; its artifacts are loaded and verified."""
    artifacts = tuple(catalog.artifact(artifact_id) for artifact_id in run.path)
    return Transformer(artifacts, device, precision, VectorForm.of(catalog.registry().record(run.target)))


def _finite(rows: FloatArray) -> tuple[FloatArray, BoolArray]:
    """(n, dim) with zeros in place of rows that are not finite, and which rows are."""
    finite = np.asarray(np.isfinite(rows).all(axis=1), bool)
    return (rows if finite.all() else np.where(finite[:, None], rows, np.float32(0))), finite


def _known(uncertainty: FloatArray | None, n: int) -> FloatArray:
    """(n,) sigma^2, NaN where it is unknown or no number."""
    if uncertainty is None:
        return np.full(n, np.nan, np.float32)
    return np.where(np.isfinite(uncertainty), uncertainty, np.float32(np.nan))
