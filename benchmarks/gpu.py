"""Hops and a backfill on a GPU, beside the processor and the network alone; on the processor without a GPU.

Rows per second of hops in float32 and bfloat16. Then images per second of a network of timm (random weights, JPEG files
of 112 pixels), with images on the card, by its encoder, and in a backfill.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.bounds import number
from benchmarks.hop import hop, make
from benchmarks.measuring import by_turns
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import TimmBackbone
from compatstore.encoders.network import Preprocessing

PIXELS = 112


def rate(what: str, count: float, taken: float, unit: str, limit: float | None = None, of: str = "") -> Row:
    """A row: a rate a second, and its share of a limit."""
    found = count / taken
    return {"what": what, "per_second": found, "unit": unit, "share": limit and round(found / limit, 2), "of": of}


def hops(rows: int, dim: int, repeats: int, device: str) -> Iterator[Row]:
    """Hops on the processor and on the card."""
    with tempfile.TemporaryDirectory() as folder:
        gallery = make(Path(folder, "gallery.lance"), rows, dim)
        ways: dict[str, Callable[[Any], object]] = {}
        for where, precision in (("cpu", "float32"), (device, "float32"), (device, "bfloat16")):
            settings = {"device": where, "precision": precision}
            ways[f"hop, {where}, {precision}"] = lambda _, settings=settings: hop(gallery, **settings)  # type: ignore[misc]
            ways[f"undo {where}, {precision}"] = lambda _: gallery.retire("v2")
        taken, bare = by_turns(ways, range(repeats)), 0.0
        for name in (name for name in ways if name.startswith("hop")):
            row = rate(name, rows, float(np.median(taken[name])), "rows", bare, "the processor's hop")
            bare = bare or row["per_second"]
            yield row


def images(architecture: str, count: int, repeats: int) -> Iterator[Row]:
    """A network of timm: images on the card, files through its encoder, and a backfill of all of them."""
    import torch
    from PIL import Image

    backbone = TimmBackbone(name=architecture, dim=128, channels=3)
    encoder = NetworkEncoder(backbone, Preprocessing(size=PIXELS, mode="RGB"), normalise=True)
    batch = torch.rand(256, 3, PIXELS, PIXELS, device=encoder.device)

    def alone(_: object) -> None:
        with torch.inference_mode():
            encoder.module.eval()(batch).cpu()

    seconds = by_turns({"card": alone}, range(repeats + 1))["card"][1:]
    card = rate(f"{architecture}, images on the card", len(batch), float(np.median(seconds)), "images")
    yield card
    with tempfile.TemporaryDirectory() as folder:
        paths, rng = [], np.random.default_rng(4)
        for at in range(count):
            paths.append(str(Path(folder, f"{at}.jpg")))
            coarse = Image.fromarray(rng.integers(0, 256, (14, 14, 3), np.uint8))
            coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(paths[-1], quality=87)
        taken = float(by_turns({"files": lambda _: encoder.encode(paths)}, range(2))["files"][1])
        files = rate("the same, JPEG files by its encoder", count, taken, "images", card["per_second"], "the network")
        yield files
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), cs.EmbeddingVersion("v1", dim=16))
        gallery.add({"id": paths, "vector": rng.normal(size=(count, 16)).astype(np.float32), "source": paths})
        gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=encoder))
        taken = float(by_turns({"": lambda _: gallery.upgrade("v2", backfill=1.0, learn=None)}, [None])[""][0])
        yield rate("a backfill of them", count, taken, "images", files["per_second"], "the encoder")


def run(
    *, rows: int = 400_000, dim: int = 128, repeats: int = 3, image_count: int = 4096, architecture: str = "resnet50"
) -> Iterator[Row]:
    """Hops, then images."""
    import torch

    yield from hops(rows, dim, repeats, "cuda" if torch.cuda.is_available() else "cpu")
    yield from images(architecture, image_count, repeats)


def table(record: Record) -> str:
    """Rates, and their shares of the limits."""
    cells = []
    for row in record.rows:
        limit = f"{row['share']} of {row['of']}" if row["share"] else ""
        cells.append((row["what"], f"{number(row['per_second'])} {row['unit']}", limit))
    return markdown(("what", "a second", "share of its limit"), cells)


SMOKE = {"rows": 600, "dim": 8, "repeats": 1, "image_count": 4, "architecture": "test_resnet"}
TABLES = {"rates": table}
