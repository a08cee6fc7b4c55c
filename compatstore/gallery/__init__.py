"""The gallery: what users hold.

`Gallery` is one class. Its verbs stand in the file of their theme: `opening.py`, `items.py`, `searching.py`,
`versions.py` (with artifacts), `upgrades.py`, `measuring.py`, `upkeep.py` (with indexes). Each says what happens and
delegates.
"""

from __future__ import annotations

import compatstore.upgrade.views  # noqa: F401  (registers what people see of results)
from compatstore.gallery.items import ItemVerbs
from compatstore.gallery.measuring import MeasuringVerbs
from compatstore.gallery.opening import OpeningVerbs
from compatstore.gallery.searching import SearchVerbs
from compatstore.gallery.upgrades import UpgradeVerbs
from compatstore.gallery.upkeep import UpkeepVerbs
from compatstore.gallery.versions import VersionVerbs


class Gallery(OpeningVerbs, ItemVerbs, VersionVerbs, UpgradeVerbs, MeasuringVerbs, SearchVerbs, UpkeepVerbs):
    """A live retrieval gallery on one Lance table.

    Make one with `Gallery.create`, `Gallery.open` or `Gallery.adopt`. Every read sees the table as of now, whoever
    wrote it; every write is one commit that fully happens or does not.

    Examples:
        >>> gallery = cs.Gallery.open("letters.lance")
        >>> gallery.active, len(gallery)
        ('v1', 6)
    """
