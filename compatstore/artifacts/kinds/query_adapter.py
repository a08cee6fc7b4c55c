"""Query adapter: maps a target query into the source space, so that the old gallery can be searched at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from compatstore.arrays import FloatArray
from compatstore.artifacts.kinds.kind import Acts, Kind, Transformed, require_no_side, require_same
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs


class QueryAdapterKind(Kind):
    """Network h: target -> source, applied to queries (Drift-Adapter, arXiv 2509.23471)."""

    name: ClassVar[str] = "QueryAdapter"
    acts_on: ClassVar[Acts] = "query"

    def reads(self, manifest: Manifest) -> Space:
        """Return the target space."""
        return manifest.target

    def writes(self, manifest: Manifest) -> Space:
        """Return the source space."""
        return manifest.source

    def require(self, manifest: Manifest) -> None:
        """Refuse networks other than one from the target's dimension to the source's."""
        require_no_side(manifest)
        require_same("networks", ["h"], sorted(manifest.networks))
        network = manifest.networks["h"]
        expected = (manifest.target.dim, None, manifest.source.dim)
        found = (network.source_dim, network.side_dim, network.output_dim)
        require_same("network h (source, side, output)", expected, found)

    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Transform target queries (n, target dim) into (n, source dim)."""
        # A query is not stored, so it need not have the bits of a full batch: one query costs one row.
        exact = replace(execution, batch_size=max(1, min(execution.rows, len(vectors))))
        adapted, sigma2 = networks["h"].run(vectors, None, exact)
        return Transformed(vectors=adapted, uncertainty=sigma2)

    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add h."""
        adapted, sigma2 = networks["h"].to_onnx(graph, vectors, None)
        return OnnxOutputs(vectors=adapted, uncertainty=sigma2)
