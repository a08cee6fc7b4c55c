"""Artifacts: what makes two embedding versions comparable, its files, and applying it."""

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.kinds import KINDS, Kind, Transformed
from compatstore.artifacts.manifest import Manifest, Side, Space

__all__ = ["KINDS", "Architecture", "Artifact", "Kind", "Manifest", "Side", "Space", "Transformed"]
