"""The kinds of artifacts, with the spaces that each reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs
from compatstore.derivation import UNIT_TOLERANCE, Derivation, not_unit
from compatstore.errors import CorruptArtifact

if TYPE_CHECKING:
    from compatstore.artifacts.artifact import Artifact

Acts = Literal["gallery", "query"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Transformed:
    """Result of an artifact for n vectors.

    Args:
        vectors: (n, dim) float32, in the space that the kind writes.
        uncertainty: sigma^2 of each, (n,) float32, or None for an artifact that has no such head.
        side: Side-information for the next hop, (n, side_dim) float32, or None for an artifact that writes none.

    Examples:
        >>> made = cs.Transformed(vectors=np.zeros((2, 3), np.float32), uncertainty=np.array([0.1, 0.4], np.float32))
        >>> made.vectors.shape, made.side is None
        ((2, 3), True)
    """

    vectors: FloatArray
    uncertainty: FloatArray | None = None
    side: FloatArray | None = None


class Kind(ABC):
    """One way in which an artifact makes two embedding versions comparable.

    Attributes:
        name: Its name in manifests.
        acts_on: The vectors that it changes: those of the gallery or of the query.
        exact: True if it turns native vectors into native vectors.
        has_side: True if it may read and write side-information.
    """

    name: ClassVar[str]
    acts_on: ClassVar[Acts]
    exact: ClassVar[bool] = False
    has_side: ClassVar[bool] = False

    def reads(self, manifest: Manifest) -> Space:
        """Return the space of the vectors that it takes."""
        return manifest.source if self.acts_on == "gallery" else manifest.target

    def writes(self, manifest: Manifest) -> Space:
        """Return the space of the vectors that it makes."""
        return manifest.target if self.acts_on == "gallery" else manifest.source

    def networks(self, manifest: Manifest) -> dict[str, tuple[int, int | None, int]]:
        """Name -> dimensions (source, side, output) of the networks that it consists of."""
        return {}

    def require(self, manifest: Manifest) -> None:
        """Refuse a manifest whose spaces, side-information and networks are not those of this kind.

        Raises:
            CorruptArtifact: They do not fit.
        """
        if not self.has_side:
            require_same("side-information", (None, None), (manifest.side_source, manifest.side_target))
        networks = self.networks(manifest)
        require_same("networks", sorted(networks), sorted(manifest.networks))
        for name, expected in networks.items():
            network = manifest.networks[name]
            found = (network.source_dim, network.side_dim, network.output_dim)
            require_same(f"network {name} (source, side, output)", expected, found)

    @abstractmethod
    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Transform checked vectors.

        Args:
            of: The artifact.
            vectors: (n, dim) float32, finite, in the space that it reads.
            side: (n, side_dim) float32, finite, or None if the manifest names no `side_source`.
            execution: Device, batch size and precision.
        """

    @abstractmethod
    def to_onnx(self, of: Artifact, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add the computation of `apply` to an ONNX graph.

        Args:
            of: The artifact.
            graph: Gets the nodes.
            vectors: Name of the value that holds (n, dim) float32 in the space that it reads.
            side: Name of the value that holds (n, side_dim) float32, or None if the manifest names no `side_source`.
        """


class ForwardTransform(Kind):
    """Network h (source, side) -> target, and optionally g (source, side) -> target's side-information.

    Forward-compatible training (FCT, section 3): h refreshes the gallery, g keeps it ready for the hop after.
    """

    name: ClassVar[str] = "ForwardTransform"
    acts_on: ClassVar[Acts] = "gallery"
    has_side: ClassVar[bool] = True

    def networks(self, manifest: Manifest) -> dict[str, tuple[int, int | None, int]]:
        """H, and g if side-information is written."""
        side = None if manifest.side_source is None else manifest.side_source.dim
        outputs = {"h": manifest.target, "g": manifest.side_target}
        return {name: (manifest.source.dim, side, of.dim) for name, of in outputs.items() if of is not None}

    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Transform source vectors (n, source dim) into (n, target dim)."""
        moved, sigma2 = of.networks["h"].run(vectors, side, execution)
        next_side = of.networks["g"].run(vectors, side, execution)[0] if "g" in of.networks else None
        return Transformed(vectors=moved, uncertainty=sigma2, side=next_side)

    def to_onnx(self, of: Artifact, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add h, and g if there is one."""
        moved, sigma2 = of.networks["h"].to_onnx(graph, vectors, side)
        next_side = of.networks["g"].to_onnx(graph, vectors, side)[0] if "g" in of.networks else None
        return OnnxOutputs(vectors=moved, uncertainty=sigma2, side=next_side)


class DerivationKind(Kind):
    """Cuts source vectors off, scales them to unit length, or takes them as they are.

    Under another metric a vector is derived if it has unit length, for there l2, cosine and dot rank alike.
    """

    name: ClassVar[str] = "Derivation"
    acts_on: ClassVar[Acts] = "gallery"
    exact: ClassVar[bool] = True

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and a target longer than the source."""
        super().require(manifest)
        require_at_most(self, "target", manifest.target.dim, manifest.source.dim)

    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Derive target vectors (n, target dim); NaN for a row that cannot be derived."""
        spaces = of.manifest.source, of.manifest.target
        derived = derivation_between(*spaces).apply(vectors)
        if needs_unit(*spaces):
            # Not in place: if nothing is cut off or scaled, these are the caller's own vectors.
            derived = np.where(not_unit(derived)[:, None], np.float32(np.nan), derived)
        return Transformed(vectors=derived)

    def to_onnx(self, of: Artifact, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add the cut, the scaling in float64, and NaN for rows that cannot be derived."""
        spaces = of.manifest.source, of.manifest.target
        derivation = derivation_between(*spaces)
        derived = graph.first(vectors, derivation.dim) if derivation.dim < of.manifest.source.dim else vectors
        if derivation.normalise:
            derived = graph.exact_unit_length(derived)
        if needs_unit(*spaces):
            derived = graph.only_unit(derived, UNIT_TOLERANCE)
        return OnnxOutputs(vectors=derived)


class QueryAdapterKind(ForwardTransform):
    """Network h: target -> source, applied to queries (Drift-Adapter, arXiv 2509.23471)."""

    name: ClassVar[str] = "QueryAdapter"
    acts_on: ClassVar[Acts] = "query"
    has_side: ClassVar[bool] = False

    def networks(self, manifest: Manifest) -> dict[str, tuple[int, int | None, int]]:
        """One network, from the target's dimension to the source's."""
        return {"h": (manifest.target.dim, None, manifest.source.dim)}

    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Transform target queries (n, target dim) into (n, source dim)."""
        # A query is not stored, so it need not have the bits of a full batch: one query costs one row.
        rows = max(1, min(execution.rows, len(vectors)))
        return super().apply(of, vectors, None, replace(execution, batch_size=rows))


class Prefix(Kind):
    """Truncates a target query to the source's dimension and scales it to unit length.

    Basis transformations (BT^2) compare by truncation. The slice has no constant norm, so a gallery that holds both
    kinds of vectors can only be ranked after it is normalised.
    """

    name: ClassVar[str] = "Prefix"
    acts_on: ClassVar[Acts] = "query"

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and a source longer than the target."""
        super().require(manifest)
        require_at_most(self, "source", manifest.source.dim, manifest.target.dim)

    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Cut target queries (n, target dim) down to unit vectors (n, source dim)."""
        prefix = vectors[:, : of.manifest.source.dim]
        norms = np.linalg.norm(prefix, axis=1, keepdims=True)
        return Transformed(vectors=prefix / np.maximum(norms, np.finfo(np.float32).tiny))

    def to_onnx(self, of: Artifact, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add the cut and the scaling."""
        return OnnxOutputs(vectors=graph.unit(graph.first(vectors, of.manifest.source.dim))[0])


class Identity(Kind):
    """Leaves a target query unchanged; the kind of backward-compatible training (BCT, RACT, DMU, regression)."""

    name: ClassVar[str] = "Identity"
    acts_on: ClassVar[Acts] = "query"

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and spaces of different dimensions."""
        super().require(manifest)
        require_same("target dimension", manifest.source.dim, manifest.target.dim)

    def apply(self, of: Artifact, vectors: FloatArray, side: FloatArray | None, execution: Execution) -> Transformed:
        """Return the vectors themselves, (n, dim)."""
        return Transformed(vectors=vectors)

    def to_onnx(self, of: Artifact, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add nothing: the vectors are returned."""
        return OnnxOutputs(vectors=vectors)


_KINDS: tuple[type[Kind], ...] = (ForwardTransform, DerivationKind, QueryAdapterKind, Prefix, Identity)
KINDS = MappingProxyType({kind.name: kind() for kind in _KINDS})


def kind_named(name: str) -> Kind:
    """Return the kind of that name.

    Raises:
        CorruptArtifact: There is none.
    """
    if name not in KINDS:
        raise CorruptArtifact("read an artifact's kind", expected=f"one of {sorted(KINDS)}", found=repr(name))
    return KINDS[name]


def require_same(what: str, expected: object, found: object) -> None:
    """Refuse a manifest that contradicts itself.

    Raises:
        CorruptArtifact: `found` is not `expected`.
    """
    if expected != found:
        raise CorruptArtifact(f"read an artifact's {what}", expected=str(expected), found=str(found))


def require_at_most(kind: Kind, role: str, dim: int, most: int) -> None:
    """Refuse a space that is longer than the one that its vectors are cut off.

    Raises:
        CorruptArtifact: It is.
    """
    if dim > most:
        raise CorruptArtifact(f"read a {kind.name}", expected=f"a {role} of at most {most} values", found=f"{dim}")


def derivation_between(source: Space, target: Space) -> Derivation:
    """Derivation from stored vectors of one space to those of another."""
    shorter = target.dim < source.dim
    return Derivation(dim=target.dim, normalise=target.normalised and (shorter or not source.normalised))


def needs_unit(source: Space, target: Space) -> bool:
    """True if only vectors of unit length can be derived, because the metrics differ."""
    return source.metric != target.metric and not derivation_between(source, target).normalise


def described(source: Space, target: Space) -> str:
    """Description of a derivation, for readers."""
    derivation = derivation_between(source, target)
    words = [f"the first {target.dim} of {source.dim} values"] if target.dim < source.dim else []
    words += ["scaled to unit length"] if derivation.normalise else []
    words += [f"compared by {target.metric} in place of {source.metric}"] if source.metric != target.metric else []
    return ", ".join(words) or "the same values"
