"""A hop in int8: scales from rows of the gallery, what int8 changes on others, and when it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from compatstore import next_step
from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts import Artifact
from compatstore.devices.fixed_int8 import FixedInt8, calibrated
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.storage.columns import VersionValues
from compatstore.storage.int8_scales import Int8Record, load_int8, save_int8
from compatstore.storage.store import storage_errors
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.transform import Transformer

SAMPLED = 2_048  # half of them give the scales, and the loss is measured on the others
LEAST_MEAN = 0.999  # of the cosines; below, int8 is refused


def require_int8(artifacts: Sequence[Artifact], device: str | None, *, relearns: bool) -> None:
    """Refuse a hop in int8 that cannot be, before anything is written.

    Args:
        artifacts: The chain of the hop.
        device: Where it is to run.
        relearns: Whether the upgrade may replace its artifact while it goes on.

    Raises:
        InvalidInput: It is a chain, is derived, is replaced while the upgrade goes on, or is to run on CUDA.
        MissingExtra: `onnx` or `onnxruntime` is not installed.
    """
    for module in ("onnx", "onnxruntime"):
        if find_spec(module) is None:
            raise MissingExtra(module, "onnx")
    expected, found = "an upgrade by one learned artifact, which stays, on the CPU", ""
    if relearns:
        found = "one that learns its artifact as it goes on"
    elif len(artifacts) > 1:
        found = f"a chain of {len(artifacts)}"
    elif artifacts and artifacts[0].behaviour.exact:
        found = f"one that is derived, by {artifacts[0].manifest.method}"
    elif (device or "cpu") != "cpu":
        found = f"device {device}"
    if found:
        raise InvalidInput(
            "hop in int8",
            expected=expected,
            found=found,
            fix=f"Use {next_step.option('precision', 'auto', within='RunSettings')} or float32.",
        )


def prepare_int8(
    context: UpgradeContext, transformer: Transformer, *, keep: bool
) -> tuple[FixedInt8, Int8Record] | None:
    """The artifact of a hop in int8, and what int8 was measured to change.

    What an earlier call has recorded is used again, so that the rows that are left come out as the others did.

    Args:
        context: The upgrade.
        transformer: Its hop, by one artifact.
        keep: Whether to record what is found out.

    Returns:
        None where the gallery has no rows to find out from.

    Raises:
        InvalidInput: It changes too much, or the artifact cannot be run in int8.
        MissingExtra: `onnx` or `onnxruntime` is not installed.
    """
    (artifact,), location, target = transformer.artifacts, context.store.location, context.run.target
    record = load_int8(location, target, artifact.id)
    if record is not None:
        return FixedInt8(artifact, record.scales), record
    sample = sample_all_over(context, transformer)
    if not len(sample.valid):
        return None
    measured = np.arange(len(sample.valid)) % 2 == 1 if len(sample.valid) > 1 else np.ones(1, bool)
    fixed = calibrated(artifact, *_read(artifact, sample, ~measured if len(measured) > 1 else measured))
    cosines = _cosines(artifact, fixed, *_read(artifact, sample, measured))
    record = Int8Record(
        artifact=artifact.id,
        scales=fixed.scales,
        rows=len(cosines),
        cosine_mean=float(cosines.mean()),
        cosine_min=float(cosines.min()),
    )
    if record.cosine_mean < LEAST_MEAN:
        expected = f"vectors with a cosine of {LEAST_MEAN} with those of float32, on average"
        raise InvalidInput(
            "hop in int8",
            expected=expected,
            found=f"{record}",
            fix=f"Use {next_step.option('precision', 'auto', within='RunSettings')} or float32.",
        )
    if keep:
        with storage_errors(f"record the scales of a hop in int8 in {location.name}", location):
            save_int8(location, target, record)
    return fixed, record


def sample_all_over(context: UpgradeContext, transformer: Transformer) -> VersionValues:
    """Rows of the source at equal distances, `SAMPLED` at most, less those that cannot be transformed."""
    columns, rows = context.source, context.count()
    places = np.unique(np.linspace(0, rows - 1, min(rows, SAMPLED)).astype(int)) if rows else np.zeros(0, int)
    sample = columns.read_items(context.snapshot.take(places.tolist(), columns=columns.item_names))
    return sample.take(transformer.possible(sample))


def _read(artifact: Artifact, sample: VersionValues, rows: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """What the artifact reads of these rows of a sample."""
    side = sample.side if artifact.manifest.side_source is not None else None
    return sample.vectors[rows], None if side is None else side[rows]


def _cosines(artifact: Artifact, fixed: FixedInt8, vectors: FloatArray, side: FloatArray | None) -> Doubles:
    """Between what float32 and int8 make of each row: (n,) float64; 0 where one of them has no direction."""
    exact, rough = artifact.apply(vectors, side).vectors, fixed.apply(vectors, side).vectors
    products = np.einsum("nd,nd->n", exact, rough, dtype=np.float64)
    lengths = np.linalg.norm(exact.astype(np.float64), axis=1) * np.linalg.norm(rough.astype(np.float64), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nan_to_num(products / lengths, nan=0.0))
