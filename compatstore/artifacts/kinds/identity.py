"""Identity: the target model was trained so that its queries search the source gallery as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compatstore.arrays import FloatArray
from compatstore.artifacts.kinds.kind import Acts, Kind, Transformed, require_no_side, require_same
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs


class Identity(Kind):
    """Leaves a target query unchanged; what backward-compatible training (BCT, RACT, DMU, regression) yields."""

    name: ClassVar[str] = "Identity"
    acts_on: ClassVar[Acts] = "query"

    def reads(self, manifest: Manifest) -> Space:
        """Return the target space."""
        return manifest.target

    def writes(self, manifest: Manifest) -> Space:
        """Return the source space."""
        return manifest.source

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and spaces of different dimensions."""
        require_no_side(manifest)
        require_same("networks", [], sorted(manifest.networks))
        require_same("target dimension", manifest.source.dim, manifest.target.dim)

    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Return the vectors themselves, (n, dim)."""
        return Transformed(vectors=vectors)

    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add nothing: the vectors are returned."""
        return OnnxOutputs(vectors=vectors)
