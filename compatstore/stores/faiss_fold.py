"""The index of a target, made of staged vectors: of the kind of an app's index, with ids in the form of its ids."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compatstore.arrays import FloatArray, RowNumbers
from compatstore.errors import StorageError, UpgradeError
from compatstore.in_memory.nearest import load_faiss, metric_number
from compatstore.stores.faiss_index import IndexFile, keeper, sync_folder
from compatstore.stores.staged import Staged
from compatstore.stores.store import BATCH, ID, VECTOR, matrix
from compatstore.versions import Metric

_PER_LIST = 64  # vectors for each list of an IVF index that train it


def fold(staged: Staged, app: IndexFile, place: Path) -> None:
    """Make the target's index and ids of what is staged for the ids that the app has.

    Args:
        staged: Target vectors, with the facts `dim` and `metric`.
        app: The app's index and ids.
        place: The target's index; its ids go beside it.

    Raises:
        UpgradeError: Ids are positions, and a target vector is missing.
        StorageError: A file cannot be written.
    """
    dim, metric = int(staged.fact("dim")), staged.metric
    present = np.zeros(len(app), bool)
    for table in staged.tables(app.ids.type, dim):
        present[app.positions(table[ID])] = True
    positions = np.flatnonzero(present)
    if app.ids_are == "positions" and len(positions) < len(app):
        found = f"{len(app) - len(positions):,} without one"
        raise UpgradeError(f"make {place.name}", expected="a target vector for every position", found=found)
    _write(app, positions, lambda some: _staged_at(staged, app, some), dim, metric, place)


def replace_vectors(app: IndexFile, positions: RowNumbers, vectors: FloatArray, metric: Metric) -> None:
    """Replace some vectors of the index that an app reads by a new file of all.

    Args:
        app: Its index and ids.
        positions: (m,) of the vectors.
        vectors: (m, dim) float32.
        metric: Distance of the index.

    Raises:
        StorageError: The app wrote its files meanwhile, or they cannot be written.
    """
    order = np.argsort(positions)

    def at(some: RowNumbers) -> FloatArray:
        values, inside = app.vectors(some), np.isin(some, positions)
        values[inside] = vectors[order[np.searchsorted(positions, some[inside], sorter=order)]]
        return values

    if len(positions):
        _write(app, np.arange(len(app)), at, app.dim, metric, app.path)


def _write(
    app: IndexFile,
    positions: RowNumbers,
    vectors: Callable[[RowNumbers], FloatArray],
    dim: int,
    metric: Metric,
    place: Path,
) -> None:
    """Write vectors at positions of an app's index as another index of its kind, with their ids."""
    some = min(len(positions), _PER_LIST * getattr(keeper(app.index), "nlist", 1))
    sample = positions[np.linspace(0, len(positions) - 1, some).astype(np.int64)]
    index = same_kind(app, dim, metric, vectors(sample))
    for start in range(0, len(positions), BATCH):
        block = positions[start : start + BATCH]
        if app.has_own:
            index.add_with_ids(vectors(block), app.ids.take(pa.array(block)).to_numpy())
        else:
            index.add(vectors(block))
    if place == app.path and not app.is_current:
        operation, expected = f"write {place}", "an app that does not write it meanwhile"
        raise StorageError(operation, expected=expected, found="another file", fix="Try again.")
    if app.named is not None and place != app.path:
        save_ids(app, positions, place.with_name(place.name + app.named.name.removeprefix(app.path.name)))
    save(index, place)


def _staged_at(staged: Staged, app: IndexFile, positions: RowNumbers) -> FloatArray:
    """Staged vectors at positions of the app's index, (n, dim) float32."""
    dim = int(staged.fact("dim"))
    vectors, ids = np.zeros((len(positions), dim), np.float32), app.ids.take(pa.array(positions))
    for table in staged.tables(app.ids.type, dim, ids.to_pylist()):
        vectors[np.asarray(pc.index_in(table[ID], ids))] = matrix(table[VECTOR])
    return vectors


def same_kind(app: IndexFile, dim: int, metric: Metric, sample: FloatArray) -> Any:
    """An empty index for other vectors, of the kind of an app's: flat, HNSW or IVF, else flat.

    Args:
        app: Its index.
        dim: Length of the vectors.
        metric: Their distance.
        sample: (m, dim) float32, which an IVF index is trained on.
    """
    faiss, inner, number = load_faiss(), keeper(app.index), metric_number(metric)
    if hasattr(inner, "hnsw"):
        made = faiss.IndexHNSWFlat(dim, max(inner.hnsw.nb_neighbors(1), 2), number)
        made.hnsw.efConstruction, made.hnsw.efSearch = inner.hnsw.efConstruction, inner.hnsw.efSearch
    elif hasattr(inner, "invlists") and len(sample):
        quantizer = faiss.IndexFlat(dim, number)
        made = faiss.IndexIVFFlat(quantizer, dim, min(inner.nlist, len(sample)), number)
        made.nprobe = min(inner.nprobe, made.nlist)
        made.cp.min_points_per_centroid = 1  # FAISS warns on stderr otherwise
        made.train(sample)
    else:
        made = faiss.IndexFlat(dim, number)
    return faiss.IndexIDMap2(made) if hasattr(app.index, "id_map") else made


def save(index: Any, path: Path) -> None:
    """Write an index; durable, and there as a whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        load_faiss().write_index(index, str(part))
    except RuntimeError as error:  # FAISS wraps the errors of the system
        raise StorageError(f"write {path}", expected="a place that can be written", found=f"{error}") from error
    _replace(part, path)


def save_ids(app: IndexFile, positions: RowNumbers, path: Path) -> None:
    """Write the ids of some positions, ascending, in the form of an app's file; as `save`."""
    part = path.with_name(path.name + ".part")
    ids = app.ids.take(pa.array(positions))
    if path.suffix == ".npy":
        with part.open("wb") as file:
            values = ids.to_numpy(zero_copy_only=False)
            np.save(file, values if pa.types.is_int64(ids.type) else values.astype(str), allow_pickle=False)
    elif path.suffix == ".parquet":
        keep = np.zeros(len(app), bool)
        keep[positions] = True
        with pq.ParquetFile(app.named) as source, pq.ParquetWriter(part, source.schema_arrow) as sink:
            if not app.is_current:
                expected = "the file of the index that was read"
                raise StorageError(f"read {app.named}", expected=expected, found="another file", fix="Try again.")
            start = 0
            for batch in source.iter_batches(BATCH):
                sink.write_batch(batch.filter(pa.array(keep[start : start + len(batch)])))
                start += len(batch)
    else:
        values = ids.to_pylist()
        part.write_text(
            json.dumps(values) if path.suffix == ".json" else "".join(f"{one}\n" for one in values), "utf-8"
        )
    _replace(part, path)


def _replace(part: Path, path: Path) -> None:
    """Put a file that was written in the place of another; durable and atomic."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path)
