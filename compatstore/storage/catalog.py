"""The versions and artifacts of one gallery, with the encoders and weights behind them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import safetensors.numpy

from compatstore import next_step
from compatstore.arrays import ArrowType, FloatArray
from compatstore.artifacts import Artifact, Space
from compatstore.artifacts.manifest import Manifest
from compatstore.encoders import Derived, Encoder, from_spec
from compatstore.errors import AlreadyExists, CorruptArtifact, Incompatible, InvalidInput, NotFound, first_offenders
from compatstore.storage import registry as registry_module
from compatstore.storage.app_columns import Misfit, misfits, refuse
from compatstore.storage.files import Blobs
from compatstore.storage.history import HistoryEntry
from compatstore.storage.lancedb_functions import LANCEDB, build_function
from compatstore.storage.records import STORED, ArtifactRecord, VersionRecord
from compatstore.storage.registry import ID_TYPES, Registry, edit_version
from compatstore.storage.same_model import require_same_vectors
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Fence, Store, is_same
from compatstore.versions import EmbeddingVersion, require_usable_name

CODE, SENDS = "python:", "openai:"
LEASE_TERM = 30.0


class Catalog:
    """Versions, encoders and artifacts of one gallery: of its table, its files and the calling program.

    Args:
        store: The gallery's table.
        encoders: Encoders by version name, for versions whose encoder only the program can make.
        side_encoders: The same for side-information.
        trust_code: Build encoders whose spec names Python code ("python:package.module:attribute") or an address and
            the environment variable of its key ("openai:...") or LanceDB's function of a column ("lancedb:...") when
            the gallery needs it. Off by default: a gallery from elsewhere must not choose imports of this program,
            nor addresses that receive texts and keys.
        lease_term: Seconds without a sign of life after which another worker may take an upgrade over from this one.

    Raises:
        NotFound: An encoder was given for a version that the gallery does not have.
        Incompatible: An encoder is not the one that its version was registered with.
    """

    def __init__(
        self,
        store: Store,
        encoders: Mapping[str, Encoder] | None = None,
        side_encoders: Mapping[str, Encoder] | None = None,
        *,
        trust_code: bool = False,
        lease_term: float = LEASE_TERM,
    ) -> None:
        if not isinstance(lease_term, int | float) or not 0 < lease_term < math.inf:
            raise InvalidInput("set the term of leases", expected="a number of seconds > 0", found=repr(lease_term))
        self.store = store
        self.lease_term = lease_term
        self.blobs = Blobs(store.location)
        self._trust_code = trust_code
        self._encoders: dict[str, Encoder] = {}
        self._side_encoders: dict[str, Encoder] = {}
        self._artifacts: dict[str, Artifact] = {}
        self._manifests: dict[str, Manifest] = {}
        # A search reads the registry of its snapshot; parsing it again for the same table version would be waste.
        self._supposed: VersionRecord | None = None
        self._recognised: set[str] = set()  # fingerprints of encoders whose vectors were compared
        self._read: tuple[Snapshot | None, Registry | None, tuple[Misfit, ...]] = (None, None, ())
        self._given_up: str | None = None
        state = self.recorded()
        for name, encoder in (encoders or {}).items():
            record = state.record(name)
            self._encoders[name] = self._of_version(record, _derived(record, encoder), side=False)
        for name, encoder in (side_encoders or {}).items():
            self._side_encoders[name] = _require_model(state.record(name), encoder, side=True)

    def fenced(self, fence: Fence) -> Catalog:
        """The same catalog, whose writes are refused once the fence's lease is lost; see `Store.fenced`."""
        other = copy.copy(self)
        other.store = self.store.fenced(fence)
        return other

    def at(self, store: Store) -> Catalog:
        """The same catalog on another handle of the table."""
        other = copy.copy(self)
        other.store, other._read = store, (None, None, ())
        return other

    def giving_up(self, version: str) -> Catalog:
        """The same catalog for the retirement of a version, whose columns may be gone."""
        other = copy.copy(self)
        other._given_up = version
        return other

    def supposing(self, version: EmbeddingVersion) -> Catalog:
        """The same catalog as if a version were registered, for a plan; nothing is written.

        Raises:
            AlreadyExists: There is a version of that name.
            InvalidInput: The name means something else here, or is too long.
        """
        self.require_new(version.name)
        other = copy.copy(self)
        other._read, other._supposed = (None, None, ()), VersionRecord.of(version)
        other._encoders = {**self._encoders, **({} if version.encoder is None else {version.name: version.encoder})}
        return other

    def registry(self, snapshot: Snapshot | None = None) -> Registry:
        """The registry as of now, or of an open snapshot, in a table that has all columns that it names.

        Raises:
            TableChanged: It has not: another writer dropped, renamed or replaced some.
            CorruptArtifact: The records contradict each other.
        """
        snapshot = self.store.snapshot() if snapshot is None else snapshot
        registry, found = self._look(snapshot)
        if registry.contradictions:
            operation = f"use {self.store.location.name}"
            expected = "a registry whose records fit together"
            fix = f"See how to put it back: {next_step.call('verify', at=self.store.location.uri)}"
            raise CorruptArtifact(operation, expected=expected, found=first_offenders(registry.contradictions), fix=fix)
        found = tuple(misfit for misfit in found if misfit.version is None or misfit.version != self._given_up)
        refuse(found, registry, snapshot, self.store.location)
        return registry

    def recorded(self, snapshot: Snapshot | None = None) -> Registry:
        """The registry alone, as of now or of an open snapshot, without a check of the table's columns."""
        return self._look(self.store.snapshot() if snapshot is None else snapshot)[0]

    def misfits(self, snapshot: Snapshot | None = None) -> tuple[Misfit, ...]:
        """Columns that the registry names and the table has not, or has of another type."""
        return self._look(self.store.snapshot() if snapshot is None else snapshot)[1]

    def require(self, snapshot: Snapshot, *versions: str) -> None:
        """Require the columns that a read needs: those of the items, and those of some versions.

        Raises:
            TableChanged: Some are not there.
        """
        registry, found = self._look(snapshot)
        found = tuple(misfit for misfit in found if misfit.version is None or misfit.version in versions)
        refuse(found, registry, snapshot, self.store.location)

    def _look(self, snapshot: Snapshot) -> tuple[Registry, tuple[Misfit, ...]]:
        known, registry, found = self._read
        if registry is None or known is None or (snapshot is not known and not is_same(snapshot, known)):
            registry = registry_module.read(snapshot, self.store.location.uri)
            if self._supposed is not None:
                registry = registry.with_version(self._supposed)
            found = misfits(registry, snapshot.schema)
            self._read = (snapshot, registry, found)
        return registry, found

    def add_version(self, version: EmbeddingVersion) -> VersionRecord:
        """Record a version, store its encoders and head if they can be stored, and keep its encoders in memory."""
        record = VersionRecord.of(version)
        if version.encoder is not None:
            self._encoders[version.name] = encoder = version.encoder
            if isinstance(encoder, Derived):  # its model is stored, and the steps from there
                derivation, encoder = encoder.derivations, encoder.encoder
                record = replace(record, base_model=encoder.fingerprint, derivation=derivation)
            record = replace(record, encoder=self._keep(encoder))
        if version.side_encoder is not None:
            self._side_encoders[version.name] = version.side_encoder
            record = replace(record, side_encoder=self._keep(version.side_encoder))
        if version.head is not None:
            head = np.ascontiguousarray(version.head, np.float32)
            record = replace(record, head=self.blobs.put(safetensors.numpy.save({"head": head})))
        return record

    def use_encoders(self, version: EmbeddingVersion) -> None:
        """Embed with the encoders of a version that is registered already, in this process."""
        if version.encoder is not None:
            self._encoders[version.name] = version.encoder
        if version.side_encoder is not None:
            self._side_encoders[version.name] = version.side_encoder

    def keep_models(self, version: EmbeddingVersion) -> None:
        """Store the encoders and head of a version that is registered already: the first one of a new gallery."""
        if version.encoder is None and version.side_encoder is None and version.head is None:
            return
        record = self.add_version(version)
        models = ("encoder", "side_encoder", "head", "base_model", "derivation")
        edit_version(self.store, version.name, **{name: getattr(record, name) for name in models})

    def require_new(self, name: str) -> None:
        """Refuse a version's name that is taken.

        Raises:
            AlreadyExists: The gallery has a version of that name.
            InvalidInput: The name means something else here, or is too long. The user has a column of that name.
        """
        require_usable_name(name, f"register version {name[:80]}")
        require_unregistered(self.recorded(), name)
        taken = [column for column in self.store.schema.names if column.split("__")[0] == name]
        if taken:
            operation, found = f"register version {name}", f"the table's own column {first_offenders(taken)}"
            raise InvalidInput(operation, expected="a name that no column has", found=found, fix="Choose another name.")

    def version_of(self, space: Space, role: str) -> str:
        """Name of the version whose space an artifact's source or target is.

        Raises:
            InvalidInput: The artifact carries no fingerprint of a version here.
        """
        registry = self.recorded()
        for record in registry.versions.values():
            if space.fingerprint is not None and record.version().fingerprint == space.fingerprint:
                return record.name
        if space.fingerprint is None and space.name in registry.versions:
            return str(space.name)
        expected = f"the {role} version's name, or an artifact that carries its fingerprint"
        found = f"fingerprint {space.fingerprint}, and versions {', '.join(registry.versions)}"
        fix = f"Name both: {next_step.either(shell='--from SOURCE --to TARGET', python='source=..., target=...')}."
        raise InvalidInput(f"link an artifact without naming its {role}", expected=expected, found=found, fix=fix)

    def version(self, name: str) -> EmbeddingVersion:
        """The version without its encoders; see `encoder`."""
        return self.recorded().record(name).version()

    def head(self, name: str) -> FloatArray | None:
        """The frozen classifier head of a version, (classes, dim) float32, or None."""
        record = self.recorded().record(name)
        return None if record.head is None else read_head(self.blobs.get(record.head), record.dim)

    def encoder(self, name: str) -> Encoder | None:
        """The encoder of a version: handed over, stored beside the table, or built from its spec; None without one.

        Raises:
            Incompatible: Its spec names Python code and code is not trusted. The spec builds another encoder than the
                version was registered with.
        """
        return self._find(self._encoders, self.recorded().record(name), side=False)

    def side_encoder(self, name: str) -> Encoder | None:
        """The side-information encoder of a version, found as `encoder` is."""
        return self._find(self._side_encoders, self.recorded().record(name), side=True)

    def add_artifact(self, artifact: Artifact, source: str, target: str) -> ArtifactRecord:
        """Store an artifact's files beside the table and return the record to register."""
        manifest, weights = artifact.to_bytes()
        self._artifacts[artifact.id] = artifact
        return ArtifactRecord(
            id=artifact.id,
            kind=artifact.kind,
            method=artifact.manifest.method,
            source=source,
            target=target,
            manifest=self.blobs.put(manifest),
            weights=self.blobs.put(weights),
            reads_side=artifact.manifest.side_source is not None,
            writes_side=artifact.manifest.side_target is not None,
        )

    def artifact(self, artifact_id: str) -> Artifact:
        """Load a linked artifact; its files are verified.

        Raises:
            NotFound: None has that id.
            CorruptArtifact: Its files are gone or changed.
        """
        if artifact_id not in self._artifacts:
            record = self.artifact_record(artifact_id)
            self._artifacts[artifact_id] = Artifact.from_bytes(
                self.blobs.get(record.manifest), self.blobs.get(record.weights)
            )
        return self._artifacts[artifact_id]

    def manifest(self, artifact_id: str) -> Manifest:
        """Read the manifest of a linked artifact, without its weights; errors as of `artifact`."""
        if artifact_id not in self._manifests:
            self._manifests[artifact_id] = Manifest.from_bytes(
                self.blobs.get(self.artifact_record(artifact_id).manifest)
            )
        return self._manifests[artifact_id]

    def artifact_record(self, artifact_id: str) -> ArtifactRecord:
        """Find a linked artifact by its id or the first digits of it.

        Raises:
            NotFound: None, or more than one, has that id.
        """
        records = self.recorded().artifacts
        found = [record for full, record in records.items() if artifact_id and full.startswith(artifact_id)]
        if len(found) != 1:
            operation = f"use artifact {artifact_id!r}"
            expected = f"one of {first_offenders([full[:12] for full in records]) or 'none: no artifact is linked'}"
            fix = f"Name one of these, or link it first: {next_step.call('link', next_step.ARTIFACT)}"
            raise NotFound(operation, expected=expected, found=f"{len(found)} of that id", fix=fix, kind="artifact")
        return found[0]

    def _keep(self, encoder: Encoder) -> str:
        to_bytes = getattr(encoder, "to_bytes", None)
        return f"{STORED}{self.blobs.put(to_bytes())}" if to_bytes is not None else encoder.spec

    def _find(self, known: dict[str, Encoder], record: VersionRecord, *, side: bool) -> Encoder | None:
        spec = record.side_encoder if side else record.encoder
        if record.name in known:
            return self._of_version(record, known[record.name], side=side)
        built = None if side else self._at_hand(record.base_model or record.model)
        if built is None and not spec:
            return None
        built = built or self._build(record.name, spec)
        known[record.name] = self._of_version(record, built if side else _derived(record, built), side=side)
        return known[record.name]

    def _of_version(self, record: VersionRecord, encoder: Encoder, *, side: bool) -> Encoder:
        """The encoder, if it is the version's; one without a named model is recognised by its vectors."""
        if side or not record.is_nameless or record.columns is None:
            return _require_model(record, encoder, side=side)
        if encoder.dim == record.dim and encoder.fingerprint not in (record.encoder_model, *self._recognised):
            snapshot = self.store.snapshot()
            require_same_vectors(snapshot, self.recorded(snapshot), record.name, record.columns, encoder)
            self._recognised.add(encoder.fingerprint)
        return _require_model(record, encoder, side=False, model=encoder.fingerprint)

    def can_embed(self, name: str) -> bool:
        """True if a version has an encoder, here or by its spec; nothing is built, and no code trusted."""
        record = self.recorded().record(name)
        at_hand = self._at_hand(record.base_model or record.model)
        return bool(record.encoder or name in self._encoders or at_hand is not None)

    def can_ask_both(self, source: str, target: str) -> bool:
        """True if a search can query two versions: by their encoders, or by vectors that the app makes of both itself.

        An app hands over vectors if not even the target's encoder reads the sources of queries. An encoder that
        cannot be built here, because its code is not trusted, is assumed to read texts or images.
        """
        if self.can_embed(source) or not self.can_embed(target):
            return True
        with suppress(Incompatible):
            encoder = self.encoder(target)
            return encoder is None or encoder.reads == "id"
        return False

    def give_encoder(self, name: str, encoder: Encoder) -> None:
        """Store an encoder for a version that has none, and no named model.

        Raises:
            Incompatible: It gives other vectors than the version's.
        """
        self._of_version(self.recorded().record(name), encoder, side=False)
        spec = self._keep(encoder)
        self._encoders[name] = encoder
        entry = HistoryEntry("register", name, note=f"encoder {encoder.fingerprint}")
        edit_version(self.store, name, entry, encoder=spec, encoder_model=encoder.fingerprint)

    def _at_hand(self, model: str) -> Encoder | None:
        """The encoder of a model, where it is there for another version: the one that a version was derived of."""
        return next((encoder for encoder in self._encoders.values() if encoder.fingerprint == model), None)

    def _build(self, name: str, spec: str) -> Encoder:
        if spec.startswith(STORED):
            from compatstore.encoders import NetworkEncoder

            return NetworkEncoder.from_bytes(self.blobs.get(spec.removeprefix(STORED)))
        if spec.startswith((CODE, SENDS, LANCEDB)) and not self._trust_code:
            what = "sends texts nowhere" if spec.startswith(SENDS) else "is not Python code"
            raise Incompatible(
                f"build the encoder of {name}",
                expected=f"an encoder that {what}, or trust in this gallery's code",
                found=spec,
                fix=f"Open the gallery with {next_step.option('trust_code', True)}, or hand the encoder over: "
                f"{next_step.either(shell=f'--encoder {name}=ENCODER', python='encoders={...}')}.",
            )
        if spec.startswith(LANCEDB):
            return build_function(self.store.schema, spec.removeprefix(LANCEDB))
        return from_spec(spec)


