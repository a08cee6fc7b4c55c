"""An encoder for processes of tests: words hashed to places."""

import zlib

import numpy as np

import compatstore as cs


def embed(texts):
    vectors = np.zeros((len(texts), 24), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            vectors[row, zlib.crc32(word.encode()) % 24] += 1
    return vectors


encoder = cs.encoders.Function(embed, dim=24, fingerprint="hashed@1", spec="python:hashed_words:encoder")
