"""Apply the artifacts of an upgrade's path, one after the other, to vectors of its source, in a chosen precision."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, FloatArray
from compatstore.artifacts import Artifact
from compatstore.artifacts.network import Precision, PrecisionRequest
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.storage.records import RunRecord
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext


@dataclass(frozen=True)
class Transformer:
    """A chain of forward transforms, h then the next h on the output of h and g (FCT, section 4.4).

    Args:
        artifacts: In the order in which they are applied.
        device: "cpu" or "cuda"; None takes the CPU.
        precision: "float32", or "bfloat16" if speed matters more than the last digits.
        form: Storage format of the target; None if nothing is stored.
    """

    artifacts: tuple[Artifact, ...]
    device: str | None = None
    precision: Precision = "float32"
    form: VectorForm | None = None

    @property
    def origin(self) -> str:
        """Recorded origin of the transformed vectors: the artifacts' short ids."""
        return "+".join(artifact.short_id for artifact in self.artifacts)

    @property
    def exact(self) -> bool:
        """True if native vectors stay native: nothing is learned, all is derived."""
        return all(artifact.behaviour.exact for artifact in self.artifacts)

    def origins(self, source: VersionValues) -> npt.NDArray[np.object_]:
        """Recorded origin of vectors that are made of these: (n,) object.

        Deriving from a native vector yields a native vector; otherwise the derivation is appended to the origin.
        """
        n = len(source.origin)
        if not self.exact:
            return np.full(n, self.origin, object)
        origins, made = np.full(n, NATIVE, object), source.origin != NATIVE
        origins[made] = source.origin[made] + f"+{self.origin}"
        return origins

    @property
    def needs_side(self) -> bool:
        """True if the first artifact reads side-information."""
        return self.artifacts[0].manifest.side_source is not None

    def possible(self, source: VersionValues) -> BoolArray:
        """Which rows can be transformed: (n,) bool. The vector, and side-information if it is read, must be finite."""
        rows = source.valid & np.isfinite(source.vectors).all(axis=1)
        if self.needs_side:
            rows = rows & source.side_valid
        return rows

    def apply(self, source: VersionValues) -> VersionValues:
        """Transform all rows, every one of which must be `possible`; their input hash is left to the caller.

        The output of an artifact is validated like user input: a row that is NaN, infinite, beyond
        the target's range or without a direction under its cosine is not valid, and counts as missing. Of
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
        sides = {"side": side, "side_valid": side_valid & valid}
        return VersionValues.of(
            vectors, valid, origin=self.origins(source), uncertainty=_known(uncertainty, n), **sides
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


TRIAL_ROWS = 1024
FEWEST_ROWS = 32_768  # a hop of fewer rows ends before a trial has paid for itself
FASTER = 1.1  # a smaller gain may be noise
CLOSE = 0.999  # bfloat16 keeps 8 bits of a product; a network that loses more than this loses neighbours


def choose_precision(
    context: UpgradeContext, transformer: Transformer | None, request: PrecisionRequest, rows: int
) -> Precision:
    """Choose the precision of a hop; "auto" tries both on rows of the source.

    Args:
        context: The upgrade, resolved.
        transformer: Its hop, or None if nothing is transformed.
        request: "auto" takes bfloat16 where it is at least 1.1 times as fast and no output's cosine with float32's is
            below 0.999; "float32" and "bfloat16" are taken as they are.
        rows: Rows that are to be transformed; for fewer than 32,768 "auto" tries nothing and takes float32.
    """
    if request != "auto":
        return request
    if transformer is None or rows < FEWEST_ROWS or find_spec("torch") is None:
        return "float32"
    sample = sample_source(context, transformer, TRIAL_ROWS)
    if not len(sample.valid):
        return "float32"
    speed, cosine = try_precisions(transformer, sample)
    return "bfloat16" if speed >= FASTER and cosine >= CLOSE else "float32"


def try_precisions(transformer: Transformer, sample: VersionValues) -> tuple[float, float]:
    """Transform the same rows in both precisions.

    Args:
        transformer: The hop; its own precision is ignored.
        sample: Rows of the source, all of which can be transformed.

    Returns:
        Rows per second in bfloat16, as a multiple of float32's, and the smallest cosine between a row's two outputs.
    """
    exact, exact_seconds = _timed(replace(transformer, precision="float32"), sample)
    rough, rough_seconds = _timed(replace(transformer, precision="bfloat16"), sample)
    products = np.einsum("nd,nd->n", exact.vectors, rough.vectors, dtype=np.float64)
    lengths = np.linalg.norm(exact.vectors, axis=1) * np.linalg.norm(rough.vectors, axis=1)
    cosines = np.divide(products, lengths, out=np.ones_like(products), where=lengths > 0)
    return exact_seconds / rough_seconds, float(cosines.min())


def sample_source(context: UpgradeContext, transformer: Transformer, limit: int) -> VersionValues:
    """The first rows of the source, `limit` at most, less those that cannot be transformed."""
    columns = context.source
    rows = context.snapshot.to_table(columns=columns.item_names, filter=columns.present, limit=limit)
    sample = columns.read_items(rows)
    return sample.take(transformer.possible(sample))


def _timed(transformer: Transformer, sample: VersionValues) -> tuple[VersionValues, float]:
    """Output of the transformer for a sample, and the seconds of the faster of two runs, after a warm-up."""
    made, seconds = transformer.apply(sample), []
    for _ in range(2):
        started = time.perf_counter()
        made = transformer.apply(sample)
        seconds.append(time.perf_counter() - started)
    return made, min(seconds)
