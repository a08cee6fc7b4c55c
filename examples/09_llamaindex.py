"""A LlamaIndex app answers while its store is upgraded to another embedding model, fused, cut over and cleaned up."""

import tempfile

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from toy_model import TEXTS, embed

import compatstore as cs
from compatstore.integrations.llamaindex import LlamaIndexVectorStore, as_encoder
from compatstore.trainers import Pairs, Ridge


class Toy(BaseEmbedding):
    """The toy model as LlamaIndex calls models."""

    size: int

    def _get_text_embedding(self, text):
        return embed(text, self.size)

    _get_query_embedding = _get_text_embedding
    _aget_query_embedding = BaseEmbedding._aget_text_embedding


path, old, new = tempfile.mkdtemp() + "/docs.lance", Toy(size=16), Toy(size=128)
index = VectorStoreIndex.from_vector_store(LlamaIndexVectorStore(old, path, models=[new]), embed_model=old)
index.insert_nodes([TextNode(text=text) for text in TEXTS])
app = index.as_retriever(similarity_top_k=1)


def ask(state):
    right = sum(text == app.retrieve(text[50:120])[0].node.text for text in TEXTS[::4])
    print(f"{state}: {right} of {len(TEXTS[::4])} found")


ask("v1")
gallery = cs.Gallery.open(path)  # the worker: another process, or a shell
gallery.register(cs.EmbeddingVersion("v2", dim=128, encoder=as_encoder(new)))
vectors = [as_encoder(model).encode(TEXTS[:120]) for model in (old, new)]
pairs = Pairs(*vectors, source_version=gallery.version("v1"), target_version=gallery.version("v2"))
gallery.upgrade("v2", transform=Ridge().fit(pairs), backfill=0.5)
gallery.evaluate("v2", weight=0.7)
ask("fused")
gallery.cutover("v2")
gallery.upgrade("v2", backfill=1.0)
ask("cut over")
gallery.retire("v1")
ask("v2 alone")
