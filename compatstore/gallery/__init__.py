"""The gallery: what users hold.

`Gallery` is one class. Its verbs stand in the file of their theme: `core.py`, `items.py`, `searching.py`,
`versions.py`, `upgrades.py`, `measuring.py`; those of its namespaces in `versions.py` and `maintenance.py`. Each says
what happens and delegates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import compatstore.upgrade.views  # noqa: F401  (registers what people see of results)
from compatstore.asynchronous import Aio
from compatstore.gallery.core import OpeningVerbs
from compatstore.gallery.items import ItemVerbs
from compatstore.gallery.maintenance import Maintenance
from compatstore.gallery.measuring import MeasuringVerbs
from compatstore.gallery.upgrades import UpgradeVerbs
from compatstore.gallery.versions import Artifacts

FORMER = {
    "plan": "upgrade(..., dry_run=True)",
    "fuse": 'evaluate(..., weight="best")',
    "check_cutover": "cutover(..., dry_run=True).missing",
    "pause": "the command `compatstore pause`",
    "derive": "register(NAME, of=...)",
    "encoder": "version(NAME).encoder",
    "link": "artifacts.link",
    "unlink": "artifacts.unlink",
    "create_index": "maintenance.index(VERSION).create",
    "count": "len(gallery.scan(where=...))",
    "native_ids": "scan([columns.id], native=[VERSION])",
    "side_information": "vectors(..., side=True)",
    "vector_column": "columns.vectors[VERSION]",
    "id_column": "columns.id",
    "id_type": "columns.id_type",
    "source_column": "columns.source",
    "metadata_schema": "columns.metadata",
} | {
    name: f"maintenance.{name}"
    for name in (
        "cache_size",
        "drop_columns",
        "history",
        "index",
        "optimize",
        "unbackfillable",
        "unregister",
        "verify",
    )
}


class Gallery(OpeningVerbs, ItemVerbs, UpgradeVerbs, MeasuringVerbs):
    """A live retrieval gallery on one Lance table.

    Make one with `Gallery.create`, `Gallery.open` or `Gallery.adopt`. Every read sees the table as of now, whoever
    wrote it; every write is one commit that fully happens or does not.

    Attributes:
        aio: The same verbs for async apps: `await gallery.aio.search(...)`.
        artifacts: The linked artifacts: list, link, unlink.
        maintenance: Verify, optimise, index, history.

    Examples:
        >>> gallery = cs.Gallery.open("letters.lance")
        >>> gallery.active, len(gallery)
        ('v1', 6)
    """

    aio = Aio()

    @property
    def artifacts(self) -> Artifacts:
        """The linked artifacts: list, link, unlink.

        Examples:
            >>> [artifact.target for artifact in gallery.artifacts]
            ['v2']
        """
        return Artifacts(self._catalog)

    @property
    def maintenance(self) -> Maintenance:
        """Verify, optimise, index, history.

        Examples:
            >>> gallery.maintenance.verify().clean
            True
        """
        return Maintenance(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Name what took the place of a verb of an earlier state of this version."""
            former = name.removesuffix("_async")
            if name != former and hasattr(type(self), former):
                raise AttributeError(f"Gallery has no {name}: call gallery.aio.{former}", name=name, obj=self)
            if former in FORMER:
                raise AttributeError(f"Gallery has no {name}: use {FORMER[former]}", name=name, obj=self)
            raise AttributeError(f"'Gallery' object has no attribute {name!r}", name=name, obj=self)
