"""The manifest of an artifact: what it is, between which spaces, how it was made, and its own digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from compatstore.artifacts.architecture import Architecture
from compatstore.errors import CompatStoreError, CorruptArtifact, InvalidInput
from compatstore.versions import EmbeddingVersion, Metric, SideDType

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Space:
    """The space of one embedding version, as far as an artifact knows it.

    Args:
        dim: Length of a vector.
        name: Name of the version, or None where the artifact was trained on bare arrays.
        fingerprint: Fingerprint of the version, or None where it was trained on bare arrays.
        metric: Distance of the space, or None where nobody said.
        normalised: Whether vectors have unit length.
    """

    dim: int
    name: str | None = None
    fingerprint: str | None = None
    metric: Metric | None = None
    normalised: bool = False

    @classmethod
    def of(cls, version: EmbeddingVersion) -> Space:
        """Describe the space of an embedding version."""
        return cls(
            dim=version.dim,
            name=version.name,
            fingerprint=version.fingerprint,
            metric=version.metric,
            normalised=version.normalised,
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """Side-information that an artifact reads or writes.

    Args:
        dim: Length of a side vector.
        fingerprint: Fingerprint of the side-information model, or None where nobody said.
        dtype: How it is stored: "float32", or "bits"; of bits the artifact reads -1 and 1.
    """

    dim: int
    fingerprint: str | None = None
    dtype: SideDType = "float32"

    @classmethod
    def of(cls, version: EmbeddingVersion) -> Side | None:
        """Describe the side-information of an embedding version, or None where it has none."""
        if version.side_dim is None:
            return None
        return cls(dim=version.side_dim, fingerprint=version.side_fingerprint, dtype=version.side_dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; floats go without saying, as in manifests from before there were bits."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("dtype", "float32")}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is known about an artifact but its weights.

    Source and target are those of the upgrade, whichever way the artifact itself maps.

    Args:
        kind: Name of its kind ("ForwardTransform").
        method: How it was made ("FCT"), for readers.
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
        seen: How many source vectors it has learned from; their digests lie beside the weights. None where nobody said,
            as in artifacts of earlier releases.
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
        values = asdict(self)
        values["networks"] = {name: network.to_dict() for name, network in self.networks.items()}
        values["side_source"] = self.side_source and self.side_source.to_dict()
        values["side_target"] = self.side_target and self.side_target.to_dict()
        if self.seen is None:  # so that the ids of earlier artifacts stay what they are
            del values["seen"]
        return values

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
        values = _parse(content)
        if values.get("format") != FORMAT:
            raise CorruptArtifact(
                "read manifest.json",
                expected=f"format {FORMAT}",
                found=f"format {values.get('format')!r}",
                fix="Read it with the release of compatstore that wrote it, or a newer one.",
            )
        stated = values.pop("id", None)
        found = _digest(values)
        if found != stated:
            raise CorruptArtifact(
                "read manifest.json", expected=f"SHA-256 {stated}", found=f"{found}: it was edited after it was written"
            )
        return _build(values)


def _canonical(values: Any) -> bytes:
    try:
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput("write a manifest", expected="JSON-able, finite values", found=str(error)) from error
    return text.encode()


def _digest(values: Any) -> str:
    return hashlib.sha256(_canonical(values)).hexdigest()


def _parse(content: bytes) -> dict[str, Any]:
    try:
        values = json.loads(content)
    except ValueError as error:
        raise CorruptArtifact("read manifest.json", expected="JSON", found=str(error)) from error
    if not isinstance(values, dict):
        raise CorruptArtifact("read manifest.json", expected="a JSON object", found=type(values).__name__)
    return values


def _build(values: dict[str, Any]) -> Manifest:
    try:
        for name in ("source", "target"):
            values[name] = Space(**values[name])
        for name in ("side_source", "side_target"):
            values[name] = values[name] and Side(**values[name])
        values["networks"] = {name: Architecture.from_dict(v) for name, v in values["networks"].items()}
        return Manifest(**values)
    except CompatStoreError:
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise CorruptArtifact("read manifest.json", found=f"fields that do not fit: {error}") from error
