"""A transform in fewer bits: the hop's bfloat16, and exported artifacts in float32 and int8 on a device's runtime.

Trains h of FCT on half of the pairs of a set, exports it, and transforms the other half: by the gallery's own NumPy
runner, by torch in bfloat16, and by onnxruntime. Rows per second of the processor, in one thread, the runners by turns.
The native target vector of each of these items searches what was made of the others: CMC-1 and mAP, and by how much
they differ from NumPy's, with the standard error over queries.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import by_turns
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.sets.embedded import SOURCE, TARGET
from benchmarks.sets.embedded import read as read_sets
from compatstore.devices.runner import DeviceModel
from compatstore.trainers import FCT, Pairs


def quality(queries: Any, made: Any, labels: Any) -> Any:
    """(2, q): CMC-1 and average precision, in points, of each item that searches the others."""
    ids = np.arange(len(made))
    ranking = cs.evaluation.rank_queries(queries, made, labels, labels, ids, ids, metric="cosine")
    kept = ranking.counted
    return 100.0 * np.stack([ranking.first_match[kept] == 1, ranking.average_precision[kept]])


def run(
    *, pairs: Path | None = None, branch: int = 256, mixer: int = 2048, epochs: int = 20, repeats: int = 7
) -> Iterator[Row]:
    """A row for each runner; `pairs` is a file of `benchmarks.sets`."""
    (data,) = read_sets([pairs] if pairs else [])
    source, target = data.vectors[SOURCE], data.vectors[TARGET]
    train, rest = np.array_split(np.random.default_rng(0).permutation(len(data.labels)), 2)
    learned = FCT(epochs=epochs, branch_width=branch, mixer_width=mixer, batch_size=256)
    artifact = learned.fit(Pairs(source[train], target[train]))
    read = np.ascontiguousarray(source[rest])
    with tempfile.TemporaryDirectory() as folder:
        whole = cs.export(artifact, Path(folder, "h.onnx"))
        small = cs.export(artifact, Path(folder, "h8.onnx"), int8=True, vectors=read)
        models = [DeviceModel(Path(folder, file)) for file in ("h.onnx", "h8.onnx")]
        ways: dict[str, Callable[[Any], Any]] = {
            "NumPy": lambda _: artifact.apply(read),
            "bfloat16": lambda _: artifact.apply(read, precision="bfloat16"),
            "float32": lambda _: models[0].apply(read),
            "int8": lambda _: models[1].apply(read),
        }
        with threadpoolctl.threadpool_limits(1):
            taken = by_turns(ways, range(repeats + 1), time.process_time).values()
        speeds = [len(read) / max(float(np.median(seconds[1:])), 1e-9) for seconds in taken]
        made = [way(None).vectors for way in ways.values()]
    weights = sum(tensor.nbytes for tensor in artifact.tensors.values())
    sizes = [weights, weights, whole.bytes, small.bytes]
    found = [quality(target[rest], vectors, data.labels[rest]) for vectors in made]
    for runner, vectors, speed, size, its in zip(ways, made, speeds, sizes, found, strict=True):
        apart = its - found[0]
        mean, error = apart.mean(axis=1), apart.std(axis=1, ddof=1) / apart.shape[1] ** 0.5
        row = {"set": data.name, "runner": runner, "mb": round(size / 1e6, 2), "rows_per_cpu_second": round(speed)}
        row |= {"to_numpy": round(speed / speeds[0], 2), "largest_difference": float(np.abs(made[0] - vectors).max())}
        row |= {"cmc1": round(its[0].mean(), 2), "cmc1_change": round(mean[0], 3), "cmc1_error": round(error[0], 3)}
        row |= {"map": round(its[1].mean(), 2), "map_change": round(mean[1], 3), "map_error": round(error[1], 3)}
        if runner == "bfloat16":
            what = f"change of CMC-1 by bfloat16, {data.name}, points"
            row = bound(what, abs(mean[0]), 0.1, group="change of CMC-1 by bfloat16, points", **row)
        yield row


def table(record: Record) -> str:
    """Size, speed and quality of each runner, beside those of NumPy."""
    head = ("set", "runner", "MB", "rows per CPU second", "to NumPy", "change of CMC-1, points", "of mAP", "machine")
    cells = []
    for row in record.measured():
        changes = (f"{row[f'{kind}_change']:+.3f} ± {row[f'{kind}_error']:.3f}" for kind in ("cmc1", "map"))
        speed = (f"{row['rows_per_cpu_second']:,}", f"{row['to_numpy']:.2f}")
        if row["runner"] != "NumPy":
            cells.append((row["set"], row["runner"], row["mb"], *speed, *changes, row["machine"].partition(",")[0]))
    return markdown(head, cells)


SMOKE = {"branch": 8, "mixer": 16, "epochs": 2, "repeats": 1}
TABLES = {"runners": table}
