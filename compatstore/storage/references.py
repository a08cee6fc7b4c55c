"""Which files beside the table a registry names."""

from __future__ import annotations

from compatstore.storage.blobs import Blobs
from compatstore.storage.catalog import STORED
from compatstore.storage.history import pages
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import Registry


def referenced(registry: Registry, blobs: Blobs) -> set[str]:
    """SHA-256 of all: artifacts, models and pages of the history.

    Raises:
        CorruptArtifact: A page is gone or was changed, so the pages before it cannot be known.
    """
    artifacts = {digest for artifact in registry.artifacts.values() for digest in (artifact.manifest, artifact.weights)}
    models = {digest for record in registry.versions.values() for digest in stored_models(record).values()}
    return artifacts | models | set(pages(blobs, registry.history_page))


def stored_models(record: VersionRecord) -> dict[str, str]:
    """Digests of a version's models that are kept beside the table, by what they are."""
    specs = {"encoder": record.encoder, "side-information encoder": record.side_encoder}
    digests = {role: spec.removeprefix(STORED) for role, spec in specs.items() if spec.startswith(STORED)}
    return digests if record.head is None else {**digests, "head": record.head}
