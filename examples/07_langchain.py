"""A LangChain app answers while its store is upgraded to another embedding model, fused, cut over and cleaned up."""

import tempfile

import numpy as np
from langchain_core.embeddings import Embeddings

import compatstore as cs
from compatstore.integrations.langchain import CompatStoreVectorStore, as_encoder
from compatstore.trainers import Pairs, Ridge


class HashedWords(Embeddings):
    """A toy model: each word is a vector of `size` values, and a text is the sum of its words."""

    def __init__(self, size):
        self.size = size

    def embed_query(self, text):  # noqa: D102
        return sum(np.random.default_rng([*word.encode()]).normal(size=self.size) for word in text.split()).tolist()

    def embed_documents(self, texts):  # noqa: D102
        return [self.embed_query(text) for text in texts]


path, old, new = tempfile.mkdtemp() + "/docs.lance", HashedWords(16), HashedWords(128)
documents = [getattr(np, name).__doc__ or "" for name in dir(np)]
texts = sorted({text[50:350] for text in documents if len(text) > 900})[:200]
store = CompatStoreVectorStore.from_texts(texts, old, [{"n": n} for n in range(len(texts))], gallery=path, models=[new])
retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"n": {"$gte": 0}}})


def ask(state):
    right = sum(text == retriever.invoke(text[50:120])[0].page_content for text in texts[::4])
    print(f"{state}: {right} of {len(texts[::4])} found")


ask("v1")
gallery = cs.Gallery.open(path)  # the manager: another process, or a shell
gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=as_encoder(new)))
vectors = [as_encoder(model).encode(texts[:120]) for model in (old, new)]
gallery.link(Ridge().fit(Pairs(*vectors, source_version=gallery.version("v1"), target_version=gallery.version("v2"))))
gallery.upgrade("v2", backfill=0.5)
gallery.fuse("v2", weight=0.7)
ask("both as one")
gallery.cutover("v2")
gallery.upgrade("v2", backfill=1.0)
ask("cut over")
gallery.retire("v1")
ask("v2 alone")
