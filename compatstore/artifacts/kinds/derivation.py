"""Derivation: target vectors are computed of the source's own values; nothing is learned, and natives stay native."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.kinds.kind import Acts, Kind, Transformed, require_no_side, require_same
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs
from compatstore.derivation import UNIT_TOLERANCE, Derivation, not_unit
from compatstore.errors import CorruptArtifact


class DerivationKind(Kind):
    """Cuts source vectors off, scales them to unit length, or takes them as they are.

    Under another metric a vector is derived where it has unit length, for there l2, cosine and dot rank alike.
    """

    name: ClassVar[str] = "Derivation"
    acts_on: ClassVar[Acts] = "gallery"
    exact: ClassVar[bool] = True

    def reads(self, manifest: Manifest) -> Space:
        """Return the source space."""
        return manifest.source

    def writes(self, manifest: Manifest) -> Space:
        """Return the target space."""
        return manifest.target

    def require(self, manifest: Manifest) -> None:
        """Refuse networks, side-information, and a target longer than the source."""
        require_no_side(manifest)
        require_same("networks", [], sorted(manifest.networks))
        if manifest.target.dim > manifest.source.dim:
            found = f"{manifest.target.dim}"
            raise CorruptArtifact(
                "read a Derivation", expected=f"a target of at most {manifest.source.dim} values", found=found
            )

    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Derive target vectors (n, target dim); NaN for a row that cannot be derived."""
        derived = derivation_between(manifest.source, manifest.target).apply(vectors)
        if needs_unit(manifest.source, manifest.target):
            # Not in place: where nothing is cut off or scaled, these are the caller's own vectors.
            derived = np.where(not_unit(derived)[:, None], np.float32(np.nan), derived)
        return Transformed(vectors=derived)

    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add the cut, the scaling in float64, and NaN for rows that cannot be derived."""
        derivation = derivation_between(manifest.source, manifest.target)
        derived = graph.first(vectors, derivation.dim) if derivation.dim < manifest.source.dim else vectors
        if derivation.normalise:
            derived = graph.exact_unit_length(derived)
        if needs_unit(manifest.source, manifest.target):
            derived = graph.only_unit(derived, UNIT_TOLERANCE)
        return OnnxOutputs(vectors=derived)


def derivation_between(source: Space, target: Space) -> Derivation:
    """How vectors of one space become those of another, of vectors as they are stored."""
    shorter = target.dim < source.dim
    return Derivation(dim=target.dim, normalise=target.normalised and (shorter or not source.normalised))


def needs_unit(source: Space, target: Space) -> bool:
    """Whether only vectors that have unit length by themselves can be derived: they are compared in another way."""
    return source.metric != target.metric and not derivation_between(source, target).normalise


def described(source: Space, target: Space) -> str:
    """What is done to a vector, for readers."""
    derivation = derivation_between(source, target)
    words = [f"the first {target.dim} of {source.dim} values"] if target.dim < source.dim else []
    words += ["scaled to unit length"] if derivation.normalise else []
    words += [f"compared by {target.metric} in place of {source.metric}"] if source.metric != target.metric else []
    return ", ".join(words) or "the same values"
