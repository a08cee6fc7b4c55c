"""The manifest of an artifact: its kind, its spaces, its origin, and its own digest.

`require_binding` refuses embedding versions that an artifact was not made for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from compatstore.artifacts.architecture import Architecture
from compatstore.digests import require_fingerprint
from compatstore.documents import WIDEST, Malformed, parse, read_record
from compatstore.errors import CorruptArtifact, Incompatible, InvalidInput
from compatstore.versions import EmbeddingVersion, Metric, SideDType

FORMAT = 1
READ = "read manifest.json"


@dataclass(frozen=True, kw_only=True)
class Space:
    """The space of one embedding version, as far as an artifact records it.

    Args:
        dim: Length of a vector.
        name: Name of the version, or None if the artifact was trained on bare arrays.
        fingerprint: Fingerprint of the version, or None if it was trained on bare arrays.
        metric: Distance of the space, or None if unknown.
        normalised: True if vectors have unit length.
    """

    dim: int
    name: str | None = None
    fingerprint: str | None = None
    metric: Metric | None = None
    normalised: bool = False

    def __post_init__(self) -> None:
        _require_dim("a space", self.dim)

    @classmethod
    def of(cls, version: EmbeddingVersion) -> Space:
        """Describe the space of an embedding version."""
        return cls(**{field.name: getattr(version, field.name) for field in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class Side:
    """Side-information that an artifact reads or writes.

    Args:
        dim: Length of a side vector.
        fingerprint: Fingerprint of the side-information model, or None if unknown.
        dtype: Its storage type: "float32", or "bits", which the artifact reads as -1 and 1.
    """

    dim: int
    fingerprint: str | None = None
    dtype: SideDType = "float32"

    def __post_init__(self) -> None:
        _require_dim("side-information", self.dim)

    @classmethod
    def of(cls, version: EmbeddingVersion) -> Side | None:
        """Describe the side-information of an embedding version, or None if it has none."""
        if version.side_dim is None:
            return None
        return cls(dim=version.side_dim, fingerprint=version.side_fingerprint, dtype=version.side_dtype)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Record of an artifact beside its weights.

    Source and target are those of the upgrade, for either direction of the artifact itself.

    Args:
        kind: Name of its kind ("ForwardTransform").
        method: Its training method ("FCT"), for readers.
        source: Space upgraded from.
        target: Space upgraded to.
        side_source: Side-information that it reads, or None.
        side_target: Side-information that it writes for the next hop, or None.
        networks: Its networks by name.
        settings: Settings of the trainer, JSON-able.
        figures: Figures on rows held out from training, JSON-able.
        libraries: Library -> version that made it.
        weights_sha256: Digest of the weights file.
        created: UTC time, ISO 8601.
        seen: Number of source vectors that it was trained on; their digests lie beside the weights. None if unknown.
        format: Version of this layout.
    """

    kind: str
    method: str
    source: Space
    target: Space
    weights_sha256: str
    created: str
    side_source: Side | None = None
    side_target: Side | None = None
    networks: Mapping[str, Architecture] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    seen: int | None = None
    format: int = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON-able values, without its id."""
        return asdict(self) | {"networks": {name: network.to_dict() for name, network in self.networks.items()}}

    @property
    def id(self) -> str:
        """SHA-256 (64 hex digits) of the canonical JSON of the manifest."""
        return _digest(self.to_dict())

    def to_bytes(self) -> bytes:
        """Return the readable JSON that is stored, its own id included."""
        text = json.dumps({"id": self.id} | self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
        return text.encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Read a stored manifest.

        Raises:
            CorruptArtifact: It is no JSON, of an unknown format, was edited, or has other fields.
        """
        try:
            values = parse(content)
            if not isinstance(values, dict):
                raise Malformed(f"a JSON {type(values).__name__}, not an object")
            if values.get("format") != FORMAT:
                found = f"format {values.get('format')!r:.60}"
                fix = "Read it with the release of compatstore that wrote it, or a newer one."
                raise CorruptArtifact(READ, expected=f"format {FORMAT}", found=found, fix=fix)
            stated = values.pop("id", None)
            if not isinstance(stated, str) or _digest(values) != stated:
                found = "another: it was edited after it was written"
                raise CorruptArtifact(READ, expected="its own SHA-256", found=found)
            manifest = read_record(cls, values, "manifest.json")
            if manifest.id != stated:  # fields missing there would be filled in here
                raise Malformed("fields are left out")
            return manifest
        except (Malformed, InvalidInput) as error:
            expected, fix = "a manifest as it was written", "Copy the artifact again."
            raise CorruptArtifact(READ, expected=expected, found=str(error), fix=fix) from error


