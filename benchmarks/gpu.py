"""The hop, a backfill and exact search on a GPU, beside the card's own limits in the same run.

    python -m benchmarks.gpu [--rows 400000] [--dim 128] [--repeats 3] [--images 4096] [--architecture resnet50]

Prints, in float32 and bfloat16: the card's matrix products and memory bandwidth, the bus; rows per second of FCT's
network with its rows on the card, from the host's memory, and of a whole hop; the share of each in the limit that
applies to it. Then images per second of a network of timm (random weights, JPEG files of 112 pixels), with images on
the card, by its encoder, and in a backfill. Then exact neighbours of `--rows` items: a product and `topk` on the card,
and FAISS's where it is built for GPUs. Without a GPU all of it runs on the processor, which shows that it works.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import compatstore as cs
from benchmarks.hop import make, network
from compatstore.artifacts.architecture import forward
from compatstore.artifacts.network import Execution, Network, Precision
from compatstore.artifacts.runners import TorchRunner
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import TimmBackbone
from compatstore.encoders.network import Preprocessing

BATCH = 16384
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
PIXELS = 112
QUERIES, K = 1000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--architecture", default="resnet50")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU: everything on the processor"
    print(f"{name}; torch {torch.__version__}\n\n| what | a second | share of its limit |\n|---|---|---|")
    lines = (
        *hop_lines(options.rows, options.dim, options.repeats, device),
        *encoder_lines(options.architecture, options.images, options.repeats, device),
        *search_lines(options.rows, options.dim, options.repeats, device),
    )
    print(*lines, sep="\n")


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of a call, the device's work included, after one call that is not counted."""
    found = []
    for _ in range(repeats + 1):
        _finish()
        started = time.perf_counter()
        work()
        _finish()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def products(side: int, dtype: torch.dtype, repeats: int, device: str) -> float:
    """Floating-point operations per second of a product of two square matrices."""
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    return 2 * side**3 / seconds(lambda: left @ right, repeats)


