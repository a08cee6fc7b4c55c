"""Trainers: artifacts from pairs of embeddings, models from images, and models of side-information.

`import compatstore.trainers` loads neither a trainer nor torch: a name is loaded on first use.
"""

from importlib.util import find_spec

from compatstore.errors import MissingExtra
from compatstore.exports import exports_of

_HOMES, _load, __dir__ = exports_of(__name__)
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES and find_spec("torch") is None:
        raise MissingExtra("torch", "train")
    return _load(name)
