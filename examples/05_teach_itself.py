"""An upgrade with nothing but an encoder and a budget: docstrings of Python, a coarse and a fine text model."""

import importlib
import inspect
import tempfile

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import compatstore as cs

MODULES = """argparse asyncio collections configparser csv datetime decimal email.message enum fractions http.client
inspect ipaddress json logging mailbox multiprocessing os pathlib random re shutil socket sqlite3 statistics
string subprocess tarfile tempfile threading unittest zipfile"""

texts = dict[str, str]()
for module in map(importlib.import_module, MODULES.split()):
    for owner in [module, *(value for _, value in inspect.getmembers(module, inspect.isclass))]:
        for name, value in inspect.getmembers(owner, callable):
            text = inspect.getdoc(value) or ""
            if len(text) > 60 and not name.startswith("__"):
                texts.setdefault(text, module.__name__)
documents = list(texts)


def encoder(dim: int) -> cs.encoders.Function:
    """A text model of some values: latent semantic analysis."""
    model = make_pipeline(TfidfVectorizer(), TruncatedSVD(dim, random_state=0), Normalizer()).fit(documents)
    return cs.encoders.Function(lambda texts: model.transform(texts).astype(np.float32), dim, fingerprint=f"lsa-{dim}")


v1, v2 = (
    cs.EmbeddingVersion(name, dim=dim, metric="cosine", encoder=encoder(dim)) for name, dim in (("v1", 24), ("v2", 96))
)
gallery = cs.Gallery.create(tempfile.mkdtemp() + "/docstrings.lance", v1)
ids = [f"doc-{number}" for number in range(len(documents))]
gallery.add({"id": ids, "source": documents, "module": list(texts.values())})
gallery.register(v2)

result = gallery.upgrade("v2", backfill=cs.Backfill(max_cost=0.03, price_per_item=0.0001))
print(f"{len(documents)} texts, {result.backfilled} embedded by the new model for {result.spent.cost:.2f}")
print(*result.rounds, sep="\n")
print(result.served)
found = gallery.search("Remove a directory and everything in it", k=3)
print([text.splitlines()[0] for text in found["source"].to_pylist()])