def hop_lines(rows: int, dim: int, repeats: int, device: str) -> Iterator[str]:
    """Limits of the card and the bus, then FCT's network on the card, from the host, and as a hop."""
    side, size = (8192, 1 << 30) if device == "cuda" else (512, 1 << 24)
    block = torch.empty(size, dtype=torch.uint8, device=device)
    copies = 2 * size / seconds(lambda: block.clone(), repeats)
    pinned = torch.empty(size // 4, dtype=torch.uint8, pin_memory=device == "cuda")
    bus = len(pinned) / seconds(lambda: pinned.to(device, copy=True), repeats)
    yield f"| copies on the card, read and written | {copies / 1e9:,.0f} GB | |"
    yield f"| from pinned memory of the host | {bus / 1e9:,.1f} GB | |"
    architecture, tensors = network(dim)
    flops = 2 * sum(tensor.size for name, tensor in tensors.items() if name.endswith("weight"))
    vectors = np.random.default_rng(3).normal(size=(rows, dim)).astype(np.float32)
    here = torch.from_numpy(vectors).to(device)
    for precision in PRECISIONS:
        limit = products(side, getattr(torch, precision), repeats, device)
        yield f"| matrix products, {precision} | {limit / 1e12:,.1f} TFLOP | |"
        runner = TorchRunner(architecture, tensors, device=device, precision=precision)

        def on_card(runner: TorchRunner = runner) -> None:
            with torch.inference_mode():
                for part in here.split(BATCH):
                    forward(architecture, runner, part, None)

        rate = rows / seconds(on_card, repeats)
        yield f"| network, rows on the card, {precision} | {rate:,.0f} rows | {rate * flops / limit:.2f} of products |"
        whole, execution = Network(architecture, tensors), Execution(device=device, precision=precision)
        rate = rows / seconds(lambda n=whole, e=execution: n.run(vectors, None, e), repeats)
        share = rate * 4 * (dim + architecture.output_dim) / bus
        yield f"| network, rows in the host's memory, {precision} | {rate:,.0f} rows | {share:.2f} of the bus |"
    with tempfile.TemporaryDirectory() as folder:
        gallery = make(Path(folder), rows, dim)
        bare = None
        for where, precision in (("cpu", "float32"), *((device, precision) for precision in PRECISIONS)):
            rate = rows / statistics.median(hop_seconds(gallery, where, precision) for _ in range(repeats))
            bare = bare or rate
            share = f"{rate / bare:.2f} of the processor's in float32"
            yield f"| hop of {rows:,} rows, {where}, {precision} | {rate:,.0f} rows | {share} |"


def hop_seconds(gallery: cs.Gallery, device: str, precision: Precision) -> float:
    """Seconds of one hop; the gallery is as it was before."""
    started = time.perf_counter()
    gallery.upgrade("v2", run=cs.RunSettings(device=device, precision=precision))
    taken = time.perf_counter() - started
    gallery.retire("v2")
    return taken


def encoder_lines(architecture: str, images: int, repeats: int, device: str) -> Iterator[str]:
    """A network of timm: images on the card, files through its encoder, and a backfill of all of them."""
    backbone = TimmBackbone(name=architecture, dim=128, channels=3)
    encoder = NetworkEncoder(backbone, Preprocessing(size=PIXELS, mode="RGB"), normalise=True)
    batch = torch.rand(256, 3, PIXELS, PIXELS, device=encoder.device)

    def alone() -> None:
        with torch.inference_mode():
            encoder.module.eval()(batch)

    limit = len(batch) / seconds(alone, repeats)
    yield f"| {architecture} at {PIXELS} pixels, images on the card | {limit:,.0f} images | |"
    with tempfile.TemporaryDirectory() as folder:
        paths, rng = [], np.random.default_rng(4)
        for number in range(images):
            paths.append(str(Path(folder, f"{number}.jpg")))
            coarse = Image.fromarray(rng.integers(0, 256, (14, 14, 3), np.uint8))
            coarse.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(paths[-1], quality=87)
        rate = images / seconds(lambda: encoder.encode(paths), 1)
        yield f"| the same, JPEG files by its encoder | {rate:,.0f} images | {rate / limit:.2f} of the network |"
        source = cs.EmbeddingVersion("v1", dim=16)
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), source)
        gallery.add({"id": paths, "vector": rng.normal(size=(images, 16)).astype(np.float32), "source": paths})
        gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=encoder))
        started = time.perf_counter()
        gallery.upgrade("v2", backfill=1.0, learn=None)
        backfill = images / (time.perf_counter() - started)
        yield f"| a backfill of {images:,} of them | {backfill:,.0f} images | {backfill / rate:.2f} of the encoder |"


def search_lines(rows: int, dim: int, repeats: int, device: str) -> Iterator[str]:
    """Exact neighbours by inner product: torch, and FAISS where it is built for GPUs."""
    rng = np.random.default_rng(5)
    items, queries = (rng.normal(size=(count, dim)).astype(np.float32) for count in (rows, QUERIES))
    held, asked = (torch.from_numpy(each).to(device) for each in (items, queries))
    rate = QUERIES / seconds(lambda: (asked @ held.T).topk(K, dim=1), repeats)
    yield f"| exact neighbours of {rows:,} items, torch | {rate:,.0f} queries | |"
    if importlib.util.find_spec("faiss") is None:
        return
    import faiss

    index = faiss.IndexFlatIP(dim)
    gpu = device == "cuda" and hasattr(faiss, "StandardGpuResources")
    index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index) if gpu else index
    index.add(items)
    rate = QUERIES / seconds(lambda: index.search(queries, K), repeats)
    yield f"| the same, FAISS on {'the card' if gpu else 'the processor'} | {rate:,.0f} queries | |"


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
