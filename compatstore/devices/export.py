"""Export of an artifact, or of a chain of them, as an ONNX file whose metadata is sufficient for its runner."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from compatstore import next_step
from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact
from compatstore.artifacts.directory import require_free
from compatstore.artifacts.matrix import as_matrix
from compatstore.artifacts.onnx_graph import OnnxGraph
from compatstore.boundary import checked
from compatstore.devices import runner as runner_module
from compatstore.digests import digest_half
from compatstore.errors import Incompatible, InvalidInput, load_extra
from compatstore.paths import is_file, refused

LARGEST = 2**31 - (1 << 20)  # bytes of one protocol buffer, which an ONNX file is


@dataclass(frozen=True, kw_only=True)
class Int8Loss:
    """Loss by int8, measured on vectors: cosines between the float32 and the int8 output of each.

    Attributes:
        rows: Vectors that were measured.
        left_out: Vectors that were given and not measured: the artifact was trained on them.
        cosine_min: Smallest cosine of a row, in [-1, 1].
        cosine_mean: Mean of the cosines.
    """

    rows: int
    left_out: int
    cosine_min: float
    cosine_mean: float


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file for devices.

    Attributes:
        out: The ONNX file.
        bytes: Its size.
        precision: "float32" or "int8".
        origin: Short ids of the artifacts, joined by "+": the recorded origin of its vectors.
        int8_loss: Loss by int8; None in float32.
        runner: The program beside it, None if it was not requested.
    """

    out: str
    bytes: int
    precision: str
    origin: str
    int8_loss: Int8Loss | None = None
    runner: str | None = None


