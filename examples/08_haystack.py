"""A Haystack pipeline answers while its store is upgraded to another model, fused, cut over and cleaned up."""

import tempfile

from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from toy_model import TEXTS, embed

import compatstore as cs
from compatstore.integrations import haystack as stores
from compatstore.trainers import Pairs, Ridge


def toy(size):
    """The toy model as Haystack calls models."""
    kinds = MockDocumentEmbedder, MockTextEmbedder
    mocks = [kind(embedding_fn=lambda text: embed(text, size)) for kind in kinds]
    return stores.Embedders(*mocks, identity=f"toy of {size}")


path, old, new = tempfile.mkdtemp() + "/docs.lance", toy(16), toy(128)
store = stores.CompatStoreDocumentStore(path, old, models=[new])
store.write_documents([Document(content=text) for text in TEXTS])
app = Pipeline()
app.add_component("retriever", stores.CompatStoreEmbeddingRetriever(store, top_k=1))


def ask(state):
    found = [app.run({"retriever": {"query": text[50:120]}})["retriever"]["documents"][0] for text in TEXTS[::4]]
    right = sum(one.content == text for one, text in zip(found, TEXTS[::4], strict=True))
    print(f"{state}: {right} of {len(found)} found")


ask("v1")
gallery = cs.Gallery.open(path)  # the worker: another process, or a shell
gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=stores.as_encoder(new)))
vectors = [stores.as_encoder(model).encode(TEXTS[:120]) for model in (old, new)]
gallery.artifacts.link(
    Ridge().fit(Pairs(*vectors, source_version=gallery.version("v1"), target_version=gallery.version("v2")))
)
gallery.upgrade("v2", backfill=0.5)
gallery.evaluate("v2", weight=0.7)
ask("fused")
gallery.cutover("v2")
gallery.upgrade("v2", backfill=1.0)
ask("cut over")
gallery.retire("v1")
ask("v2 alone")
