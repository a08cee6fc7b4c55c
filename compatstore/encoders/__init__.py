"""Encoders: the one protocol, one file per kind, and specs that build an encoder again.

Light to import: a name loads when it is first used, and torch only when a network is built.
"""

from compatstore.exports import exports_of

_HOMES, __getattr__, __dir__ = exports_of(__name__)
__all__ = sorted(_HOMES)
