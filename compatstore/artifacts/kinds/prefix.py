"""Prefix: the first values of a target vector are a source vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.kinds.kind import Acts, Kind, Transformed, require_no_side, require_same
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs
from compatstore.errors import CorruptArtifact


class Prefix(Kind):
    """Truncates a target query to the source's dimension and scales it to unit length.

    Basis transformations (BT^2) compare by truncation. The slice has no constant norm, so a gallery that holds both
    kinds of vectors can only be ranked after it is normalised.
    """

    name: ClassVar[str] = "Prefix"
    acts_on: ClassVar[Acts] = "query"

    def reads(self, manifest: Manifest) -> Space:
        """Return the target space."""
        return manifest.target

    def writes(self, manifest: Manifest) -> Space:
        """Return the source space."""
        return manifest.source

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and a source longer than the target."""
        require_no_side(manifest)
        require_same("networks", [], sorted(manifest.networks))
        if manifest.source.dim > manifest.target.dim:
            raise CorruptArtifact(
                "read a Prefix",
                expected=f"a source of at most {manifest.target.dim} values",
                found=str(manifest.source.dim),
            )

    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Cut target queries (n, target dim) down to unit vectors (n, source dim)."""
        prefix = vectors[:, : manifest.source.dim]
        norms = np.linalg.norm(prefix, axis=1, keepdims=True)
        return Transformed(vectors=prefix / np.maximum(norms, np.finfo(np.float32).tiny))

    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add the cut and the scaling."""
        return OnnxOutputs(vectors=graph.unit_length(graph.first(vectors, manifest.source.dim)))
