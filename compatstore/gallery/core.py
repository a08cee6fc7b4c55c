"""What all parts of a gallery share: the catalog, and how the verbs of a part are made safe for callers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from compatstore.boundary import checked
from compatstore.storage.catalog import Catalog
from compatstore.storage.failures import answers
from compatstore.storage.registry import Registry
from compatstore.upkeep.tend import tend

Part = TypeVar("Part", bound=type)
Result = TypeVar("Result")
Ids: TypeAlias = Sequence[Any] | str | int  # one id, or a list or array of them
Missing = Literal["raise", "skip"]


def verbs(path: str = "Gallery") -> Callable[[Part], Part]:
    """Make a class of verbs a part of the gallery.

    Arguments are checked by their annotations, what storage raises is an error of ours, and messages call each verb by
    the name that users know, such as `Gallery.search`.

    Args:
        path: Where users find the verbs.
    """

    def make(part: Part) -> Part:
        for name, member in vars(part).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))  # of class methods and properties
            if callable(function) and not isinstance(function, type):
                function.__qualname__ = f"{path}.{name}"
        return checked(answers(part))

    return make


class GalleryCore:
    """A catalog, and what verbs of several parts need of it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def _tended(self, result: Result) -> Result:
        """What a call that writes gives, after the upkeep that it brings about."""
        tend(self._catalog, count=True)
        return result

    def _registry_with(self, version: str | None, snapshot: Any = None) -> Registry:
        """The registry of a table that has the columns of the items and of a version, the active one by default."""
        snapshot = snapshot or self._catalog.store.snapshot()
        registry = self._catalog.recorded(snapshot)
        self._catalog.require(snapshot, version or registry.active)
        return registry
