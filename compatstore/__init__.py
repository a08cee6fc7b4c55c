"""compatstore: change the embedding model of a live retrieval system without re-embedding the gallery first.

`import compatstore` is light: nothing is loaded before it is named.
"""

from compatstore.exports import exports_of

__version__ = "0.1.0"

_HOMES, __getattr__, __dir__ = exports_of(__name__)
__all__ = sorted([*_HOMES, "__version__"])
