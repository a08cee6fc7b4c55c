"""Upgrade a file of vectors on a device, with a model that `compatstore export` wrote.

This one file is a program and a module. It needs onnxruntime, numpy and pyarrow, and nothing of compatstore, so that it
can be copied; pylance only for Lance tables:

    pip install onnxruntime numpy pyarrow
    python runner.py h.onnx photos.parquet photos-v2.parquet --vector embedding

A file is read and written batch by batch. The new file appears under its name as a whole or not at all, and its other
columns are unchanged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import dataset, parquet

FORMAT = 1
KEY = "compatstore"  # of the model's metadata
FINGERPRINT, ORIGIN = b"compatstore.fingerprint", b"compatstore.origin"  # of the metadata of a column of vectors
REGISTRY = "compatstore.registry"  # of the configuration of a Lance table that is a gallery
FUNCTIONS = b"embedding_functions"  # of LanceDB: which model embeds queries for a column
ROWS = 512  # of one call of the model; more are no faster
BYTES = 16 << 20  # of the vectors of a batch that is read and written
MOST_BATCH_ROWS = 65_536
FORMATS = (".parquet", ".arrow", ".feather", ".lance")

Floats = npt.NDArray[np.float32]


class Unsuitable(ValueError):  # noqa: N818  (this file has no tree of errors: it stands alone)
    """A model or a file cannot be used; nothing was written. The message states the reason and the fix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Applied:
    """Output of a model for n vectors.

    Attributes:
        vectors: (n, dim) float32.
        uncertainty: sigma^2 of each, (n,) float32, or None.
        side: Side-information for the next upgrade, (n, side_dim) float32, or None.
    """

    vectors: Floats
    uncertainty: Floats | None = None
    side: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class FileUpgrade:
    """Result of the upgrade of a file.

    Attributes:
        out: The file that was written.
        rows: Its rows.
        empty: Those of them that have no vector, before and after.
        column: The column that was written.
        version: Name of the embedding version that its vectors belong to, None if the model has no name.
    """

    out: str
    rows: int
    empty: int
    column: str
    version: str | None


