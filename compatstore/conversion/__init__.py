"""Files of vectors, converted to another model: for every database that exports its vectors.

A gallery beside the output does the work, so that it survives kills as an upgrade does; it goes when the file is there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from compatstore import next_step
from compatstore.artifacts import Artifact
from compatstore.boundary import checked
from compatstore.conversion.arrow_export import ARRAYS, IPC, PARQUET, ArrowExport
from compatstore.conversion.exports import Places
from compatstore.conversion.json_export import LINES, WHOLE, JsonExport
from compatstore.conversion.work import Conversion, Extra, work_folder
from compatstore.data_files import require_file
from compatstore.errors import AlreadyExists, GateFailed, InvalidInput
from compatstore.gallery import Gallery
from compatstore.paths import exists, is_folder
from compatstore.shown import Shown, Table, view
from compatstore.trainers.pairs.learn import Learn
from compatstore.upgrade.progress import OnProgress
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.run import UpgradeResult
from compatstore.versions import EmbeddingVersion

COLUMNS, RECORDS = (*PARQUET, *IPC, *ARRAYS), (*LINES, *WHOLE)
LEARN = Learn()


@dataclass(frozen=True)
class Converted(Shown):
    """The result of a conversion.

    Attributes:
        out: The file with the new vectors.
        rows: Its records.
        native: Records with a vector of the model itself.
        transformed: Records with a vector that a transform made.
        missing: Records without a vector: they had neither a vector nor a text that can be embedded.
        places: Paths of the vector, the id and the text in a record.
        upgrade: The result of the upgrade that made the vectors.
        seconds: Time of this call.

    Examples:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"text": ["a", "bc", "def"], "vector": [[1.0], [2.0], [3.0]]}), "old.parquet")
        >>> lengths = cs.encoders.Function(lambda texts: [[len(t), 1] for t in texts], dim=2, fingerprint="lengths")
        >>> v1, v2 = cs.EmbeddingVersion("v1", dim=1), cs.EmbeddingVersion("v2", dim=2, encoder=lengths)
        >>> print(cs.convert("old.parquet", "new.parquet", v1, v2, backfill=1.0))
        new.parquet: 3 records, vectors from vector, texts from text
        3 embedded by the new model, 0 transformed, 0 without a vector
        Origins and uncertainties are in vector_origin and vector_uncertainty.
        Build an index of these vectors, and embed queries with the new model.
    """

    out: str
    rows: int
    native: int
    transformed: int
    missing: int
    places: Places
    upgrade: UpgradeResult
    seconds: float


@checked
def convert(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    source: EmbeddingVersion,
    target: EmbeddingVersion,
    *,
    vector: str | None = None,
    id: str | None = None,
    text: str | None = None,
    transform: Artifact | str | os.PathLike[str] | None = None,
    backfill: float | Backfill | None = None,
    gates: Gates | None = None,
    learn: Learn | None = LEARN,
    run: RunSettings | None = None,
    progress: OnProgress = None,
    should_stop: Callable[[], bool] | None = None,
) -> Converted:
    """Convert a file of vectors to another model: a share is embedded, all others are transformed.

    The output has the records of the input in their order and shape. The new vector takes the place of the old one;
    beside it lie its origin ("native", or an artifact's id) and its uncertainty. The same call again goes on with a
    stopped or killed one. Searches need an index of the new vectors, and queries of the new model.

    Args:
        path: Parquet (a file, or a folder of files), Arrow, npz, JSON lines or JSON: one record an item.
        out: File to write, of columns as the input (Parquet, Arrow, npz), or of records (JSON lines, JSON).
        source: The old model, with the dimension of the file's vectors.
        target: The new model, with its encoder; without one only `transform` makes vectors.
        vector: Path of the vector in a record, such as "_source.embedding"; by default one of a usual name.
        id: Path of the id, for gates with queries; by default one of a usual name, else records are numbered from 0.
        text: Path of the text, file or URL that the encoder embeds; by default one of a usual name.
        transform: Artifact to use, or its path; by default one is learned from the embedded items.
        backfill: Share of the items to embed, or `Backfill`, as in `Gallery.upgrade`.
        gates: Quality gates, as in `Gallery.upgrade`; `labels` is a path in a record.
        learn: Self-training, as in `Gallery.upgrade`.
        run: Engine, precision, batches, retries and pace, as in `Gallery.upgrade`.
        progress: Called after each batch.
        should_stop: Called before each batch.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is of another kind or damaged. A path is not in its records. A vector has another length, or
            values that are not finite. An id occurs twice. An unfinished conversion beside `out` is of another file.
        AlreadyExists: `out` exists.
        StorageError: A file cannot be read or written.
        UpgradeError: As in `Gallery.upgrade`, also GateFailed, EncoderFailed and Interrupted.

    Examples:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"text": ["a", "bc", "def"], "vector": [[1.0], [2.0], [3.0]]}), "old.parquet")
        >>> lengths = cs.encoders.Function(lambda texts: [[len(t), 1] for t in texts], dim=2, fingerprint="lengths")
        >>> v1, v2 = cs.EmbeddingVersion("v1", dim=1), cs.EmbeddingVersion("v2", dim=2, encoder=lengths)
        >>> cs.convert("old.parquet", "new.parquet", v1, v2, backfill=1.0).native
        3
    """
    started, finished = time.monotonic(), Path(out)
    export = open_export(Path(path), finished)
    places = export.locate(vector, id, text)
    if source.dim != places.dim:
        found = f"{places.dim} in {places.vector}"
        raise InvalidInput(export.operation, expected=f"{source.dim} values, as {source.name} has", found=found)
    if target.encoder is None and transform is None:
        fix = next_step.either(shell="Name --encoder or --transform.", python="Give target an encoder, or a transform.")
        raise InvalidInput(export.operation, expected="a model or a transform", found="neither", fix=fix)
    extra = Extra.of(gates, backfill)
    work = Conversion(work_folder(finished), export, places, extra)
    gallery = work.open(source)
    try:
        work.fill(gallery, progress, should_stop)
        upgraded = gallery.upgrade(
            target,
            transform=None if transform is None else _link(gallery, transform, source, target),
            backfill=extra.backfill(backfill),
            gates=extra.gates(gates),
            learn=learn,
            run=run,
            progress=progress,
            should_stop=should_stop,
        )
    except (InvalidInput, GateFailed):
        if not work.has_begun(gallery, target.name):
            shutil.rmtree(work.folder, ignore_errors=True)
        raise
    counts = work.write(gallery, target.name, finished)
    shutil.rmtree(work.folder, ignore_errors=True)
    return Converted(out=str(finished), places=places, upgrade=upgraded, seconds=time.monotonic() - started, **counts)


def open_export(path: Path, out: Path) -> ArrowExport | JsonExport:
    """Open a file to convert, and check that the output can be written.

    Raises:
        NotFound: There is no such file, or the folder of the output does not exist.
        InvalidInput: It is of another kind, or the output is.
        AlreadyExists: The output exists.
    """
    operation = f"convert {path}"
    if not is_folder(path):
        require_file(path, operation, (*COLUMNS, *RECORDS))
    kind = path.suffix.lower()
    kinds = (kind,) if kind in RECORDS else COLUMNS
    if out.suffix.lower() not in kinds:
        expected = f"an output of {', '.join(kinds)}, as {path.name} is"
        raise InvalidInput(operation, expected=expected, found=out.suffix or "no suffix")
    if exists(out):
        fix = "Name another file, or move it away."
        if exists(left := work_folder(out)):  # killed between the last two steps
            fix += f" It is whole; {left} can go."
        raise AlreadyExists(operation, expected=f"no file at {out}", found="one", fix=fix)
    return (JsonExport if kind in RECORDS else ArrowExport)(path, operation)


def _link(
    gallery: Gallery, transform: Artifact | str | os.PathLike[str], source: EmbeddingVersion, target: EmbeddingVersion
) -> str:
    """Link an artifact, whether or not it knows its versions."""
    if target.name not in gallery.versions():
        gallery.register(target)
    return gallery.artifacts.link(transform, source.name, target.name)


@view.register
def converted_view(result: Converted) -> Iterator[str | Table]:
    """The file, where its vectors come from, and what searches need."""
    read = f"vectors from {result.places.vector}"
    yield f"{result.out}: {result.rows} records, {read}, {_text_line(result.places)}"
    made = f"{result.native} embedded by the new model, {result.transformed} transformed"
    yield f"{made}, {result.missing} without a vector"
    yield f"Origins and uncertainties are in {result.places.vector}_origin and {result.places.vector}_uncertainty."
    yield "Build an index of these vectors, and embed queries with the new model."


def _text_line(places: Places) -> str:
    return "without texts" if places.text is None else f"texts from {places.text}"
