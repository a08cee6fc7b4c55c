"""Former names of classes, and their replacements; verbs are in `compatstore/gallery`."""

from __future__ import annotations

FORMER = {
    "Expected": "search() alone, which shrinks distances wherever a transform has measured it",
    "CacheSettings": "cache() alone, which measures its settings",
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
    """Error for an unknown name, with the replacement of a former class."""
    instead = f": use {FORMER[name]}" if name in FORMER else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{instead}", name=name)
