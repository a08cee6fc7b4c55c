"""The hop, a backfill and exact search on a GPU, beside the card's own limits; on the processor without a GPU.

In float32 and bfloat16: the card's matrix products; rows per second of FCT's network with its rows on the card, and of
a whole hop. Then images per second of a network of timm (random weights, JPEG files of 112 pixels), with images on the
card, by its encoder, and in a backfill; and exact neighbours by a product and `topk`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.bounds import number
from benchmarks.hop import make, network
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.artifacts.architecture import forward
from compatstore.artifacts.network import Precision
from compatstore.artifacts.runners import TorchRunner
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import TimmBackbone
from compatstore.encoders.network import Preprocessing

BATCH, PIXELS, QUERIES, K = 16384, 112, 1000, 10
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call, the device's work included, after one call that is not counted."""
    import torch

    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def rate(what: str, count: float, taken: float, unit: str, limit: float | None = None, of: str = "") -> Row:
    """A row: so many a second, and their share of a limit."""
    found = count / taken
    return {"what": what, "per_second": found, "unit": unit, "share": limit and round(found / limit, 2), "of": of}


def hops(rows: int, dim: int, repeats: int, device: str) -> Iterator[Row]:
    """FCT's network on the card, and a hop."""
    import torch

    side = 8192 if device == "cuda" else 512
    architecture, tensors = network(dim)
    flops = 2 * sum(tensor.size for name, tensor in tensors.items() if name.endswith("weight"))
    here = torch.from_numpy(np.random.default_rng(3).normal(size=(rows, dim)).astype(np.float32)).to(device)
    for precision in PRECISIONS:
        left, right = (torch.randn(side, side, device=device, dtype=getattr(torch, precision)) for _ in range(2))
        taken = seconds(lambda pair=(left, right): pair[0] @ pair[1], repeats)  # type: ignore[misc]
        product = rate(f"matrix products, {precision}", 2 * side**3, taken, "operations")
        yield product
        runner = TorchRunner(architecture, tensors, device=device, precision=precision)

        def on_card(runner: TorchRunner = runner) -> None:
            with torch.inference_mode():
                for part in here.split(BATCH):
                    forward(architecture, runner, part, None)

        limit = product["per_second"] / flops
        yield rate(f"network, {precision}, on the card", rows, seconds(on_card, repeats), "rows", limit, "products")
    with tempfile.TemporaryDirectory() as folder:
        gallery, bare = make(Path(folder), rows, dim), None
        for where, precision in (("cpu", "float32"), *((device, precision) for precision in PRECISIONS)):
            taken = []
            for _ in range(repeats):
                started = time.perf_counter()
                gallery.upgrade("v2", run=cs.RunSettings(device=where, precision=precision))
                taken.append(time.perf_counter() - started)
                gallery.retire("v2")
            row = rate(
                f"hop, {where}, {precision}", rows, statistics.median(taken), "rows", bare, "the processor's hop"
            )
            bare = bare or row["per_second"]
            yield row


def images(architecture: str, count: int, repeats: int) -> Iterator[Row]:
    """A network of timm: images on the card, files through its encoder, and a backfill of all of them."""
    import torch
    from PIL import Image

    backbone = TimmBackbone(name=architecture, dim=128, channels=3)
    encoder = NetworkEncoder(backbone, Preprocessing(size=PIXELS, mode="RGB"), normalise=True)
    batch = torch.rand(256, 3, PIXELS, PIXELS, device=encoder.device)

    def alone() -> None:
        with torch.inference_mode():
            encoder.module.eval()(batch)

    card = rate(f"{architecture}, images on the card", len(batch), seconds(alone, repeats), "images")
    yield card
    with tempfile.TemporaryDirectory() as folder:
        paths, rng = [], np.random.default_rng(4)
        for at in range(count):
            paths.append(str(Path(folder, f"{at}.jpg")))
            coarse = Image.fromarray(rng.integers(0, 256, (14, 14, 3), np.uint8))
            coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(paths[-1], quality=87)
        taken = seconds(lambda: encoder.encode(paths), 1)
        files = rate("the same, JPEG files by its encoder", count, taken, "images", card["per_second"], "the network")
        yield files
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), cs.EmbeddingVersion("v1", dim=16))
        gallery.add({"id": paths, "vector": rng.normal(size=(count, 16)).astype(np.float32), "source": paths})
        gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=encoder))
        started = time.perf_counter()
        gallery.upgrade("v2", backfill=1.0, learn=None)
        taken = time.perf_counter() - started
        yield rate("a backfill of them", count, taken, "images", files["per_second"], "the encoder")


def run(
    *,
    rows: int = 400_000,
    dim: int = 128,
    repeats: int = 3,
    image_count: int = 4096,
    architecture: str = "resnet50",
) -> Iterator[Row]:
    """Hops, images, exact neighbours."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    yield from hops(rows, dim, repeats, device)
    yield from images(architecture, image_count, repeats)
    rng = np.random.default_rng(5)
    held, queries = (torch.from_numpy(rng.normal(size=(n, dim)).astype(np.float32)).to(device) for n in (rows, QUERIES))
    taken = seconds(lambda: (queries @ held.T).topk(K, dim=1), repeats)
    yield rate(f"exact neighbours of {rows:,} items", QUERIES, taken, "queries")


def table(record: Record) -> str:
    """Rates, and their shares of the limits."""
    cells = [
        (
            row["what"],
            f"{number(row['per_second'])} {row['unit']}",
            f"{row['share']} of {row['of']}" if row["share"] else "",
        )
        for row in record.rows
    ]
    return markdown(("what", "a second", "share of its limit"), cells)


SMOKE = {"rows": 600, "dim": 8, "repeats": 1, "image_count": 4, "architecture": "test_resnet"}
TABLES = {"rates": table}
