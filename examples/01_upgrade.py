"""The life of an upgrade on vectors: 8 principal components of digits give way to 9 discriminants."""

import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import compatstore as cs
from compatstore.trainers import FCT, Pairs

pixels, digits = load_digits(return_X_y=True)
learn, kept, probes = np.split(np.random.default_rng(0).permutation(len(pixels)), [700, 1500])
source = PCA(8, random_state=0).fit(pixels[learn]).transform(pixels).astype(np.float32)
target = LinearDiscriminantAnalysis().fit(pixels[learn], digits[learn]).transform(pixels).astype(np.float32)
ids = np.array([f"digit-{n}" for n in range(len(pixels))])
native = cs.encoders.Precomputed(dict(zip(ids, target, strict=True)))
v1 = cs.EmbeddingVersion("v1", dim=8, metric="l2", model="pca-8")
v2 = cs.EmbeddingVersion("v2", dim=9, metric="l2", encoder=native)


def show(name: str, queries: np.ndarray, version: str) -> None:
    stored = gallery.vectors(ids[kept].tolist(), version)
    found = cs.evaluation.retrieval_metrics(queries[probes], stored, digits[probes], digits[kept])
    print(f"{name:20} CMC-1 {found.cmc[1]:.3f}  mAP {found.map:.3f}")


gallery = cs.Gallery.create(tempfile.mkdtemp() + "/digits.lance", v1)
gallery.add({"id": ids[kept].tolist(), "vector": source[kept], "digit": digits[kept]})
show("status quo", source, "v1")
gallery.register(v2)
pairs = Pairs(source[learn], target[learn], source_version=v1, target_version=v2)
gallery.artifacts.link(FCT(branch_width=128, mixer_width=512, epochs=100, batch_size=128).fit(pairs))
print("plan:", ", ".join(step.name for step in gallery.upgrade("v2", backfill=0.5, dry_run=True).steps))
for share in (0.0, 0.5, 1.0):
    gallery.upgrade("v2", backfill=share)
    show(f"hop, {share:.0%} backfilled", target, "v2")
gallery.cutover("v2")
print(f"{gallery} finds", gallery.search(target[probes[0]], k=3, columns=["digit"])["digit"].to_pylist())
