"""Bridges: artifacts that let the queries of one version search the stored vectors of another."""

from __future__ import annotations

from compatstore.artifacts.kinds import kind_named
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import Registry


def bridge_to(registry: Registry, version: str) -> ArtifactRecord | None:
    """The last linked artifact that lets queries of a version search vectors of another version in the table."""
    for artifact in reversed(list(registry.artifacts.values())):
        adapts = kind_named(artifact.kind).acts_on == "query" and artifact.target == version
        if adapts and registry.record(artifact.source).columns is not None:
            return artifact
    return None


def unsearchable(registry: Registry, version: str) -> str:
    """SQL condition: the row has no vector that a query of the version finds.

    Raises:
        UnknownVersion: The version has no vectors in the table.
    """
    missing = registry.columns(version).missing
    bridge = bridge_to(registry, version)
    return missing if bridge is None else f"({missing}) AND ({registry.columns(bridge.source).missing})"
