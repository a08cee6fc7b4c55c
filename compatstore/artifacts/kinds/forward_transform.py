"""Forward transform: maps the gallery's source vectors into the target space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.kinds.kind import Acts, Kind, Transformed, require_same
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs


class ForwardTransform(Kind):
    """Network h (source, side) -> target, and optionally g (source, side) -> target's side-information.

    Forward-compatible training (FCT, section 3): h refreshes the gallery, g keeps it ready for the hop after.
    """

    name: ClassVar[str] = "ForwardTransform"
    acts_on: ClassVar[Acts] = "gallery"

    def reads(self, manifest: Manifest) -> Space:
        """Return the source space."""
        return manifest.source

    def writes(self, manifest: Manifest) -> Space:
        """Return the target space."""
        return manifest.target

    def require(self, manifest: Manifest) -> None:
        """Refuse networks other than h, and g where side-information is written, and dimensions that do not fit."""
        outputs = {"h": manifest.target.dim}
        if manifest.side_target is not None:
            outputs["g"] = manifest.side_target.dim
        require_same("networks", sorted(outputs), sorted(manifest.networks))
        side_dim = None if manifest.side_source is None else manifest.side_source.dim
        for name, output_dim in outputs.items():
            expected = (manifest.source.dim, side_dim, output_dim)
            require_same(f"network {name} (source, side, output)", expected, _dims(manifest.networks[name]))

    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Transform source vectors (n, source dim) into (n, target dim)."""
        moved, sigma2 = networks["h"].run(vectors, side, execution)
        next_side = networks["g"].run(vectors, side, execution)[0] if "g" in networks else None
        return Transformed(vectors=moved, uncertainty=sigma2, side=next_side)

    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add h, and g where there is one."""
        moved, sigma2 = networks["h"].to_onnx(graph, vectors, side)
        next_side = networks["g"].to_onnx(graph, vectors, side)[0] if "g" in networks else None
        return OnnxOutputs(vectors=moved, uncertainty=sigma2, side=next_side)


def _dims(network: Architecture) -> tuple[int, int | None, int]:
    return network.source_dim, network.side_dim, network.output_dim
