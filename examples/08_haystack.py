"""A Haystack pipeline answers while its store is upgraded to another model, fused, cut over and cleaned up."""

import tempfile

import numpy as np
from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder

import compatstore as cs
from compatstore.integrations import haystack as stores
from compatstore.trainers import Pairs, Ridge


def toy(size):
    """A toy model: each word is a vector of `size` values, and a text is the sum of its words."""

    def embed(text):
        return sum(np.random.default_rng([*word.encode()]).normal(size=size) for word in text.split()).tolist()

    mocks = (kind(embedding_fn=embed) for kind in (MockDocumentEmbedder, MockTextEmbedder))
    return stores.Embedders(*mocks, identity=f"toy of {size}")


texts = sorted({text[50:350] for text in (getattr(np, n).__doc__ or "" for n in dir(np)) if len(text) > 900})[:200]
path, old, new = tempfile.mkdtemp() + "/docs.lance", toy(16), toy(128)
store = stores.CompatStoreDocumentStore(path, old, models=[new])
store.write_documents([Document(content=text) for text in texts])
app = Pipeline()
app.add_component("retriever", stores.CompatStoreEmbeddingRetriever(store, top_k=1))


def ask(state):
    found = [app.run({"retriever": {"query": text[50:120]}})["retriever"]["documents"][0] for text in texts[::4]]
    right = [one.content for one in found] == np.array(texts[::4], object)
    print(f"{state}: {right.sum()} of {len(found)} found")


ask("v1")
gallery = cs.Gallery.open(path)  # the manager: another process, or a shell
gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=stores.as_encoder(new)))
vectors = [stores.as_encoder(model).encode(texts[:120]) for model in (old, new)]
gallery.link(Ridge().fit(Pairs(*vectors, source_version=gallery.version("v1"), target_version=gallery.version("v2"))))
gallery.upgrade("v2", backfill=0.5)
gallery.fuse("v2", weight=0.7)
ask("both as one")
gallery.cutover("v2")
gallery.upgrade("v2", backfill=1.0)
ask("cut over")
gallery.retire("v1")
ask("v2 alone")
