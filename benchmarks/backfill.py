"""A backfill: its time outside the encoder, and the bytes that it writes for each vector.

    python benchmarks/backfill.py [--rows 20000] [--dim 128] [--share 0.1] [--rate 200] [--write-mode auto]

The encoder sleeps, to take what a real one takes at `--rate` items a second. Prints the share of the time that is not
the encoder's, and the bytes written for each backfilled vector beside the vector's own, with their bounds. Each file
that appears is counted, also those that are gone at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Space

OUTSIDE_BOUND = 0.05
BYTES_BOUND = 3.0


def files_of(folder: Path) -> dict[str, int]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was there for a moment only
                found[os.path.join(place, name)] = os.path.getsize(os.path.join(place, name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--write-mode", choices=["auto", "move_rows", "rewrite_columns"], default="auto")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    spent = [0.0]

    def encode(sources: Sequence[str]) -> np.ndarray:
        started = time.perf_counter()
        time.sleep(len(sources) / arguments.rate)
        vectors = np.random.default_rng(len(sources)).normal(size=(len(sources), arguments.dim)).astype(np.float32)
        spent[0] += time.perf_counter() - started
        return vectors

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gallery.lance")
        gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=arguments.dim))
        ids = [f"{number:09d}" for number in range(arguments.rows)]
        vectors = rng.normal(size=(arguments.rows, arguments.dim)).astype(np.float32)
        gallery.add({"id": ids, "vector": vectors, "source": ids})
        encoder = cs.encoders.Function(encode, arguments.dim, fingerprint="sleeper")
        gallery.register(cs.EmbeddingVersion("v2", dim=arguments.dim, encoder=encoder))
        shape = Architecture(source_dim=arguments.dim, output_dim=arguments.dim)
        weights = {"h.mixer.0.weight": np.eye(arguments.dim), "h.mixer.0.bias": np.zeros(arguments.dim)}
        spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
        gallery.artifacts.link(cs.Artifact.create("ForwardTransform", networks={"h": shape}, tensors=weights, **spaces))
        gallery.upgrade("v2")
        before, seen, started = files_of(path), dict[str, int](), time.perf_counter()
        rows = gallery.upgrade(
            "v2",
            backfill=cs.Backfill(share=arguments.share, write_mode=arguments.write_mode),
            progress=lambda _: seen.update(files_of(path)),
        ).backfilled
        seconds = time.perf_counter() - started
        written = sum(size for name, size in {**seen, **files_of(path)}.items() if name not in before)
    outside, ratio = 1 - spent[0] / seconds, written / rows / (4 * arguments.dim)
    print(f"{rows} items in {seconds:.1f} s, {rows / seconds:.0f} a second, the encoder alone {rows / spent[0]:.0f}")
    print(f"outside the encoder: {outside:.1%}, bound <= {OUTSIDE_BOUND:.0%}, share {outside / OUTSIDE_BOUND:.2f}")
    print(f"bytes per vector / its own: {ratio:.1f}, bound <= {BYTES_BOUND:.0f}, share {ratio / BYTES_BOUND:.2f}")


if __name__ == "__main__":
    main()
