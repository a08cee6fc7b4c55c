"""An app's own LanceDB table is upgraded in place: the app goes on as before, and a rollback is one call."""

import tempfile

import lancedb
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import compatstore as cs
from compatstore.trainers import Pairs, Ridge

pixels, digits = load_digits(return_X_y=True)
old = PCA(8, random_state=0).fit_transform(pixels).astype(np.float32)
new = LinearDiscriminantAnalysis(n_components=8).fit(pixels, digits).transform(pixels).astype(np.float32)
keys = [f"photo-{n}" for n in range(len(pixels))]

# The app, which has never heard of compatstore.
table = lancedb.connect(tempfile.mkdtemp()).create_table(
    "photos", [{"key": k, "embedding": v, "digit": int(d)} for k, v, d in zip(keys, old.tolist(), digits, strict=True)]
)

v1 = cs.EmbeddingVersion("v1", dim=8, metric="l2", model="pca-8")
native = cs.encoders.Precomputed(dict(zip(keys, new, strict=True)))
v2 = cs.EmbeddingVersion("v2", dim=8, metric="l2", encoder=native)
gallery = cs.Gallery.adopt(table, v1, vector="embedding", id="key")
gallery.register(v2)
gallery.artifacts.link(Ridge().fit(Pairs(old[:600], new[:600], source_version=v1, target_version=v2)))
for warning in gallery.upgrade("v2", backfill=0.2, dry_run=True).warnings:
    print("note:", warning)
gallery.upgrade("v2", backfill=0.2)

# Meanwhile the app adds a photo and searches, by its own vectors.
table.checkout_latest()
table.add([{"key": "new", "embedding": (old[3] + 0.01).tolist(), "digit": int(digits[3])}])
print("the app finds", [row["key"] for row in table.search(old[3].tolist()).limit(2).to_list()])
for _ in range(2):
    print("not in v2:", {version.name: version.missing for version in gallery.status().versions}["v2"])
    gallery.upgrade("v2")
print("active", gallery.cutover("v2").active, "and back", gallery.rollback().active)
