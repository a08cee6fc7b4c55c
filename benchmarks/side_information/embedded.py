"""The embeddings of a trial: source, target, and each kind of side-information, trained once and kept in files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.lesson import Lesson
from compatstore.arrays import FloatArray
from compatstore.encoders import Encoder
from compatstore.trainers import Alternate, Augmentation, Autoencoder, Independent, SimCLR

LEARNT, GALLERY, QUERIES = "learnt", "gallery", "queries"
Parts = dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Embedded:
    """One trial's embeddings.

    Args:
        lesson: What is learnt from and what is searched.
        folder: Where they are kept.
    """

    lesson: Lesson
    folder: Path

    @cached_property
    def source(self) -> Parts:
        """(n, dim) of what transforms learn from, the gallery and the queries."""
        return self._once("source", lambda: self._classifier(0).fit(self.lesson.sources[0]).encoder)

    @cached_property
    def target(self) -> Parts:
        """The same of the target, which knows all classes."""
        return self._once("target", lambda: self._classifier(0).fit(self.lesson.target).encoder)

    def side(self, kind: str) -> Parts:
        """The same of a kind of side-information, learnt from the source's images."""
        return self._once(kind, lambda: self.kinds[kind]().fit(self.lesson.sources[0]).encoder)

    @property
    def kinds(self) -> dict[str, Callable[[], Any]]:
        """The trainers of side-information."""
        size, loop = self.lesson.size, self._loop(0)
        # As the page was measured: no projection, and crops as those of classifiers.
        contrastive = {**loop, "batch_size": 256, "projection": 0, "augmentation": Augmentation()}
        other = {**self._loop(1000), "head": "cosine"}
        return {
            "autoencoder": lambda: Autoencoder(dim=size.side, **loop),
            "another seed": lambda: Alternate(dim=size.side, **other),
            "another seed, Mixup": lambda: Alternate(dim=size.side, mixup=0.5, **other),
            "another seed, Mixup, for codes": lambda: Alternate(dim=128, mixup=0.5, codes=True, **other),
            "SimCLR": lambda: SimCLR(dim=size.side, **contrastive),
            "SimCLR, 128 values": lambda: SimCLR(dim=128, **contrastive),
            "SimCLR, 128 values, for codes": lambda: SimCLR(dim=128, codes=True, **contrastive),
        }

    def _classifier(self, seed: int) -> Independent:
        return Independent(dim=self.lesson.size.dim, head="cosine", **self._loop(seed))

    def _loop(self, more: int) -> dict[str, Any]:
        size = self.lesson.size
        return {
            "size": size.pixels,
            "width": size.width,
            "epochs": size.epochs,
            "batch_size": size.batch_size,
            "precision": size.precision,
            "seed": self.lesson.seed + more,
        }

    def _once(self, name: str, train: Callable[[], Encoder]) -> Parts:
        """Train and embed, unless a file has it."""
        path = self.folder / f"{self.lesson.seed}, {name}.npz"
        if not path.exists():
            start = time.process_time()
            encoder = train()
            parts = {LEARNT: self.lesson.target, GALLERY: self.lesson.gallery, QUERIES: self.lesson.queries}
            made = {part: encoder.encode(list(images.images)) for part, images in parts.items()}
            np.savez(path, **made)
            print(f"seed {self.lesson.seed}, {name}: {time.process_time() - start:.0f} s of processor", flush=True)
        with np.load(path) as arrays:
            return {part: arrays[part] for part in arrays.files}
