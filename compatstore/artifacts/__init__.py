"""Artifacts, which make two embedding versions comparable: their files and their application."""

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.kinds import KINDS, Kind, Transformed
from compatstore.artifacts.manifest import Manifest, Side, Space

__all__ = ["KINDS", "Architecture", "Artifact", "Kind", "Manifest", "Side", "Space", "Transformed"]