def _derived(record: VersionRecord, encoder: Encoder) -> Encoder:
    """The encoder of a version, from that or from the model that it is derived of."""
    whole = record.derivation and encoder.fingerprint == record.base_model
    return Derived(encoder, *record.derivation) if whole else encoder


def _require_model(record: VersionRecord, encoder: Encoder, *, side: bool, model: str | None = None) -> Encoder:
    expected = model or (record.side_model if side else record.model)
    if encoder.fingerprint != expected:
        raise Incompatible(
            f"use this {'side-information ' if side else ''}encoder for version {record.name}",
            expected=f"the model it was registered with ({expected})",
            found=encoder.fingerprint,
            fix="Use that model, or register this one as a version of its own.",
        )
    dim = record.side_dim if side else record.dim
    if encoder.dim != dim:
        operation = f"use {type(encoder).__name__} for version {record.name}"
        raise InvalidInput(operation, expected=f"{dim} values, as it was registered with", found=f"{encoder.dim}")
    return encoder


def read_head(data: bytes, dim: int) -> FloatArray:
    """Read a stored classifier head: (classes, dim) float32.

    Raises:
        CorruptArtifact: It is no such head.
    """
    operation = "read a classifier head"
    try:
        head: FloatArray = safetensors.numpy.load(data)["head"]
    except Exception as error:  # its own errors, and those of NumPy for unknown types and shapes
        raise CorruptArtifact(operation, expected="a tensor called head", found=f"{error!r}"[:200]) from error
    if head.dtype != np.float32 or head.ndim != 2 or head.shape[1] != dim:
        found = f"{head.shape} {head.dtype}"
        raise CorruptArtifact(operation, expected=f"(classes, {dim}) values of float32", found=found)
    return head


def id_arrow_type(registry: Registry) -> ArrowType:
    """Arrow type of the gallery's ids."""
    return ID_TYPES[registry.id_type]


def require_unregistered(registry: Registry, name: str) -> None:
    """Refuse to register a name twice.

    Raises:
        AlreadyExists: The gallery has a version of that name.
    """
    if name in registry.versions:
        found = f"{name} with fingerprint {registry.versions[name].version().fingerprint}"
        raise AlreadyExists(f"register version {name}", expected="a new name", found=found, fix="Choose another name.")