class DeviceModel:
    """An exported artifact, ready to run.

    Attributes:
        manifest: Metadata from `compatstore export`: spaces, fingerprints, artifacts, loss by int8.

    Args:
        path: The .onnx file.
        threads: Batches that run side by side, with one thread each; >= 1.

    Raises:
        Unsuitable: The file is missing or damaged, or `compatstore export` did not write it.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 1) -> None:
        import onnxruntime

        if threads < 1:
            raise Unsuitable(f"run {path}; expected threads >= 1; found {threads}.")
        if not Path(path).is_file():
            raise Unsuitable(f"run {path}; expected a file of `compatstore export`; found none.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common class of their own
            raise Unsuitable(f"run {path}; expected an ONNX model; found {error!s:.200}. Copy it again.") from error
        self.manifest = _manifest(str(path), self._session.get_modelmeta().custom_metadata_map)
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._threads = threads

    @property
    def dim(self) -> int:
        """Values of a vector that it reads."""
        return int(self.manifest["reads"]["dim"])

    @property
    def side_dim(self) -> int | None:
        """Values of the side-information that it reads, or None."""
        side = self.manifest["side_reads"]
        return None if side is None else int(side["dim"])

    def apply(self, vectors: npt.NDArray[Any], side: npt.NDArray[Any] | None = None) -> Applied:
        """Transform vectors.

        Args:
            vectors: (n, dim) numbers.
            side: (n, side_dim) numbers for a model that reads side-information; for bits also packed, (n, side_dim / 8)
                uint8. Else None.

        Raises:
            Unsuitable: Another length, NaN or infinite values, or side-information that is missing or superfluous.
        """
        read = {"vectors": _matrix("vectors", vectors, self.dim)}
        if (side is None) != (self.side_dim is None):
            raise Unsuitable(f"apply the model; expected {self.side_dim or 'no'} values of side-information a row.")
        if side is not None and self.side_dim is not None:
            side = np.asarray(side)
            packed = side.dtype == np.uint8 and side.ndim == 2 and side.shape[1] * 8 == self.side_dim
            read["side"] = _matrix("side-information", np.unpackbits(side, axis=1) if packed else side, self.side_dim)
            if len(read["side"]) != len(read["vectors"]):
                raise Unsuitable(f"apply the model; expected {len(vectors)} rows of side-information.")
        starts = range(0, len(read["vectors"]), ROWS)

        def run(start: int) -> list[Floats]:
            part = {f"source_{name}": values[start : start + ROWS] for name, values in read.items()}
            return list(self._session.run(self._outputs, part))

        with ThreadPoolExecutor(self._threads) as pool:
            parts = zip(*pool.map(run, starts or [0]), strict=True)
        return Applied(**dict(zip(self._outputs, map(np.concatenate, parts), strict=True)))


def upgrade_file(
    model: DeviceModel,
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    vector: str = "vector",
    into: str | None = None,
    side: str | None = None,
    overwrite: bool = False,
) -> FileUpgrade:
    """Write a file again with the vectors that the model makes of its vectors.

    The columns `into__uncertainty` and `into__side` are added if the model gives them. A row without a
    vector stays without. If the file has a fingerprint of the model of its vectors (a file that was written here, or a
    gallery), the artifact must be that model's.

    Args:
        model: Of an artifact that acts on galleries.
        file: A .parquet, .arrow or .feather file, or a .lance table; the last needs pylance.
        out: The file to write, of any of these formats; may be `file` itself with `overwrite`, but for Lance tables.
        vector: Column of the vectors: lists of float16, float32 or float64. float16 stays float16.
        into: Column to write; None replaces `vector`.
        side: Column of the side-information, if the model reads some; None takes `vector__side`.
        overwrite: Replace an existing file.

    Raises:
        Unsuitable: The column is missing, of another type or length, holds NaN, belongs to another model, or `out` is
            there; nothing is written then.
    """
    if model.manifest["acts_on"] != "gallery":
        found = "found one for queries: apply it"
        raise Unsuitable(f"upgrade a file; expected an artifact that acts on galleries; {found}.")
    source, target, into = Path(file), Path(out), into or vector
    _require_place(source, target, overwrite)
    with _opened(source) as (schema, batches, fingerprints):
        if vector not in schema.names:
            found = ", ".join(schema.names)
            raise Unsuitable(f"upgrade {source}; expected a column {vector!r}; found {found}. Pass --vector.")
        _require_model(model, source, schema.field(vector), fingerprints)
        upgrade = _Upgrade(model, source, schema, vector, into, side)
        _write(target, upgrade.schema, map(upgrade.batch, batches))
    version = model.manifest["writes"]["name"]
    return FileUpgrade(out=str(target), rows=upgrade.rows, empty=upgrade.empty, column=into, version=version)


class _Upgrade:
    """The columns to read, the schema to write, and the rows so far, those without a vector too."""

    def __init__(
        self, model: DeviceModel, file: Path, schema: pa.Schema, vector: str, into: str, side: str | None
    ) -> None:
        self._model, self._file, self._vector, self._into, self.rows, self.empty = model, file, vector, into, 0, 0
        self._side = None if model.side_dim is None else side or f"{vector}__side"
        if self._side is not None and self._side not in schema.names:
            found = f"expected side-information in column {self._side!r}; found {schema.names}"
            raise Unsuitable(f"upgrade {file}; {found}.")
        kind = schema.field(vector).type
        if not _is_list(kind) or not pa.types.is_floating(kind.value_type):
            raise Unsuitable(f"upgrade {file}; expected lists of floating-point values in {vector!r}; found {kind}.")
        values = kind.value_type if pa.types.is_float16(kind.value_type) else pa.float32()
        outputs = {into: pa.list_(values, model.manifest["writes"]["dim"])}
        if model.manifest["uncertainty"]:
            outputs[f"{into}__uncertainty"] = pa.float32()
        if model.manifest["side_writes"] is not None:
            outputs[f"{into}__side"] = pa.list_(pa.float32(), model.manifest["side_writes"]["dim"])
        # Uncertainty and side-information of the vectors that are replaced go with them.
        replaced = {vector, f"{vector}__uncertainty", f"{vector}__side"} if into == vector else set()
        taken = [name for name in outputs if name in schema.names and name not in replaced]
        if taken:
            raise Unsuitable(f"upgrade {file}; column {taken[0]!r} is there already. Choose another --into.")
        made = {name: pa.field(name, kind) for name, kind in outputs.items()}
        made[into] = made[into].with_metadata(_named(model))
        fields = [made.pop(field.name, field) for field in schema if field.name not in replaced - {vector}]
        self.schema = pa.schema([*fields, *made.values()], metadata=_metadata(schema, into))

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the outputs of the model to a batch."""
        model, file, before = self._model, self._file, self.rows
        vectors, there = _rows(file, self._vector, batch.column(self._vector), model.dim, before)
        side = None
        if self._side is not None and model.side_dim is not None:
            bits = model.manifest["side_reads"]["dtype"] == "bits"
            column = batch.column(self._side)
            side, side_there = _rows(file, self._side, column, model.side_dim, before, packed=bits)
            there = there & side_there
            side = side[there]
        try:
            made = model.apply(vectors[there], side)
        except Unsuitable as error:
            raise Unsuitable(f"upgrade {file}, rows from {before}: {error}") from error
        kind = self.schema.field(self._into).type
        with np.errstate(over="ignore"):
            written = made.vectors.astype(kind.value_type.to_pandas_dtype())
        broken = np.flatnonzero(there)[~np.isfinite(written).all(axis=1)]
        if len(broken):
            found = f"row {before + int(broken[0])} and {len(broken) - 1} more"
            raise Unsuitable(f"upgrade {file}; the model's output for {found} is not finite, or no {kind}.")
        into = self._into
        outputs = {into: written, f"{into}__uncertainty": made.uncertainty, f"{into}__side": made.side}
        columns = {name: values for name, values in outputs.items() if values is not None}
        arrays = [
            _column(columns[field.name], there, field.type) if field.name in columns else batch.column(field.name)
            for field in self.schema
        ]
        self.rows, self.empty = before + batch.num_rows, self.empty + int((~there).sum())
        return pa.record_batch(arrays, schema=self.schema)


