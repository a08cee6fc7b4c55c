"""Classes of an earlier state of this version, and what they are now; verbs are in `compatstore/gallery`."""

from __future__ import annotations

FORMER = {
    "Expected": "search() alone, which shrinks distances wherever a transform has measured it",
    "CacheSettings": "cache() alone, which measures what it needs",
    "Refit": "Learn(improve=True)",
    "DMUModel": "CompatibleModel",
    "DimensionMismatch": "InvalidInput, with its `dim`",
    "NonFiniteVectors": "InvalidInput",
    "DuplicateIds": "InvalidInput, with its `duplicates`",
    "InvalidName": "InvalidInput",
    "GalleryNotFound": 'NotFound, of kind "gallery"',
    "UnknownVersion": 'NotFound, of kind "version"',
    "UnknownArtifact": 'NotFound, of kind "artifact"',
    "UnknownId": 'NotFound, of kind "item"',
    "FingerprintMismatch": "Incompatible",
    "WrongDirection": "Incompatible",
    "CommitConflict": "StorageError",
    "RowsMissing": "UpgradeError",
    "AllowanceSpent": "EncoderFailed, with its `unaffordable`",
    "EngineFailed": "UpgradeError",
}


def no_attribute(module: str, name: str) -> AttributeError:
    """Name what a class of an earlier state of this version was merged into."""
    instead = f": use {FORMER[name]}" if name in FORMER else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{instead}", name=name)
