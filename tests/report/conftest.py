"""Reports to look at: of digits with pictures and predicted errors, of waves, and of text that is an attack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from digit_galleries import DIGITS, LABELS
from PIL import Image

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.evaluation import Estimate
from compatstore.evaluation.fusion import Measurement
from compatstore.upgrade.estimates.estimate import WaveMeasurement, Waves

ITEMS = 500
ATTACKS = (
    "<script>document.title='owned'</script>",
    "</title></style></script><h1>owned</h1>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "' autofocus onfocus='document.title=1",
    "javascript:document.title='owned'",
    "http://owned.example/x.png",
    "file://owned.example/x.png",
    "data:image/svg+xml,<svg onload=alert(1)>.png",
    "]]><!-- &lt;b&gt; &#60;script&#62; {{7*7}}",
    "url(http://owned.example/x)",
    "@import 'http://owned.example/x.css';",
    "\u202eevil\u2066 \x1b[31m\r\nforged",
)
COLUMN = 'kind <b onmouseover="alert(1)">'
CAPTION = "caption' onclick='alert(1)"


def _noisy(seed, scale):
    return DIGITS[:ITEMS] + np.random.default_rng(seed).normal(0, scale, (ITEMS, 64)).astype(np.float32)


def gallery_with(path, ids, labels, *, unreadable=0, **columns):
    """A gallery of digits, 30 % of it native, whose transform predicts its errors."""
    native, source = DIGITS[:ITEMS], _noisy(0, 4.0)[:, ::2]
    encoder = cs.encoders.Precomputed(dict(zip(ids[unreadable:], native[unreadable:], strict=True)))
    v1 = cs.EmbeddingVersion("v1", dim=32, metric="l2")
    v2 = cs.EmbeddingVersion("v2", dim=64, metric="l2", encoder=encoder)
    architecture = Architecture(source_dim=32, output_dim=64, uncertainty=True)
    tensors = {f"h.{name}": np.zeros(shape, np.float32) for name, shape in architecture.shapes().items()}
    tensors["h.mixer.0.weight"] = np.linalg.lstsq(source, native, rcond=None)[0].T.astype(np.float32)
    sigma = next(name for name in tensors if "sigma" in name and name.endswith("weight"))
    tensors[sigma] = np.random.default_rng(1).normal(0, 0.01, tensors[sigma].shape).astype(np.float32)
    h = Artifact.create(
        "ForwardTransform",
        source=Space.of(v1),
        target=Space.of(v2),
        networks={"h": architecture},
        tensors=tensors,
    )
    gallery = cs.Gallery.create(str(path), v1)
    gallery.add({"id": ids, "vector": source, "label": labels, **columns})
    gallery.register(v2)
    gallery.artifacts.link(h)
    gallery.upgrade("v2", backfill=0.3)
    return gallery


@pytest.fixture(scope="session")
def pictured(tmp_path_factory):
    """A report of digits with labels and pictures."""
    folder = tmp_path_factory.mktemp("pictured")
    paths = [str(folder / f"{number}.png") for number in range(ITEMS)]
    for path, digit in zip(paths, DIGITS, strict=False):
        Image.fromarray((digit.reshape(8, 8) * 15).astype(np.uint8)).save(path)
    labels = [f"digit {digit}" for digit in LABELS[:ITEMS]]
    gallery = gallery_with(folder / "g.lance", [f"d{n}" for n in range(ITEMS)], labels, source=paths)
    return gallery.report("v2", sample=300, labels="label", details=cs.Details(worst=3, best=2, neighbours=4))


@pytest.fixture(scope="session")
def attacked(tmp_path_factory):
    """A report in which everything that can be text is an attack: the folder, ids, labels, columns, sources, errors."""
    folder = tmp_path_factory.mktemp("attacked") / "<img src=x onerror=alert(1)> & 'co'"
    some = [ATTACKS[number % len(ATTACKS)] for number in range(ITEMS)]
    ids = [f"{text} {number}" for number, text in enumerate(some)]
    labels = [ATTACKS[digit] for digit in LABELS[:ITEMS]]
    columns = {"source": some, COLUMN: [ATTACKS[-1 - digit] for digit in LABELS[:ITEMS]], CAPTION: some[::-1]}
    gallery = gallery_with(folder / "g.lance", ids, labels, unreadable=20, **columns)
    gallery.upgrade("v2", backfill=1.0)
    details = cs.Details(by=COLUMN, caption=CAPTION, worst=13, best=13)
    return gallery.report("v2", sample=300, labels="label", details=details)


def estimate(value, half=0.02):
    return Estimate(value=value, low=value - half, high=value + half)


MEASURED = Measurement(criterion="map", truth="labels", num_queries=90, native_share=0.75)


@pytest.fixture(scope="session")
def taught(pictured):
    """The first report, with the waves of an upgrade that teaches itself."""
    waves = [
        WaveMeasurement(
            native=50 * number,
            num_queries=90,
            native_share=0.1 * number,
            cost=0.0,
            seconds=1.0,
            weight=0.0 if number == 1 else 0.7,
            criterion="map",
            truth="labels",
            status_quo=estimate(0.6 - 0.1 * number),
            served=estimate(0.7 - 0.1 * number),
            gain=None if number == 1 else estimate(0.1 * number),
            ahead=(replace(MEASURED, served=estimate(0.8), gain=estimate(0.25)),),
        )
        for number in (1, 2, 3)
    ]
    return replace(pictured, waves=Waves(waves))