def _manifest(path: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        manifest = json.loads(metadata[KEY])
        found = manifest["format"]
    except (KeyError, ValueError, TypeError) as error:
        raise Unsuitable(f"run {path}; expected a model that `compatstore export` wrote; found another.") from error
    if found != FORMAT:
        raise Unsuitable(f"run {path}; expected format {FORMAT}; found {found}. Copy the runner of that release.")
    return dict(manifest)


def _matrix(what: str, values: npt.NDArray[Any], dim: int) -> Floats:
    found = np.asarray(values)
    if found.ndim != 2 or found.shape[1] != dim or found.dtype.kind not in "fiub":
        raise Unsuitable(f"read {what}; expected (n, {dim}) numbers; found {found.dtype} of shape {found.shape}.")
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(found, np.float32)
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise Unsuitable(f"read {what}; expected finite float32; found NaN or inf in row {int(np.argmin(finite))}.")
    return matrix


def _require_place(source: Path, target: Path, overwrite: bool) -> None:
    for path in (source, target):
        if path.suffix not in FORMATS:
            raise Unsuitable(f"upgrade {path}; expected a name that ends in {', '.join(FORMATS)}.")
    if not source.exists():
        raise Unsuitable(f"upgrade {source}; found nothing there.")
    if target.exists() and not overwrite:
        raise Unsuitable(f"write {target}; something is there. Choose another name, or pass --overwrite.")
    if target.exists() and (target.suffix == ".lance") != target.is_dir():
        raise Unsuitable(f"write {target}; found something of another kind there. Choose another name.")
    if target.suffix == ".lance" and target.exists():
        if target.resolve() == source.resolve():
            raise Unsuitable(f"write {target}; a Lance table is not replaced by itself. Choose another name.")
        if not (target / "_versions").is_dir():
            raise Unsuitable(f"write {target}; found no Lance table there. Choose another name.")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch], Mapping[str, str]]]:
    """Schema, batches, and fingerprints by column if a gallery names them."""
    lance = _lance() if file.suffix == ".lance" else None
    try:
        if lance is not None:
            opened = lance.dataset(str(file))
        else:
            opened = dataset.dataset(file, format="parquet" if file.suffix == ".parquet" else "ipc")
        widths = [field.type.list_size for field in opened.schema if pa.types.is_fixed_size_list(field.type)]
        rows = max(ROWS, min(MOST_BATCH_ROWS, BYTES // (4 * int(max([1024, *widths])))))
        batches = opened.to_batches(batch_size=rows, batch_readahead=2)
        yield opened.schema, batches, {} if lance is None else _of_gallery(opened.config())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise Unsuitable(f"upgrade {file}; expected a readable file and room to write; found {error!s:.300}") from error


def _lance() -> Any:
    try:
        import lance
    except ImportError as error:
        raise Unsuitable("read or write a Lance table; this needs pylance. Run: pip install pylance") from error
    return lance


def _of_gallery(config: Mapping[str, str]) -> dict[str, str]:
    """Column of vectors -> fingerprint, as the registry of a gallery has them."""
    if REGISTRY not in config:
        return {}
    found = {}
    for version in json.loads(config[REGISTRY])["versions"].values():
        if version["columns"] is not None:
            parts = {name: version[name] for name in ("model", "dim", "metric", "normalised")}
            text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
            found[version["columns"]["vector"]] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return found


def _is_list(kind: pa.DataType) -> bool:
    return any(holds(kind) for holds in (pa.types.is_fixed_size_list, pa.types.is_list, pa.types.is_large_list))


def _require_model(model: DeviceModel, file: Path, field: pa.Field, fingerprints: Mapping[str, str]) -> None:
    """Refuse vectors of another model, if the file names theirs, and to apply an artifact a second time."""
    metadata = field.metadata or {}
    stored = metadata.get(FINGERPRINT, b"").decode() or fingerprints.get(field.name)
    expected = model.manifest["reads"]["fingerprint"]
    if stored is not None and expected is not None and stored != expected:
        whose = model.manifest["reads"]["name"] or "its source"
        found = f"found {stored} in {field.name!r}"
        raise Unsuitable(f"upgrade {file}; expected vectors of {whose}, fingerprint {expected}; {found}.")
    made_by = metadata.get(ORIGIN, b"").decode().split("+")
    if not {artifact["id"][:12] for artifact in model.manifest["artifacts"]}.isdisjoint(made_by):
        raise Unsuitable(f"upgrade {file}; the vectors of {field.name!r} are of this artifact: nothing is left to do.")


def _named(model: DeviceModel) -> dict[bytes, bytes]:
    fingerprint = model.manifest["writes"]["fingerprint"]
    named = {FINGERPRINT: fingerprint.encode()} if fingerprint else {}
    return {**named, ORIGIN: model.manifest["origin"].encode()}


def _metadata(schema: pa.Schema, into: str) -> dict[bytes, bytes] | None:
    """The file's own metadata, without LanceDB's entry of another embedding model for the column."""
    if schema.metadata is None or FUNCTIONS not in schema.metadata:
        return schema.metadata
    functions = [one for one in json.loads(schema.metadata[FUNCTIONS]) if one.get("vector_column") != into]
    others = {key: value for key, value in schema.metadata.items() if key != FUNCTIONS}
    return {**others, FUNCTIONS: json.dumps(functions).encode()} if functions else others


def _rows(
    file: Path, name: str, column: pa.Array, dim: int, before: int, *, packed: bool = False
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """(n, dim) values, zeros for rows without any, and the mask of rows that have some."""
    kind = column.type
    there = np.asarray(column.is_valid())
    present = column.drop_null() if column.null_count else column
    if not _is_list(kind):
        raise Unsuitable(f"upgrade {file}; expected lists in {name!r}; found {kind}.")
    width = dim // 8 if packed and pa.types.is_uint8(kind.value_type) else dim
    lengths = np.asarray(present.value_lengths())
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        found = f"{lengths[wrong[0]]} in row {before + int(np.flatnonzero(there)[wrong[0]])}"
        raise Unsuitable(f"upgrade {file}; expected {width} values a row in {name!r}; found {found}.")
    flat = present.flatten()
    if flat.null_count:
        found = f"null within a vector, rows from {before}"
        raise Unsuitable(f"upgrade {file}; expected numbers in {name!r}; found {found}.")
    values = np.zeros((len(column), width), kind.value_type.to_pandas_dtype())
    values[there] = flat.to_numpy(zero_copy_only=False).reshape(len(present), width)
    if values.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(broken):
            found = f"NaN or inf in row {before + int(broken[0])} and {len(broken) - 1} more of this batch"
            raise Unsuitable(f"upgrade {file}; expected finite values in {name!r}; found {found}.")
    return (np.unpackbits(values, axis=1) if width != dim else values), there


def _column(values: Floats, there: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """A column of vectors (m, dim) or numbers (m,), null in the rows that have none."""
    rows = np.zeros((len(there), *values.shape[1:]), values.dtype)
    rows[there] = values
    mask = None if there.all() else pa.array(~there)
    if values.ndim == 1:
        return pa.array(rows, kind, mask=~there)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), kind.value_type), type=kind, mask=mask)


def _write(target: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write beside the target, then rename; a partial file is removed on any error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.stem}.{uuid.uuid4().hex}{target.suffix}")
    try:
        if target.suffix == ".lance":
            _lance().write_dataset(pa.RecordBatchReader.from_batches(schema, batches), str(staged), schema=schema)
        else:
            made = parquet.ParquetWriter if target.suffix == ".parquet" else pa.ipc.new_file
            with staged.open("wb") as sink:
                with made(sink, schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                sink.flush()
                os.fsync(sink.fileno())
        if target.is_dir():
            replaced = staged.with_name(f"{staged.name}.old")
            target.rename(replaced)
            staged.rename(target)
            shutil.rmtree(replaced)
        else:
            os.replace(staged, target)
    finally:
        if staged.is_dir():
            shutil.rmtree(staged, ignore_errors=True)
        else:
            staged.unlink(missing_ok=True)


def main() -> int:
    """Run the program; return its exit status: 0, or 2 if a file or model is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a file written by `compatstore export`")
    parser.add_argument("file", help=f"a file of vectors: {', '.join(FORMATS)}")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--vector", default="vector", help="column of the vectors (default: vector)")
    parser.add_argument("--into", help="column to write; the column of the vectors by default")
    parser.add_argument("--side", help="column of the side-information, if the model reads some")
    parser.add_argument(
        "--threads", type=int, default=1, help="batches side by side, with one thread each (default: 1)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    options = vars(parser.parse_args())
    try:
        model = DeviceModel(options.pop("model"), threads=options.pop("threads"))
        done = upgrade_file(model, **options)
    except Unsuitable as error:
        sys.stderr.write(
            f"Error: {ascii(str(error))[1:-1]}\n"
        )  # names of columns may hold control characters of a terminal
        return 2
    sys.stdout.write(json.dumps(asdict(done)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
