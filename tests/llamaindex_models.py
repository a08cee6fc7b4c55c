"""Models as an app of LlamaIndex has them."""

from __future__ import annotations

import re
import zlib

import numpy as np
from llama_index.core.embeddings import BaseEmbedding


class HashedWords(BaseEmbedding):
    """Each word is a vector of some values, and a text is the sum of its words."""

    size: int = 16
    salt: int = 0

    def _get_query_embedding(self, query):
        words = [zlib.crc32(word.encode()) for word in re.findall(r"\w+", query.lower())]
        rows = [np.random.default_rng([word, self.salt]).standard_normal(self.size) for word in [0, *words]]
        return sum(rows).tolist()

    def _get_text_embedding(self, text):
        return self._get_query_embedding(text)

    async def _aget_query_embedding(self, query):
        return self._get_query_embedding(query)


OLD, NEW = HashedWords(size=16), HashedWords(size=24, salt=7)
