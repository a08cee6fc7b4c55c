"""A LangChain app answers while its store is upgraded to another embedding model, fused, cut over and cleaned up."""

import tempfile

from langchain_core.embeddings import Embeddings
from toy_model import TEXTS, embed

import compatstore as cs
from compatstore.integrations.langchain import CompatStoreVectorStore, as_encoder
from compatstore.trainers import Pairs, Ridge


class Toy(Embeddings):
    """The toy model as LangChain calls models."""

    def __init__(self, size):
        self.size = size

    def embed_query(self, text):  # noqa: D102
        return embed(text, self.size)

    def embed_documents(self, texts):  # noqa: D102
        return [self.embed_query(text) for text in texts]


path, old, new = tempfile.mkdtemp() + "/docs.lance", Toy(16), Toy(128)
store = CompatStoreVectorStore.from_texts(TEXTS, old, [{"n": n} for n in range(200)], gallery=path, models=[new])
retriever = store.as_retriever(search_kwargs={"k": 1, "filter": {"n": {"$gte": 0}}})


def ask(state):
    right = sum(text == retriever.invoke(text[50:120])[0].page_content for text in TEXTS[::4])
    print(f"{state}: {right} of {len(TEXTS[::4])} found")


ask("v1")
gallery = cs.Gallery.open(path)  # the worker: another process, or a shell
gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=as_encoder(new)))
vectors = [as_encoder(model).encode(TEXTS[:120]) for model in (old, new)]
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
