"""An upgrade with nothing but an encoder and a budget: images of digits, whose labels are learned from as well."""

import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import compatstore as cs

images, digits = load_digits(return_X_y=True)
known = np.arange(len(images)) % 2 == 0  # what both models were trained on


def encoder(model: PCA | LinearDiscriminantAnalysis, dim: int, fingerprint: str) -> cs.encoders.Function:
    """A model of images, which are named by their row."""

    def embed(names: list[str]) -> np.ndarray:
        return model.transform(images[[int(name) for name in names]]).astype(np.float32)

    return cs.encoders.Function(embed, dim, fingerprint=fingerprint)


old = encoder(PCA(8).fit(images[known]), 8, "pca-8")
new = encoder(LinearDiscriminantAnalysis().fit(images[known], digits[known]), 9, "lda-9")
gallery = cs.Gallery.create(tempfile.mkdtemp() + "/digits.lance", cs.EmbeddingVersion("v1", dim=8, encoder=old))
rows = np.flatnonzero(~known)
gallery.add({"id": [f"image-{row}" for row in rows], "source": [str(row) for row in rows], "digit": digits[rows]})
gallery.register(cs.EmbeddingVersion("v2", dim=9, encoder=new))

result = gallery.upgrade("v2", backfill=0.25, gates=cs.Gates(labels="digit"), learn=cs.Learn(first=100))
print(*(f"wave {number}: {wave}" for number, wave in enumerate(result.waves, start=1)), sep="\n")
print(result.served)
found = gallery.search("15", k=5)["digit"].to_pylist()
print(f"nearest to a {digits[15]}: {found}")