@checked
def export(
    artifact: Artifact | str | PathLike[str],
    out: str | PathLike[str],
    *,
    then: Sequence[Artifact | str | PathLike[str]] = (),
    int8: bool = False,
    vectors: Any = None,
    side: Any = None,
    runner: str | PathLike[str] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write an artifact as an ONNX file, which `compatstore/devices/runner.py` applies without compatstore.

    The graph is made of the artifact's own weights; no torch is needed. Its inputs are `source_vectors` (n, dim) and,
    if the artifact reads side-information, `source_side` (n, side_dim); its outputs `vectors`, and `uncertainty`
    (sigma^2) and `side` if the artifact has them; all float32. The manifests are in the file's metadata.

    Args:
        artifact: The artifact, or the folder that it was saved in.
        out: The file to write, NAME.onnx; atomic.
        then: Artifacts that are applied to the output of the one before, in this order: a chain of hops.
        int8: Quantise the weights of dense layers, and their inputs while the model runs, to 8 bits. Needs `vectors`.
        vectors: (n, dim) float32 in the space that is read, on which the loss by int8 is measured. Those that the
            artifact was trained on are left out.
        side: (n, side_dim) side-information of `vectors`, for an artifact that reads it.
        runner: Also write the program that applies the file, one Python file, here.
        overwrite: Replace an existing file.

    Raises:
        AlreadyExists: `out` or `runner` is there.
        Incompatible: An artifact of `then` does not go on from the one before.
        InvalidInput: int8 without vectors that the artifact has not seen, or a file that ONNX cannot hold.
        MissingExtra: `onnx` or `onnxruntime` is not installed.

    Examples:
        >>> from compatstore.trainers import Pairs, Ridge
        >>> source = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
        >>> h = Ridge().fit(Pairs(source[:50], source[:50, ::-1]))
        >>> made = cs.export(h, "h.onnx", int8=True, vectors=source)
        >>> made.precision, made.int8_loss.rows, made.int8_loss.left_out, made.int8_loss.cosine_mean > 0.99
        ('int8', 10, 50, True)
        >>> from compatstore.devices.runner import DeviceModel
        >>> DeviceModel("h.onnx").apply(source).vectors.shape
        (60, 4)
    """
    chain = tuple(each if isinstance(each, Artifact) else Artifact.load(each) for each in (artifact, *then))
    operation = f"export {chain[0].short_id} as {out}"
    _require_chain(chain, operation)
    target, program = Path(out), None if runner is None else Path(runner)
    for path, suffix in ((target, ".onnx"), (program, ".py")):
        if path is not None and path.suffix != suffix:
            raise InvalidInput(operation, expected=f"a name that ends in {suffix}", found=path.name)
        if path is not None:
            require_free("file", path, is_file, replace=overwrite)
    held_out = _held_out(chain[0], vectors, side, operation) if int8 else None
    model, manifest, loss = graph_of(chain, operation), _manifest(chain), None
    if held_out is not None:
        whole, model = model, quantised(model)
        loss = _loss(manifest, (whole, model), *held_out)
        manifest |= {"precision": "int8", "int8_loss": asdict(loss)}
    _describe(model, manifest)
    content = model.SerializeToString()
    _write(target, content)
    if program is not None:
        _write(program, Path(runner_module.__file__).read_bytes())
    return Exported(
        out=str(target),
        bytes=len(content),
        precision=manifest["precision"],
        origin=manifest["origin"],
        int8_loss=loss,
        runner=None if program is None else str(program),
    )


def _require_chain(chain: Sequence[Artifact], operation: str) -> None:
    if len(chain) > 1 and any(artifact.behaviour.acts_on != "gallery" for artifact in chain):
        raise Incompatible(operation, expected="a chain of artifacts that act on galleries", found="one for queries")
    for before, after in pairwise(chain):
        made, read = before.manifest.target, after.manifest.source
        if made.dim != read.dim:
            found = f"{made.dim} from {before.short_id}"
            raise InvalidInput(operation, expected=f"{read.dim} values for {after.short_id}", found=found)
        if None not in (made.fingerprint, read.fingerprint) and made.fingerprint != read.fingerprint:
            expected = f"fingerprint {read.fingerprint} before {after.short_id}"
            raise Incompatible(operation, expected=expected, found=str(made.fingerprint))
        wanted, given = after.manifest.side_source, before.manifest.side_target
        if wanted is not None and (given is None or given.dim != wanted.dim):
            found = "none" if given is None else f"{given.dim} values"
            expected = f"side-information of {wanted.dim} values from {before.short_id}"
            fix = f"Train it with {next_step.setting('side_transform', True)}."
            raise Incompatible(operation, expected=expected, found=found, fix=fix)


def _held_out(artifact: Artifact, vectors: Any, side: Any, operation: str) -> tuple[FloatArray, FloatArray | None, int]:
    """Vectors that the artifact has not learned from, their side-information, and how many were left out."""
    fix = f"Pass vectors of the gallery: {next_step.option('vectors', next_step.FILE)}."
    if vectors is None:
        raise InvalidInput(f"{operation} in int8", expected="vectors to measure the loss on", found="none", fix=fix)
    rows = as_matrix(operation, vectors, artifact.behaviour.reads(artifact.manifest).dim)
    side_rows = artifact.side_rows(operation, side, len(rows))
    fresh = np.ones(len(rows), bool) if artifact.seen is None else ~np.isin(digest_half(rows), artifact.seen)
    fresh &= rows.any(axis=1)  # a vector without direction has no cosine
    if not fresh.any():
        found = f"{len(rows)}, all of which it has learned from"
        raise InvalidInput(
            f"{operation} in int8", expected="vectors that it has not learned from", found=found, fix=fix
        )
    kept = rows[fresh]
    return kept, None if side_rows is None else side_rows[fresh], len(rows) - len(kept)


def graph_of(chain: Sequence[Artifact], operation: str) -> Any:
    """The ONNX model of artifacts that are applied one after the other, in float32.

    Raises:
        InvalidInput: Their weights are more than ONNX holds.
        MissingExtra: `onnx` is not installed.
    """
    size = sum(tensor.nbytes for artifact in chain for tensor in artifact.tensors.values())
    if size > LARGEST:
        raise InvalidInput(operation, expected=f"weights of at most {LARGEST} bytes, as ONNX has them", found=str(size))
    graph, first = OnnxGraph(), chain[0].manifest
    inputs = {"source_vectors": chain[0].behaviour.reads(first).dim}
    if first.side_source is not None:
        inputs["source_side"] = first.side_source.dim
    vectors, side = "source_vectors", "source_side" if first.side_source is not None else None
    for artifact in chain:
        read = side if artifact.manifest.side_source is not None else None
        made = artifact.to_onnx(graph, vectors, read)
        vectors, side = made.vectors, made.side
    last = chain[-1].manifest
    outputs: dict[str, tuple[str, int | None]] = {"vectors": (vectors, chain[-1].behaviour.writes(last).dim)}
    if made.uncertainty is not None:
        outputs["uncertainty"] = (made.uncertainty, None)
    if made.side is not None and last.side_target is not None:
        outputs["side"] = (made.side, last.side_target.dim)
    return graph.model(inputs, outputs)


def _manifest(chain: Sequence[Artifact]) -> dict[str, Any]:
    """Metadata for the runner and for readers, of a model in float32; JSON-able."""
    first, last = chain[0].manifest, chain[-1].manifest
    return {
        "format": runner_module.FORMAT,
        "acts_on": chain[0].behaviour.acts_on,
        "precision": "float32",
        "origin": "+".join(artifact.short_id for artifact in chain),
        "reads": asdict(chain[0].behaviour.reads(first)),
        "writes": asdict(chain[-1].behaviour.writes(last)),
        "side_reads": None if first.side_source is None else asdict(first.side_source),
        "side_writes": None if last.side_target is None else asdict(last.side_target),
        "uncertainty": "h" in last.networks and bool(last.networks["h"].uncertainty),
        "int8_loss": None,
        "artifacts": [{"id": artifact.id, **artifact.manifest.to_dict()} for artifact in chain],
    }


def _describe(model: Any, manifest: dict[str, object]) -> None:
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = runner_module.KEY, json.dumps(manifest, ensure_ascii=False, allow_nan=False)


def quantised(model: Any) -> Any:
    """The model with 8-bit weights a row and 8-bit inputs of dense layers, chosen batch by batch.

    Raises:
        MissingExtra: `onnxruntime` is not installed.
    """
    quantization, onnx = load_extra("onnxruntime.quantization", "onnx"), load_extra("onnx", "onnx")

    done = model.metadata_props.add()  # mark pre-processing as done: every shape is known, and nothing can be fused
    done.key, done.value = "onnx.quant.pre_process", "onnxruntime.quant"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "int8.onnx"
        # 7 bits a weight: on x86 processors without VNNI a sum of two products of 8 bits would be cut off at 16 bits.
        quantization.quantize_dynamic(
            model, str(made), weight_type=quantization.QuantType.QInt8, per_channel=True, reduce_range=True
        )
        return onnx.load(str(made))


def _loss(
    manifest: dict[str, Any], models: tuple[Any, Any], vectors: FloatArray, side: FloatArray | None, left_out: int
) -> Int8Loss:
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            _describe(model, manifest)
            place = Path(folder) / "model.onnx"
            place.write_bytes(model.SerializeToString())
            made.append(runner_module.DeviceModel(place).apply(vectors, side).vectors.astype(np.float64))
    lengths = [np.linalg.norm(rows, axis=1) for rows in made]
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.nan_to_num((made[0] * made[1]).sum(axis=1) / (lengths[0] * lengths[1]), nan=0.0)
    least, mean = float(cosines.min()), float(cosines.mean())
    return Int8Loss(rows=len(vectors), left_out=left_out, cosine_min=least, cosine_mean=mean)


def _write(path: Path, content: bytes) -> None:
    """Write beside the path, then rename."""
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
        os.replace(staged, path)
    except OSError as error:
        raise refused(f"write {path}", path, error) from error
    finally:
        with suppress(OSError):  # it was never made if the name is invalid
            staged.unlink()