def _require_dim(what: str, dim: int) -> None:
    if not 1 <= dim <= WIDEST:
        raise InvalidInput(f"describe {what}", expected=f"1 to {WIDEST} values", found=f"{dim}")


def _digest(values: Any) -> str:
    """SHA-256 of the canonical JSON of values."""
    try:
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("write a manifest", expected="JSON-able, finite values", found=str(error)) from error


def require_binding(manifest: Manifest, source: EmbeddingVersion, target: EmbeddingVersion) -> None:
    """Refuse to use an artifact between two versions that it was not made for.

    An artifact trained on bare arrays carries no fingerprints; then only dimensions and normalisation are checked.

    Args:
        manifest: The artifact's.
        source: Version upgraded from.
        target: Version upgraded to.

    Raises:
        Incompatible: It was made for the upgrade from `target` to `source`. It belongs to another model or another
            side-information model. It needs side-information that the source lacks, or misses the target's unit length.
        InvalidInput: Vectors or side-information have another length.
    """
    operation = f"use artifact {manifest.id[:12]} from {source.name} to {target.name}"
    _require_direction(operation, manifest, source, target)
    for role, space, version in (("source", manifest.source, source), ("target", manifest.target, target)):
        _require_space(f"{operation}, {version.name} as its {role}", space, version)
    side = manifest.side_source
    if side is not None:
        if source.side_dim is None:
            expected = f"side-information of {side.dim} values in {source.name}"
            raise Incompatible(operation, expected=expected, found="none", fix="Train one without side-information.")
        _require_side(f"{operation}, the side-information of {source.name}", side, source)
    if manifest.side_target is not None and target.side_dim is not None:
        _require_side(f"{operation}, the side-information of {target.name}", manifest.side_target, target)


def _require_direction(operation: str, manifest: Manifest, source: EmbeddingVersion, target: EmbeddingVersion) -> None:
    made_for = _identity(manifest.source, source, target), _identity(manifest.target, source, target)
    if made_for == (target.fingerprint, source.fingerprint) != (source.fingerprint, target.fingerprint):
        expected = f"an artifact from {source.name} to {target.name}"
        found, fix = f"one from {target.name} to {source.name}", "Train one in the other direction."
        raise Incompatible(operation, expected=expected, found=found, fix=fix)


def _identity(space: Space, source: EmbeddingVersion, target: EmbeddingVersion) -> str | None:
    """Identity of a space: its fingerprint, or its dimension if there is none and the two versions differ in it."""
    if space.fingerprint is not None:
        return space.fingerprint
    if source.dim == target.dim:
        return None
    return {source.dim: source.fingerprint, target.dim: target.fingerprint}.get(space.dim)


def _require_space(operation: str, space: Space, version: EmbeddingVersion) -> None:
    if space.fingerprint is not None:
        require_fingerprint(operation, space.fingerprint, version.fingerprint, "Use the artifact of this very model.")
    if space.dim != version.dim:
        raise InvalidInput(operation, expected=f"{space.dim} values", found=f"{version.dim}")
    if version.normalised and not space.normalised:
        raise Incompatible(operation, expected="vectors of any length", found=f"{version.name} holds unit vectors only")


def _require_side(operation: str, side: Side, version: EmbeddingVersion) -> None:
    if side.dtype != version.side_dtype:
        pairs = f"Pairs(..., source_version=gallery.version({version.name!r}))"
        fix = f"Train it on pairs that name their versions: {pairs}."
        raise Incompatible(operation, expected=f"{side.dtype}, as it was trained on", found=version.side_dtype, fix=fix)
    if side.fingerprint is not None and version.side_fingerprint is not None:
        require_fingerprint(operation, side.fingerprint, version.side_fingerprint)
    if side.dim != version.side_dim:
        raise InvalidInput(operation, expected=f"{side.dim} values", found=f"{version.side_dim}")
