"""Measure retrieval before, during and after an upgrade, and decide on it."""

from compatstore.exports import exports_of

_HOMES, __getattr__, __dir__ = exports_of(__name__)
__all__ = sorted(_HOMES)
