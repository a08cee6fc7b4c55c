"""Writes the archive of what earlier code left: `python tests/data/write.py ARCHIVE`, with that code on the path.

`27dda41.tar.xz` was written by the code of commit 27dda41, so calls are spelt as they were then. Each gallery has
`ITEMS` items, whose target vectors are in `natives.npz`:

* `backfilling.lance`: stopped within a backfill, natives staged beside the table, side-information;
* `cutover.lance`: cut over, some natives moved into rows of their own, one item deleted, one written after;
* `app/photos.lance`: an app's LanceDB table, adopted, upgraded, with a row of the app that is not caught up with;
* `estimated.lance`: upgraded after an estimate that passed a gate, by a transform of FastFill; with a vector index;
* `fastfill.compat`: that artifact; `small.model`: a classifier of images, what it embeds in `model.npz`.
"""

from __future__ import annotations

import os
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

import lancedb
import numpy as np
from PIL import Image

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.encoders import Precomputed
from compatstore.trainers import FastFill, Pairs
from compatstore.trainers.classifier import Independent
from compatstore.trainers.images import Images
from compatstore.upgrade.backfilling.backfill_settings import BackfillSettings

ITEMS, SOURCE, TARGET, SIDE = 288, 8, 12, 4
IDS = [f"item-{number:03d}" for number in range(ITEMS)]
LABELS = np.arange(ITEMS) % 8


def vectors(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Source (n, 8) and target (n, 12) vectors of items in 8 classes, the target's the clearer ones."""
    rng = np.random.default_rng(seed)
    native = 2 * rng.normal(size=(8, TARGET))[LABELS] + rng.normal(size=(ITEMS, TARGET))
    source = native @ rng.normal(size=(TARGET, SOURCE)) + 2 * rng.normal(size=(ITEMS, SOURCE))
    return source.astype(np.float32), native.astype(np.float32)


VECTORS, NATIVES = vectors(0)


def source_version(**more: object) -> cs.EmbeddingVersion:
    """The version that the galleries begin with."""
    return cs.EmbeddingVersion("v1", dim=SOURCE, metric="l2", **more)


def target_version() -> cs.EmbeddingVersion:
    """The version upgraded to."""
    encoder = Precomputed(dict(zip(IDS, NATIVES, strict=True)))
    return cs.EmbeddingVersion("v2", dim=TARGET, metric="l2", encoder=encoder)


def transform(source: cs.EmbeddingVersion, target: cs.EmbeddingVersion) -> Artifact:
    """A transform with random weights that knows its uncertainty."""
    architecture = Architecture(
        source_dim=SOURCE, side_dim=source.side_dim, output_dim=TARGET, mixer=(16,), uncertainty=True
    )
    rng = np.random.default_rng(3)
    tensors = {f"h.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in architecture.shapes().items()}
    side = None if source.side_dim is None else Side(dim=source.side_dim, fingerprint=source.side_fingerprint)
    spaces = {"source": Space.of(source), "target": Space.of(target), "side_source": side}
    return Artifact.create("ForwardTransform", method="random", **spaces, networks={"h": architecture}, tensors=tensors)


def backfilling(folder: Path) -> None:
    """Stopped after the second batch of the backfill."""
    source, target = source_version(side_dim=SIDE), target_version()
    gallery = cs.Gallery.create(str(folder / "backfilling.lance"), source)
    side = np.random.default_rng(4).normal(size=(ITEMS, SIDE)).astype(np.float32)
    for part in np.array_split(np.arange(ITEMS), 2):
        ids = [IDS[row] for row in part]
        gallery.add({"id": ids, "vector": VECTORS[part], "side": side[part], "label": LABELS[part]})
    gallery.register(target)
    gallery.artifacts.link(transform(source, target))
    batches = []

    def progress(done: object) -> None:
        if done.step == "backfill":
            batches.append(done)

    try:
        gallery.upgrade(
            "v2",
            backfill=0.5,
            policy="sigma",
            natives="columns",
            settings=BackfillSettings(batch_rows=16),
            progress=progress,
            should_stop=lambda: len(batches) >= 2,
        )
    except cs.errors.Interrupted:
        return
    raise AssertionError("the upgrade was not stopped")


def cutover(folder: Path) -> None:
    """Cut over with a quarter of natives."""
    source, target = source_version(), target_version()
    gallery = cs.Gallery.create(str(folder / "cutover.lance"), source)
    gallery.add({"id": IDS[:-1], "vector": VECTORS[:-1], "label": LABELS[:-1]})
    gallery.register(target)
    gallery.artifacts.link(transform(source, target))
    gallery.upgrade("v2", backfill=0.25, natives="rows")
    gallery.cutover("v2")
    gallery.delete([IDS[0]])
    gallery.add({"id": IDS[-1:], "v2": NATIVES[-1:], "v1": VECTORS[-1:], "label": LABELS[-1:]})


def adopted(folder: Path) -> None:
    """An app's table; its last row came after the upgrade."""
    rows = [{"key": IDS[n], "vector": VECTORS[n].tolist(), "caption": f"photo {n}"} for n in range(ITEMS)]
    table = lancedb.connect(str(folder / "app")).create_table("photos", rows[:-1])
    source, target = source_version(), target_version()
    gallery = cs.Gallery.adopt(table, source, vector="vector", id="key")
    gallery.register(target)
    gallery.artifacts.link(transform(source, target))
    gallery.upgrade("v2", backfill=0.1)
    table.checkout_latest()
    table.add(rows[-1:])


def estimated(folder: Path) -> None:
    """Upgraded with a gate and an index, by an artifact that FastFill made of other items."""
    source, target = source_version(), target_version()
    lessons = vectors(7)
    pairs = Pairs(*lessons, source_version=source, target_version=target, labels=LABELS)
    artifact = FastFill(epochs=4, branch_width=8, mixer_width=16, device="cpu").fit(pairs)
    artifact.save(folder / "fastfill.compat")
    gallery = cs.Gallery.create(str(folder / "estimated.lance"), source)
    gallery.add({"id": IDS, "vector": VECTORS, "label": LABELS})
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=2)
    gallery.register(target)
    gallery.artifacts.link(artifact)
    gallery.upgrade("v2", backfill=0.25, sample=120, labels="label", require=["map>=0.01"])


def model(folder: Path) -> None:
    """A classifier of 12 x 12 pixels."""
    pixels = np.random.default_rng(5).integers(0, 255, (60, 12, 12)).astype(np.uint8)
    model = Independent(dim=6, width=2, epochs=2).fit(Images(pixels, np.arange(60) % 3))
    model.save(folder / "small.model")
    vectors = model.encoder.encode([Image.fromarray(image) for image in pixels])
    np.savez_compressed(folder / "model.npz", vectors=vectors)


def main() -> None:
    """Write the archive; leases name their holder, so the user and the host get other names."""
    os.environ["LOGNAME"], socket.gethostname = "somebody", lambda: "somewhere"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "earlier"
        folder.mkdir()
        np.savez_compressed(folder / "natives.npz", id=np.array(IDS), vector=NATIVES, source=VECTORS)
        for write in (backfilling, cutover, adopted, estimated, model):
            write(folder)
        with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
            archive.add(folder, "earlier")


if __name__ == "__main__":
    main()
