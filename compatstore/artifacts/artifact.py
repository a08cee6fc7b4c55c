"""An artifact: the result of a trainer, which makes two embedding versions comparable."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from compatstore.arrays import Digests, FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.directory import WEIGHTS, read_directory, write_directory
from compatstore.artifacts.kinds import Transformed, kind_named
from compatstore.artifacts.manifest import Manifest, Side, Space, require_binding
from compatstore.artifacts.matrix import as_matrix, as_side, to_numpy
from compatstore.artifacts.network import Execution, Network, Precision
from compatstore.artifacts.onnx_graph import OnnxGraph, OnnxOutputs
from compatstore.boundary import array_of, checked, foreign
from compatstore.documents import Malformed, parse
from compatstore.errors import AlreadyExists, CompatStoreError, CorruptArtifact, InvalidInput, first_offenders
from compatstore.versions import EmbeddingVersion

SEEN = "seen.source"  # beside the tensors of the networks; no network may be called "seen"


@checked
class Artifact:
    """A manifest and its weights; immutable.

    Attributes:
        manifest: Its manifest.
        id: SHA-256 of the manifest, which names the digest of the weights.
        behaviour: Its kind: the vectors that it acts on, and the spaces that it reads and writes.
        tensors: Weights by name ("h.mixer.0.weight"), float32.
        networks: Networks by name ("h"), with their weights.
        seen: (n,) uint64, ascending: digests (`digests.digest_half`) of the source vectors that it has learned from;
            None if unknown.

    Args:
        manifest: Its manifest.
        weights: The weights as safetensors bytes, with the manifest's digest.

    Raises:
        CorruptArtifact: The weights are not those of the manifest, or do not fit its networks.

    Examples:
        >>> from compatstore.trainers import Pairs, Procrustes
        >>> source = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
        >>> h = Procrustes().fit(Pairs(source, source[:, ::-1]))
        >>> h.kind, len(h.short_id)
        ('ForwardTransform', 12)
        >>> np.allclose(h.apply(source).vectors, source[:, ::-1], atol=1e-4)
        True
        >>> h.save("h.compat")
        >>> cs.Artifact.load("h.compat").id == h.id
        True
    """

    def __init__(self, manifest: Manifest, weights: bytes) -> None:
        self.manifest = manifest
        self.id = manifest.id
        self._weights = weights
        self.behaviour = kind_named(manifest.kind)
        self.behaviour.require(manifest)
        stored = _stored(manifest, weights)
        self.seen: Digests | None = stored.pop(SEEN, None)
        found = None if self.seen is None else f"{self.seen.dtype} of shape {self.seen.shape}"
        expected = None if manifest.seen is None else f"uint64 of shape ({manifest.seen},)"
        if found != expected or (self.seen is not None and (self.seen[1:] <= self.seen[:-1]).any()):
            raise CorruptArtifact(f"read {SEEN}", expected=f"{expected}, ascending", found=f"{found}")
        self.tensors: Mapping[str, FloatArray] = MappingProxyType(
            {name: _as_float32(tensor) for name, tensor in stored.items()}
        )
        self.networks = _networks(manifest, self.tensors)

    @classmethod
    def create(
        cls,
        kind: str,
        *,
        source: Space,
        target: Space,
        method: str = "",
        side_source: Side | None = None,
        side_target: Side | None = None,
        networks: Mapping[str, Architecture] | None = None,
        tensors: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        figures: Mapping[str, Any] | None = None,
        seen: Digests | None = None,
    ) -> Artifact:
        """Make an artifact; see `Manifest` for the arguments.

        Args:
            kind: Name of its kind.
            source: Space upgraded from.
            target: Space upgraded to.
            method: Its training method.
            side_source: Side-information that it reads.
            side_target: Side-information that it writes.
            networks: Its networks by name.
            tensors: Arrays or torch tensors named "<network>.<tensor of Architecture.shapes>"; stored as float32.
            settings: Settings of the trainer.
            figures: Held-out figures.
            seen: (n,) uint64 digests of the source vectors that it has learned from, in any order; None for unknown.

        Raises:
            CorruptArtifact: Tensors, networks, spaces and kind do not fit together.
            InvalidInput: Settings or figures are not JSON-able.
        """
        operation = f"make a {kind}"
        with foreign(operation, "tensors of numbers"):
            arrays: dict[str, Any] = {name: _as_float32(tensor) for name, tensor in (tensors or {}).items()}
        distinct = None if seen is None else np.unique(array_of(seen, operation, "digests", ndim=1, dtype=np.uint64))
        if distinct is not None:
            arrays[SEEN] = distinct
        weights = bytes(safetensors.numpy.save(arrays))
        manifest = Manifest(
            kind=kind,
            method=method,
            source=source,
            target=target,
            side_source=side_source,
            side_target=side_target,
            networks=dict(networks or {}),
            settings=dict(settings or {}),
            figures=dict(figures or {}),
            libraries=dict(_libraries()),
            weights_sha256=hashlib.sha256(weights).hexdigest(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seen=None if distinct is None else len(distinct),
        )
        try:
            parse(manifest.to_bytes())
        except Malformed as error:
            raise InvalidInput("write a manifest", expected="values that can be read back", found=str(error)) from error
        return cls(manifest, weights)

    def amended(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        figures: Mapping[str, Any] | None = None,
        seen: Digests | None = None,
    ) -> Artifact:
        """The same transform with another record of how it was made; see `create`. None keeps the recorded value."""
        names = ("kind", "method", "source", "target", "side_source", "side_target", "networks", "settings", "figures")
        kept = {name: getattr(self.manifest, name) for name in names} | {"tensors": self.tensors, "seen": self.seen}
        changed = {"settings": settings, "figures": figures, "seen": seen}
        return Artifact.create(**kept | {name: value for name, value in changed.items() if value is not None})

    @property
    def short_id(self) -> str:
        """First 12 digits of the id; the origin of the vectors that it makes."""
        return self.id[:12]

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.manifest.kind

    def apply(
        self,
        vectors: Any,
        side: Any = None,
        *,
        batch_size: int | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> Transformed:
        """Transform vectors. The same rows give the same bits, however many rows follow them (gallery kinds).

        Args:
            vectors: (n, d) array or torch tensor, in the space that the kind reads.
            side: (n, d_side) array or torch tensor, for an artifact that reads side-information; else None. For one
                that reads bits also packed codes, (n, d_side / 8) uint8; of values only the signs count.
            batch_size: Rows of a batch, from 1 to 1,048,576; None takes a fast one for the device. Every batch is
                padded to it.
            device: "cpu" (the default) or "cuda".
            precision: "float32" or "bfloat16".

        Returns:
            Vectors (n, d_out) float32, and sigma^2 and side-information if the artifact has them.

        Raises:
            InvalidInput: No matrix, other numbers of rows, or side-information missing or superfluous. Vectors or
                side-information have another length. NaN or infinite values.
            MissingExtra: CUDA or bfloat16 without torch.
        """
        operation = f"apply artifact {self.short_id}"
        execution = Execution(batch_size=batch_size, device=device or "cpu", precision=precision)
        rows = as_matrix(operation, vectors, self.behaviour.reads(self.manifest).dim)
        side_rows = self.side_rows(f"{operation} with side-information", side, len(rows))
        return self.behaviour.apply(self, rows, side_rows, execution)

    def to_onnx(self, graph: OnnxGraph, vectors: str, side: str | None) -> OnnxOutputs:
        """Add the computation of `apply` to an ONNX graph.

        Args:
            graph: Gets the nodes and weights.
            vectors: Name of the value that holds (n, d) float32.
            side: Name of the value that holds (n, d_side) float32, of bits any values with their signs; None for an
                artifact that reads none.
        """
        if side is not None and self.manifest.side_source is not None and self.manifest.side_source.dtype == "bits":
            side = graph.signs(side)
        return self.behaviour.to_onnx(self, graph, vectors, side)

    def check(self, source: EmbeddingVersion, target: EmbeddingVersion) -> None:
        """Refuse to be used between versions that it was not made for.

        Args:
            source: Version upgraded from.
            target: Version upgraded to.

        Raises:
            Incompatible: It was made for the upgrade from `target` to `source`. It belongs to another model. It needs
                side-information that the source lacks, or misses the target's unit length.
            InvalidInput: Vectors or side-information have another length.
        """
        require_binding(self.manifest, source, target)

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return manifest and weights as they are stored."""
        return self.manifest.to_bytes(), self._weights

    @classmethod
    def from_bytes(cls, manifest: bytes, weights: bytes) -> Artifact:
        """Read the output of `to_bytes`.

        Raises:
            CorruptArtifact: Either part was truncated or edited, or is of an unknown format or kind.
        """
        return cls(Manifest.from_bytes(manifest), weights)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the artifact as a directory; atomic. Does nothing if this very artifact is stored already.

        Args:
            path: The directory, by custom "<name>.compat".
            overwrite: Replace another or a damaged artifact.

        Raises:
            AlreadyExists: Something else is there.
            StorageError: The directory cannot be written; nothing of it is left.
        """
        if self._is_stored(Path(path)):
            return
        try:
            write_directory(Path(path), *self.to_bytes(), replace=overwrite)
        except AlreadyExists:
            # Two processes that save the same artifact both succeed.
            if not self._is_stored(Path(path)):
                raise

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Artifact:
        """Read an artifact from a directory; read-only.

        Raises:
            NotFound: There is no such directory.
            CorruptArtifact: A file is missing, truncated or edited, or of an unknown format or kind.
            StorageError: A file may not be read.
        """
        return cls.from_bytes(*read_directory(Path(path)))

    def __repr__(self) -> str:
        source, target = self.manifest.source, self.manifest.target
        ends = f"{source.name or '?'} ({source.dim}) -> {target.name or '?'} ({target.dim})"
        return f"<Artifact {self.short_id} {self.kind} {self.manifest.method} {ends}>"

    def __reduce__(self) -> tuple[type[Artifact], tuple[Manifest, bytes]]:
        return Artifact, (self.manifest, self._weights)

    def _is_stored(self, path: Path) -> bool:
        try:
            return type(self).load(path).id == self.id
        except CompatStoreError:
            return False

    def side_rows(self, operation: str, side: Any, n: int) -> FloatArray | None:
        """Return the side-information of n vectors as a matrix, None for an artifact that reads none.

        Raises:
            InvalidInput: It is missing, superfluous, or of another length.
        """
        expected = self.manifest.side_source
        if expected is None:
            if side is not None:
                raise InvalidInput(operation, expected="none: it was made without", found="some")
            return None
        if side is None:
            raise InvalidInput(operation, expected=f"(n, {expected.dim}) side-information", found="none")
        rows = as_side(operation, side, expected.dim, expected.dtype)
        if len(rows) != n:
            raise InvalidInput(operation, expected=f"{n} rows, as there are vectors", found=f"{len(rows)}")
        return rows


def _as_float32(tensor: Any) -> FloatArray:
    return np.ascontiguousarray(to_numpy(tensor), dtype=np.float32)


def _stored(manifest: Manifest, weights: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(weights).hexdigest()
    if digest != manifest.weights_sha256:
        expected, found = f"SHA-256 {manifest.weights_sha256}", f"{digest} ({len(weights)} bytes): truncated or edited"
        fix = "Copy the artifact again from where it was made."
        raise CorruptArtifact(f"read {WEIGHTS}", expected=expected, found=found, fix=fix)
    try:
        return dict(safetensors.numpy.load(weights))
    except Exception as error:  # its own errors, and those of NumPy for unknown types and shapes
        raise CorruptArtifact(f"read {WEIGHTS}", expected="safetensors", found=f"{error}"[:200]) from error


def _networks(manifest: Manifest, tensors: Mapping[str, FloatArray]) -> dict[str, Network]:
    broken = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if broken:
        found = f"NaN, or values beyond float32, in {first_offenders(broken)}"
        fix = "Train it again: a smaller learning rate keeps a training from diverging."
        raise CorruptArtifact("read tensors", expected="finite weights", found=found, fix=fix)
    parts: defaultdict[str, dict[str, FloatArray]] = defaultdict(dict)
    for full_name, tensor in tensors.items():
        network, _, name = full_name.partition(".")
        parts[network][name] = tensor
    for unknown in parts.keys() - manifest.networks.keys():
        raise CorruptArtifact("read tensors", expected=f"networks {sorted(manifest.networks)}", found=repr(unknown))
    for name, architecture in manifest.networks.items():
        architecture.require(name, parts[name])
    return {name: Network(architecture, parts[name]) for name, architecture in manifest.networks.items()}


@cache
def _libraries() -> Mapping[str, str]:
    """Versions of the libraries that make an artifact, read once: each is the parsing of a file."""
    found = {}
    for library in ("compatstore", "numpy", "safetensors", "torch"):
        with suppress(PackageNotFoundError):
            found[library] = version(library)
    return found
