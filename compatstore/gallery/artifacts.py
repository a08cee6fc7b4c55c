"""The artifacts of a gallery: `gallery.artifacts` lists them, links new ones, and forgets those that nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

from compatstore.artifacts import Artifact
from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.gallery.core import verbs
from compatstore.storage.catalog import Catalog
from compatstore.storage.derived import require_derived
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import edit
from compatstore.upkeep.removal import unlink


@verbs("Gallery.artifacts")
class Artifacts:
    """The linked artifacts, in order of linking; `Gallery.artifacts` gives it.

    Examples:
        >>> [artifact.target for artifact in gallery.artifacts]
        ['v2']
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __iter__(self) -> Iterator[ArtifactRecord]:
        return iter(self._catalog.recorded().artifacts.values())

    def __getitem__(self, place: int) -> ArtifactRecord:
        return list(self)[place]

    def __len__(self) -> int:
        return len(self._catalog.recorded().artifacts)

    def link(self, artifact: Artifact | Any, source: str | None = None, target: str | None = None) -> str:
        """Attach an artifact to two versions, after checking that it is made for them.

        Args:
            artifact: An artifact, or the path of one.
            source: Version upgraded from; by default the one whose fingerprint the artifact carries.
            target: Version upgraded to; by default the one whose fingerprint the artifact carries.

        Returns:
            The artifact's id.

        Raises:
            Incompatible: It was made for the other direction. It belongs to another model.
            InvalidInput: Its dimensions are not the versions'.
            CorruptArtifact: Its files are truncated or edited.

        Examples:
            >>> gallery.artifacts.link(h) == h.id
            True
        """
        if not isinstance(artifact, Artifact | str | PathLike):
            raise InvalidInput("link an artifact", expected="an artifact, or the path of one", found=shown(artifact))
        loaded = artifact if isinstance(artifact, Artifact) else Artifact.load(artifact)
        source = source or self._catalog.version_of(loaded.manifest.source, "source")
        target = target or self._catalog.version_of(loaded.manifest.target, "target")
        loaded.check(self._catalog.version(source), self._catalog.version(target))
        if loaded.behaviour.exact:
            require_derived(self._catalog.recorded().record(source), self._catalog.recorded().record(target))
        record = self._catalog.add_artifact(loaded, source, target)  # puts lost files of a linked one back, too
        if loaded.id in self._catalog.registry().artifacts:
            return loaded.id
        note = f"{loaded.manifest.method or loaded.kind} {source} -> {target}"
        figures = {name: float(x) for name, x in loaded.manifest.figures.items() if isinstance(x, int | float)}
        entry = HistoryEntry("link", target, artifact=loaded.id, note=note, source=source, figures=figures)
        edit(self._catalog.store, lambda registry: registry.with_artifact(record), entry)
        return loaded.id

    def unlink(self, artifact: str) -> str:
        """Forget an artifact that nothing uses; its files go with the next `optimize`.

        Args:
            artifact: Its id, or the first digits of it.

        Returns:
            Its id.

        Raises:
            NotFound: None is linked that has this id.
            UpgradeError: An upgrade under way applies it, vectors were made by it, or searches use it.

        Examples:
            >>> gallery.artifacts.unlink(h.short_id) == h.id
            True
        """
        return unlink(self._catalog, artifact)
