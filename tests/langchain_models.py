"""A model as an app of LangChain has one."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

from toy_models import vector


class Toy(Embeddings):
    def __init__(self, size):
        self.size = size

    def embed_query(self, text):
        return vector(text, self.size)

    def embed_documents(self, texts):
        return [vector(text, self.size) for text in texts]
