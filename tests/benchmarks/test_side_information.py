"""The benchmark of side-information measures real galleries, and its table can be filled from what it wrote."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.methods.settings import SIZES
from compatstore import trainers
from digits import load_digits
from lazily import Lazy

pytestmark = pytest.mark.full

embedded = Lazy("benchmarks.side_information.embedded")
measure = Lazy("benchmarks.side_information.measure")
methods = Lazy("benchmarks.methods.data", "benchmarks.methods.lesson")
table = Lazy("benchmarks.side_information.table")

KEY = {"set": "Digits", "setting": "classes"}


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Digits whose embeddings are their pixels: the source's the upper half, the side-information's the lower."""
    folder, data = tmp_path_factory.mktemp("side"), load_digits()
    images = trainers.Images((data.images * 15).astype(np.uint8), data.target)
    training, test = images.split(0.4, seed=0)
    drawn = methods.lesson(methods.ImageSet(name="Digits", training=training, test=test), "classes", SIZES["tiny"], 0)
    parts = {embedded.LEARNT: drawn.target, embedded.GALLERY: drawn.gallery, embedded.QUERIES: drawn.queries}
    pixels = {name: part.images.reshape(len(part), 64) / 128 - 1 for name, part in parts.items()}

    def unit(vectors):
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    np.savez(folder / "0, source.npz", **{name: unit(values[:, :32]) for name, values in pixels.items()})
    np.savez(folder / "0, target.npz", **{name: unit(values) for name, values in pixels.items()})
    for kind in {row.kind for row in measure.ROWS.values() if row.kind}:
        np.savez(folder / f"0, {kind}.npz", **{name: values[:, 32:] for name, values in pixels.items()})
    return embedded.Embedded(drawn, folder)


def test_rows_are_measured_and_shown(trial):
    learnt = dataclasses.replace(trial.lesson.size, transform_epochs=20)
    longer = embedded.Embedded(dataclasses.replace(trial.lesson, size=learnt), trial.folder)
    taken = {
        name: measure.measure(longer, row)
        for name, row in measure.ROWS.items()
        if name in ("none", "its signs", "SimCLR")
    }
    assert taken["none"]["t/h"]["map"] < taken["its signs"]["t/h"]["map"]
    assert 0 < taken["SimCLR"]["cka"] < 1
    rows = {name: taken.get(name, taken["SimCLR"]) for name in measure.ROWS} | {table.BOUNDS: measure.bounds(trial)}
    weights = {table.BYTES: dict.fromkeys([name for name in measure.ROWS if name != "none"], 16.6)}
    page = "before\n<!-- table: side-information -->\nold\n<!-- end -->\nafter\n"
    filled = table.fill(page, [KEY | {"seed": 0, "method": name} | found for name, found in (rows | weights).items()])
    assert filled.startswith("before\n<!-- table")
    assert "| its signs | 16.6 |" in filled
    assert "old" not in filled


def test_bits_weigh_a_thirty_second_of_values(trial):
    weights = measure.bytes_per_item(trial)
    assert weights["SimCLR"] / weights["its signs"] == pytest.approx(32, rel=0.1)
