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
from compatstore.devices.runner import DeviceModel
from compatstore.trainers import FCT, Pairs


def pairs_of(path: Path | None) -> tuple[str, dict[str, Any]]:
    """Name, labels and vectors of both models of a set; without a file items in 20 clusters."""
    if path is not None:
        with np.load(path) as data:
            return str(data["name"]), {key.removeprefix("vectors:"): data[key] for key in data.files}
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 600)
    items = rng.normal(size=(20, 8))[labels] + 0.4 * rng.normal(size=(600, 8))
    vectors = {
        role: (items @ rng.normal(size=(8, dim))).astype(np.float32) for role, dim in (("source", 6), ("target", 8))
    }
    return "clusters", {"labels": labels, **vectors}


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
    name, data = pairs_of(pairs)
    train, rest = np.array_split(np.random.default_rng(0).permutation(len(data["labels"])), 2)
    learned = FCT(epochs=epochs, branch_width=branch, mixer_width=mixer, batch_size=256)
    artifact = learned.fit(Pairs(data["source"][train], data["target"][train]))
    read = np.ascontiguousarray(data["source"][rest], np.float32)
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
    found = [quality(data["target"][rest], vectors, data["labels"][rest]) for vectors in made]
    for runner, vectors, speed, size, its in zip(ways, made, speeds, sizes, found, strict=True):
        apart = its - found[0]
        mean, error = apart.mean(axis=1), apart.std(axis=1, ddof=1) / apart.shape[1] ** 0.5
        row = {"set": name, "runner": runner, "mb": round(size / 1e6, 2), "rows_per_cpu_second": round(speed)}
        row |= {"to_numpy": round(speed / speeds[0], 2), "largest_difference": float(np.abs(made[0] - vectors).max())}
        row |= {"cmc1": round(its[0].mean(), 2), "cmc1_change": round(mean[0], 3), "cmc1_error": round(error[0], 3)}
        row |= {"map": round(its[1].mean(), 2), "map_change": round(mean[1], 3), "map_error": round(error[1], 3)}
        if runner == "bfloat16":
            what = f"change of CMC-1 by bfloat16, {name}, points"
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
