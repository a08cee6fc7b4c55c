"""A target that is trained to search the source's gallery, and the gain by a refresh by distance."""

import tempfile

import numpy as np
from sklearn.datasets import load_digits

import compatstore as cs
from compatstore.trainers import BCT, Images, Independent, Pairs, Residual

digits = load_digits()
pixels, labels = (digits.images * 255 / 16).astype(np.uint8), digits.target
learn, kept, probes = np.split(np.random.default_rng(0).permutation(len(pixels)), [700, 1500])
images = Images(pixels[learn], labels[learn])
network = {"dim": 32, "width": 16, "epochs": 12, "head": "arcface"}
source = Independent(**network).fit(images.of_classes(range(5)))  # it has never seen the digits 5 to 9
target = BCT(**network).fit(images, source)


def show(name: str, version: str) -> None:
    model = source if version == "v1" else target
    found = gallery.search(model.encoder.encode(list(pixels[probes])), k=1, version=version, columns=["digit"])
    print(f"{name:32} CMC-1 {(found['digit'].to_numpy() == labels[probes]).mean():.3f}")


gallery = cs.Gallery.create(tempfile.mkdtemp() + "/digits.lance", source.version("v1"))
vectors = source.encoder.encode(list(pixels[kept]))
gallery.add({"id": [f"digit-{n}" for n in kept], "vector": vectors, "digit": labels[kept]})
show("status quo", "v1")
gallery.register(target.version("v2"))
gallery.artifacts.link(target.artifact, "v1", "v2")
show("new queries, nothing refreshed", "v2")
both = [model.encoder.encode(list(pixels[learn])) for model in (source, target)]
pairs = Pairs(*both, source_version=gallery.version("v1"), target_version=gallery.version("v2"))
gallery.artifacts.link(Residual().fit(pairs))
gallery.upgrade("v2")
gallery.cutover("v2")
show("refreshed by distance", "v2")
