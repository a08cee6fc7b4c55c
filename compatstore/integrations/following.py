"""A gallery for a process that nobody tells what others do to it: versions that appear, and cutovers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from compatstore.encoders import Encoder
from compatstore.gallery import Gallery
from compatstore.storage.location import locate
from compatstore.storage.registry import KEY, read
from compatstore.storage.store import Store

logger = logging.getLogger("compatstore.integrations")


class FollowedGallery:
    """The gallery on a table, as of each use.

    A cutover or rollback that happened since the last use is logged once, as a warning.

    Args:
        table: What `Gallery.open` takes; the table may be adopted later.
        encoders: As `Gallery.open`; versions among them may be registered later, by another process.
        options: All others of `Gallery.open`.
    """

    def __init__(self, table: Any, encoders: Mapping[str, Encoder] | None = None, **options: Any) -> None:
        self._table, self._encoders, self._options = table, dict(encoders or {}), options
        self._store = Store.open(locate(table, options.get("storage_options")))
        self._known: frozenset[str] = frozenset()
        self._active: str | None = None
        self._gallery: Gallery | None = None

    def now(self) -> Gallery | None:
        """The gallery, with the encoders of all its versions that were handed over; None while the table is none.

        Raises:
            FingerprintMismatch: An encoder is another model than its version was registered with.
        """
        snapshot = self._store.snapshot()
        if KEY not in snapshot.config():
            return None
        registry = read(snapshot, self._store.location.uri)
        known = self._encoders.keys() & registry.versions.keys()
        if self._gallery is None or known != self._known:
            encoders = {name: self._encoders[name] for name in known}
            self._gallery, self._known = Gallery.open(self._table, encoders=encoders, **self._options), frozenset(known)
        if self._active not in (None, registry.active):
            name = self._store.location.name
            logger.warning("%s: searches use %s from now on, no longer %s", name, registry.active, self._active)
        self._active = registry.active
        return self._gallery
