"""Sizes, speed and loss of h in fewer bits: the hop's bfloat16, and float32 and int8 of exported artifacts.

    python -m benchmarks.devices SET.npz [SET.npz ...] [--widths 256 2048] [--epochs 20] [--fresh]

Trains h of FCT on half of the pairs of each set (benchmarks.pairs.embedded), exports it, and transforms the other half:
by the gallery's own NumPy runner, by torch in bfloat16, which is what a hop in that precision runs, and by onnxruntime.
Rows per second of the processor, in one thread, the runners by turns, medians; the largest difference of a value from
the NumPy runner's, and cosines between the two. The native target vector of each of these items asks for what was made
of the others: CMC-1 and mAP, and by how much they differ from NumPy's, with the standard error over queries.
`--fresh` makes an environment of onnxruntime, numpy and pyarrow alone with pip, upgrades a Parquet file in it by the
copied runner, and compares.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet
import threadpoolctl

import compatstore as cs
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts import Artifact
from compatstore.devices.runner import DeviceModel
from compatstore.trainers import FCT, Pairs

RUNNERS = ("NumPy", "bfloat16", "float32", "int8")
COLUMNS = (
    "set",
    "h",
    "runner",
    "MB",
    "rows per CPU second",
    "to NumPy",
    "largest difference, 1e-6",
    "cosine, least",
    "mean",
    "CMC-1 %",
    "change, points",
    "mAP %",
    "change of mAP, points",
)


def learned(read: FloatArray, native: FloatArray, branch: int, mixer: int, epochs: int) -> Artifact:
    """H of FCT between the vectors of two models."""
    return FCT(epochs=epochs, branch_width=branch, mixer_width=mixer, batch_size=256).fit(Pairs(read, native))


def rates(ways: Sequence[Callable[[], object]], rows: int, repeats: int) -> list[float]:
    """Rows per second of the processor of each way, medians; the ways by turns, after one of each unmeasured."""
    found = [list[float]() for _ in ways]
    for way in ways:
        way()
    for _ in range(repeats):
        for seconds, way in zip(found, ways, strict=True):
            started = time.process_time()
            way()
            seconds.append(time.process_time() - started)
    return [rows / statistics.median(seconds) for seconds in found]


def fresh(folder: Path, artifact: Artifact, vectors: FloatArray) -> float:
    """The largest difference of a value between a fresh environment's file and the artifact's own."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "onnxruntime", "numpy", "pyarrow"], check=True)
    cs.export(artifact, folder / "fresh.onnx", runner=folder / "runner.py")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    parquet.write_table(pa.table({"vector": column}), folder / "in.parquet")
    words = [python, folder / "runner.py", folder / "fresh.onnx", folder / "in.parquet", folder / "out.parquet"]
    subprocess.run(words, check=True, capture_output=True)
    listed = subprocess.run([python, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    assert "torch" not in listed
    assert "lance" not in listed
    made = parquet.read_table(folder / "out.parquet")["vector"].combine_chunks().flatten().to_numpy()
    return float(np.abs(made - artifact.apply(vectors).vectors.reshape(-1)).max())


def lines(data: EmbeddedSet, branch: int, mixer: int, epochs: int, repeats: int, folder: Path) -> list[str]:
    """A line of the table for each runner."""
    order = np.random.default_rng(0).permutation(len(data.labels))
    train, rest = np.split(order, [len(order) // 2])
    source, target = data.vectors[SOURCE], data.vectors[TARGET]
    artifact = learned(source[train], target[train], branch, mixer, epochs)
    read = np.ascontiguousarray(source[rest], np.float32)
    whole = cs.export(artifact, folder / "h.onnx", overwrite=True)
    small = cs.export(artifact, folder / "h8.onnx", int8=True, vectors=read, overwrite=True)
    models = [DeviceModel(folder / name) for name in ("h.onnx", "h8.onnx")]
    ways: list[Callable[[], Any]] = [
        lambda: artifact.apply(read),
        lambda: artifact.apply(read, precision="bfloat16"),
        *(lambda m=model: m.apply(read) for model in models),
    ]
    with threadpoolctl.threadpool_limits(1):
        speeds = rates(ways, len(read), repeats)
    made = [way().vectors for way in ways]
    own, weights = made[0], sum(tensor.nbytes for tensor in artifact.tensors.values())
    sizes = [weights, weights, whole.bytes, small.bytes]
    found = [ranks(target[rest], vectors, data.labels[rest]) for vectors in made]
    table = []
    for name, vectors, speed, size, its in zip(RUNNERS, made, speeds, sizes, found, strict=True):
        cosines = (own * vectors).sum(axis=1) / (np.linalg.norm(own, axis=1) * np.linalg.norm(vectors, axis=1))
        quality = [cell for mine, exact in zip(its, found[0], strict=True) for cell in change(mine, exact)]
        table.append(
            f"| {data.name} | {read.shape[1]} to {own.shape[1]}, {mixer} wide | {name} | {size / 1e6:.2f} "
            f"| {speed:,.0f} | {speed / speeds[0]:.2f} | {float(f'{1e6 * np.abs(own - vectors).max():.2g}'):,g} "
            f"| {cosines.min():.6f} | {cosines.mean():.6f} | {' | '.join(quality)} |"
        )
    return table


def ranks(asking: FloatArray, made: FloatArray, labels: npt.ArrayLike) -> tuple[Doubles, Doubles]:
    """CMC-1 and average precision, in points, of each item that asks for the others and finds others of its label."""
    ids = np.arange(len(made))
    ranking = cs.evaluation.rank_queries(asking, made, labels, labels, ids, ids, metric="cosine")
    kept = ranking.counted
    return 100.0 * (ranking.first_match[kept] == 1), 100 * ranking.average_precision[kept]


def change(mine: Doubles, exact: Doubles) -> tuple[str, str]:
    """The mean, and its difference from another with the standard error over queries."""
    apart = mine - exact
    return f"{mine.mean():.2f}", f"{apart.mean():+.3f} ± {apart.std(ddof=1) / len(apart) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET.npz")
    parser.add_argument("--widths", type=int, nargs=2, default=(256, 2048), metavar=("BRANCH", "MIXER"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="also in a fresh environment; needs a package index")
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    with tempfile.TemporaryDirectory() as folder:
        for path in arguments.sets:
            data = EmbeddedSet.load(path)
            for line in lines(data, *arguments.widths, arguments.epochs, arguments.repeats, Path(folder)):
                print(line, flush=True)
        if arguments.fresh:
            half = len(data.labels) // 2
            source, target = data.vectors[SOURCE], data.vectors[TARGET]
            artifact = learned(source[:half], target[:half], *arguments.widths, arguments.epochs)
            apart = fresh(Path(folder), artifact, np.ascontiguousarray(source[half:], np.float32))
            print(f"in an environment of onnxruntime, numpy and pyarrow alone: largest difference {apart:.1e}")


if __name__ == "__main__":
    main()
