"""A LlamaIndex app answers while its store is upgraded to another embedding model, fused, cut over and cleaned up."""

import tempfile

import numpy as np
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode

import compatstore as cs
from compatstore.integrations.llamaindex import LlamaIndexVectorStore, as_encoder
from compatstore.trainers import Pairs, Ridge


class Toy(BaseEmbedding):
    """A toy model: each word is a vector of `size` values, and a text is the sum of its words."""

    size: int

    def _get_text_embedding(self, text):
        return sum(np.random.default_rng([*word.encode()]).normal(size=self.size) for word in text.split()).tolist()

    _get_query_embedding = _get_text_embedding
    _aget_query_embedding = BaseEmbedding._aget_text_embedding


texts = sorted({t[50:350] for name in dir(np) if len(t := getattr(np, name).__doc__ or "") > 900})[:200]
path, old, new = tempfile.mkdtemp() + "/docs.lance", Toy(size=16), Toy(size=128)
index = VectorStoreIndex.from_vector_store(LlamaIndexVectorStore(old, path, models=[new]), embed_model=old)
index.insert_nodes([TextNode(text=text) for text in texts])
app = index.as_retriever(similarity_top_k=1)


def ask(state):
    print(f"{state}: {sum(text == app.retrieve(text[50:120])[0].node.text for text in texts[::4])} of 50 found")


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
