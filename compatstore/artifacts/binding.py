"""Whether an artifact belongs to two embedding versions: models, direction, dimensions and side-information."""

from __future__ import annotations

from compatstore.artifacts.manifest import Manifest, Side, Space
from compatstore.errors import DimensionMismatch, Incompatible, WrongDirection
from compatstore.fingerprints import require_fingerprint
from compatstore.versions import EmbeddingVersion


def require_binding(manifest: Manifest, source: EmbeddingVersion, target: EmbeddingVersion) -> None:
    """Refuse to use an artifact between two versions that it was not made for.

    An artifact trained on bare arrays carries no fingerprints; then dimensions and normalisation decide and the
    user's word binds it.

    Args:
        manifest: The artifact's.
        source: Version upgraded from.
        target: Version upgraded to.

    Raises:
        WrongDirection: It was made for the upgrade from `target` to `source`.
        FingerprintMismatch: It belongs to another model or another side-information model.
        DimensionMismatch: Vectors or side-information have another length.
        Incompatible: It needs side-information that the source lacks, or misses the target's unit length.
    """
    asked = f"use artifact {manifest.id[:12]} from {source.name} to {target.name}"
    _require_direction(asked, manifest, source, target)
    for role, space, version in (("source", manifest.source, source), ("target", manifest.target, target)):
        _require_space(f"{asked}, {version.name} as its {role}", space, version)
    _require_side_source(asked, manifest.side_source, source)
    if manifest.side_target is not None and target.side_dim is not None:
        _require_side(f"{asked}, the side-information of {target.name}", manifest.side_target, target)


def _require_direction(asked: str, manifest: Manifest, source: EmbeddingVersion, target: EmbeddingVersion) -> None:
    made_for = _identity(manifest.source, source, target), _identity(manifest.target, source, target)
    if made_for == (target.fingerprint, source.fingerprint) != (source.fingerprint, target.fingerprint):
        raise WrongDirection(
            asked,
            expected=f"an artifact from {source.name} to {target.name}",
            found=f"one from {target.name} to {source.name}",
            fix="Train one in the other direction.",
        )


def _identity(space: Space, source: EmbeddingVersion, target: EmbeddingVersion) -> str | None:
    """Say whose space it is: by fingerprint, or by dimension where there is none and the two versions differ in it."""
    if space.fingerprint is not None:
        return space.fingerprint
    if source.dim == target.dim:
        return None
    return {source.dim: source.fingerprint, target.dim: target.fingerprint}.get(space.dim)


def _require_space(asked: str, space: Space, version: EmbeddingVersion) -> None:
    if space.fingerprint is not None:
        require_fingerprint(asked, space.fingerprint, version.fingerprint, "Use the artifact of this very model.")
    if space.dim != version.dim:
        raise DimensionMismatch(asked, expected=f"{space.dim} values", found=f"{version.dim}")
    if version.normalised and not space.normalised:
        raise Incompatible(asked, expected="vectors of any length", found=f"{version.name} holds unit vectors only")


def _require_side_source(asked: str, side: Side | None, source: EmbeddingVersion) -> None:
    if side is None:
        return
    if source.side_dim is None:
        raise Incompatible(
            asked,
            expected=f"side-information of {side.dim} values in {source.name}",
            found="none",
            fix="Train one without side-information.",
        )
    _require_side(f"{asked}, the side-information of {source.name}", side, source)


def _require_side(asked: str, side: Side, version: EmbeddingVersion) -> None:
    if side.dtype != version.side_dtype:
        fix = (
            f"Train it on pairs that name their versions: Pairs(..., source_version=gallery.version({version.name!r}))."
        )
        raise Incompatible(asked, expected=f"{side.dtype}, as it was trained on", found=version.side_dtype, fix=fix)
    if side.fingerprint is not None and version.side_fingerprint is not None:
        require_fingerprint(asked, side.fingerprint, version.side_fingerprint)
    if side.dim != version.side_dim:
        raise DimensionMismatch(asked, expected=f"{side.dim} values", found=f"{version.side_dim}")
