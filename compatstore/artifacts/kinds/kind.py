"""What a kind of artifact is. One file per kind in this folder; a new file is found by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from compatstore.arrays import FloatArray
from compatstore.artifacts.manifest import Manifest, Space
from compatstore.artifacts.network import Execution, Network
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs
from compatstore.errors import CorruptArtifact

Acts = Literal["gallery", "query"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Transformed:
    """What an artifact made of n vectors.

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
        name: As it stands in manifests.
        acts_on: Whether it changes the vectors of the gallery or the query.
        exact: Whether what it makes of a model's own vector is a model's own vector too.
    """

    name: ClassVar[str]
    acts_on: ClassVar[Acts]
    exact: ClassVar[bool] = False

    @abstractmethod
    def reads(self, manifest: Manifest) -> Space:
        """Return the space of the vectors that it takes."""

    @abstractmethod
    def writes(self, manifest: Manifest) -> Space:
        """Return the space of the vectors that it makes."""

    @abstractmethod
    def require(self, manifest: Manifest) -> None:
        """Refuse a manifest whose spaces, side-information and networks are not those of this kind.

        Raises:
            CorruptArtifact: They do not fit.
        """

    @abstractmethod
    def apply(
        self,
        manifest: Manifest,
        networks: Mapping[str, Network],
        vectors: FloatArray,
        side: FloatArray | None,
        execution: Execution,
    ) -> Transformed:
        """Transform checked vectors.

        Args:
            manifest: The artifact's.
            networks: Its networks by name.
            vectors: (n, dim) float32, finite, in the space that it reads.
            side: (n, side_dim) float32, finite, or None where the manifest names no `side_source`.
            execution: Where and how.
        """

    @abstractmethod
    def to_onnx(
        self, manifest: Manifest, networks: Mapping[str, Network], graph: OnnxGraph, vectors: str, side: str | None
    ) -> OnnxOutputs:
        """Add what `apply` computes to an ONNX graph.

        Args:
            manifest: The artifact's.
            networks: Its networks by name.
            graph: Gets the nodes.
            vectors: Name of the value that holds (n, dim) float32 in the space that it reads.
            side: Name of the value that holds (n, side_dim) float32, or None where the manifest names no `side_source`.
        """


def require_same(what: str, expected: object, found: object) -> None:
    """Refuse a manifest that contradicts itself.

    Raises:
        CorruptArtifact: `found` is not `expected`.
    """
    if expected != found:
        raise CorruptArtifact(f"read an artifact's {what}", expected=str(expected), found=str(found))


def require_no_side(manifest: Manifest) -> None:
    """Refuse side-information in a kind that has none.

    Raises:
        CorruptArtifact: The manifest names some.
    """
    require_same("side-information", (None, None), (manifest.side_source, manifest.side_target))
