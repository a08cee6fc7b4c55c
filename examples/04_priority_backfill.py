"""Priority backfill: FastFill orders the items, and an estimate gives the sufficient share."""

import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import compatstore as cs
from compatstore.trainers import FastFill, Pairs

pixels, digits = load_digits(return_X_y=True)
learn, kept = np.split(np.random.default_rng(0).permutation(len(pixels)), [600])
old = PCA(4, random_state=0).fit(pixels[learn]).transform(pixels).astype(np.float32)
model = LinearDiscriminantAnalysis().fit(pixels[learn], digits[learn])
new = model.transform(pixels).astype(np.float32)
ids = np.array([f"digit-{n}" for n in range(len(pixels))])

v1 = cs.EmbeddingVersion("v1", dim=4, metric="l2", model="pca-4")
v2 = cs.EmbeddingVersion("v2", dim=9, metric="l2", encoder=cs.encoders.Precomputed(dict(zip(ids, new, strict=True))))
gallery = cs.Gallery.create(tempfile.mkdtemp() + "/digits.lance", v1)
gallery.add({"id": ids[kept].tolist(), "vector": old[kept], "digit": digits[kept]})
gallery.register(v2)
pairs = Pairs(old[learn], new[learn], labels=digits[learn], source_version=v1, target_version=v2)
gallery.artifacts.link(FastFill(branch_width=64, mixer_width=256, epochs=60, batch_size=128).fit(pairs))

plan = gallery.upgrade(
    "v2",
    backfill=cs.Backfill(order="sigma"),
    gates=cs.Gates(target_quality=0.95, labels="digit", sample=600),
    dry_run=True,
)
for row in plan.estimate.table.rows:
    print(f"{row.name:28} mAP {row.figures['map'].percent}")
print(plan.estimate.promise)
report = gallery.upgrade("v2", backfill=cs.Backfill(order="sigma", share=plan.backfill))
print(f"embedded {report.backfilled} of {len(gallery)} items, {report.transformed} were transformed before")
