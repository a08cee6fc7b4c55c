"""The versions of a gallery and the artifacts between them: made known, linked and forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from compatstore import next_step
from compatstore.artifacts import Artifact, Space
from compatstore.artifacts.kinds import DerivationKind, derivation_between, described, needs_unit
from compatstore.boundary import shown
from compatstore.derivation import UNIT_TOLERANCE, Derivation, not_unit
from compatstore.errors import Incompatible, InvalidInput
from compatstore.gallery.core import GalleryCore, verbs
from compatstore.storage.catalog import Catalog, require_unregistered
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord, VersionRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_matrix
from compatstore.versions import DType, EmbeddingVersion, Metric

if TYPE_CHECKING:
    from compatstore.upgrade.status import Status


@verbs()
class VersionVerbs(GalleryCore):
    """Registering versions and linking artifacts. A part of `compatstore.Gallery`."""

    @property
    def active(self) -> str:
        """Name of the version that searches use.

        Examples:
            >>> gallery.active
            'v1'
        """
        return self._catalog.recorded().active

    def versions(self) -> tuple[str, ...]:
        """Names of all versions, in order of registration.

        Examples:
            >>> gallery.versions()
            ('v1', 'v2')
        """
        return tuple(self._catalog.recorded().versions)

    def version(self, name: str | None = None, *, encoders: bool = True) -> EmbeddingVersion:
        """A version of the gallery (the active one by default), with its encoders where they can be had.

        Args:
            name: The active one by default.
            encoders: Whether to build its encoders; without them nothing is loaded, and code needs no trust.

        Examples:
            >>> gallery.version("v2").dim
            2
            >>> gallery.version("v1", encoders=False).identity
            'model-1'
        """
        registry = self._catalog.registry()
        record = registry.record(name or registry.active)
        if not encoders:
            return record.version()
        return record.version(self._catalog.encoder(record.name), self._catalog.side_encoder(record.name))

    def register(
        self,
        version: EmbeddingVersion | str,
        *,
        of: str | None = None,
        dim: int | None = None,
        metric: Metric | None = None,
        normalised: bool | None = None,
        dtype: DType | None = None,
    ) -> None:
        """Make a version known; its vectors come with an upgrade.

        A version of a model whose vectors the gallery has, stored as another type or of another metric on unit vectors,
        is recognised: the upgrade copies vectors and calls no encoder.

        A name alone registers a version that is derived of another one, without a model and without learning: `upgrade`
        makes its vectors from those of `of`. Deriving from a native vector yields a native vector. The version's
        encoder is that of `of`, followed by the same steps.

        A version that has vectors and an unknown model takes an encoder by the same call: a few of its items are
        embedded again, and must give the vectors that are stored.

        Args:
            version: The version, or the name of a derived one, for which alone the other arguments are.
            of: The version that it is derived of; the active one by default.
            dim: Number of leading values to keep, for which a Matryoshka model was trained.
            metric: Another metric. Unless vectors are scaled to unit length, all must have unit length by themselves:
                there l2, cosine and dot rank alike.
            normalised: Scale vectors to unit length. Vectors cut from a normalised version are scaled by default.
            dtype: Storage type of vectors: "float32", "float16", or "bits", of each value the sign.

        Raises:
            AlreadyExists: There is a version of that name.
            InvalidInput: A derived version is to be longer than the version that it is derived of. A column of that
                name is the user's own; or a derived version would change nothing, or compare vectors that are not of
                unit length by another metric.
            Incompatible: The encoder that is given to a version gives other vectors than it has.
            NotFound: There is no such version to derive of, or the table has no vectors of it.

        Examples:
            >>> gallery.register(cs.EmbeddingVersion("v3", dim=4, model="model-3"))
            >>> gallery.register("v1_unit", metric="cosine", normalised=True)
            >>> gallery.versions()
            ('v1', 'v2', 'v3', 'v1_unit')
            >>> gallery.upgrade("v1_unit").state
            'ready'
            >>> gallery.vectors(["f"], "v1_unit").tolist()
            [[0.0, 1.0]]
        """
        if isinstance(version, str):
            self._catalog.require_new(version)
            snapshot = self._catalog.store.snapshot()
            registry = self._registry_with(of, snapshot)
            origin = registry.record(of or registry.active)
            registry.columns(origin.name)
            record = derive_version(origin, version, dim, metric, normalised, dtype)
            require_unit(snapshot, origin, record)
            self._register_derived(origin, record)
            return
        if any(step is not None for step in (of, dim, metric, normalised, dtype)):
            operation = f"register {version.name}"
            expected = "a version alone, or a name with the arguments of a derivation"
            fix = "Give these to the version itself: EmbeddingVersion(...)."
            raise InvalidInput(operation, expected=expected, found="a version with further arguments", fix=fix)
        known = self._catalog.recorded().versions.get(version.name)
        if known is not None and known.is_nameless and known.columns is not None and version.encoder is not None:
            self._catalog.give_encoder(version.name, version.encoder)
            return
        self._catalog.require_new(version.name)
        record = self._catalog.add_version(version)
        snapshot = self._catalog.store.snapshot()
        source = source_of(self._catalog.registry(snapshot), record)
        if source is not None:
            with suppress(InvalidInput):  # vectors of other lengths are embedded again, as another model's
                require_unit(snapshot, source, record)
                self._register_derived(source, record)
                return

        def change(registry: Registry) -> Registry:
            require_unregistered(registry, version.name)
            return registry.with_version(record)

        edit(self._catalog.store, change, HistoryEntry("register", version.name, note=f"dim {version.dim}"))

    def status(self) -> Status:
        """Versions with their native, transformed and missing rows, and upgrades with their states; read-only.

        Examples:
            >>> [(version.name, version.native, version.missing) for version in gallery.status().versions]
            [('v1', 6, 0), ('v2', 0, 6)]
        """
        from compatstore.stores.link import read_store_status
        from compatstore.upgrade.status import read_status

        return replace(read_status(self._catalog), store=read_store_status(self._catalog))

    def _repr_html_(self) -> str:
        """The status, for notebooks."""
        return self.status()._repr_html_()

    def _register_derived(self, source: VersionRecord, record: VersionRecord) -> None:
        """Record a version and the artifact that derives it, in one commit."""
        spaces = Space.of(source.version()), Space.of(record.version())
        method, before = described(*spaces), VectorForm.of(source).dtype
        if record.dtype != before:
            method += f", stored as {record.dtype} in place of {before}"
        artifact = Artifact.create(DerivationKind.name, method=method, source=spaces[0], target=spaces[1])
        linked = self._catalog.add_artifact(artifact, source.name, record.name)

        def change(registry: Registry) -> Registry:
            require_unregistered(registry, record.name)
            return registry.with_version(record).with_artifact(linked)

        note = f"dim {record.dim}, derived of {source.name}: {artifact.manifest.method}"
        edit(self._catalog.store, change, HistoryEntry("register", record.name, artifact=artifact.id, note=note))


@verbs("Gallery.artifacts")
class Artifacts:
    """The linked artifacts, in order of linking; `Gallery.artifacts` gives it.

    Examples:
        >>> [artifact.target for artifact in gallery.artifacts]
        ['v2']
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __iter__(self) -> Iterator[ArtifactRecord]:
        return iter(self._catalog.recorded().artifacts.values())

    def __getitem__(self, place: int) -> ArtifactRecord:
        return list(self)[place]

    def __len__(self) -> int:
        return len(self._catalog.recorded().artifacts)

    def link(self, artifact: Artifact | Any, source: str | None = None, target: str | None = None) -> str:
        """Attach an artifact to two versions, after checking that it is made for them.

        Args:
            artifact: An artifact, or the path of one.
            source: Version upgraded from; by default the one whose fingerprint the artifact carries.
            target: Version upgraded to; by default the one whose fingerprint the artifact carries.

        Returns:
            The artifact's id.

        Raises:
            Incompatible: It was made for the other direction. It belongs to another model.
            InvalidInput: Its dimensions are not the versions'.
            CorruptArtifact: Its files are truncated or edited.

        Examples:
            >>> gallery.artifacts.link(h) == h.id
            True
        """
        if not isinstance(artifact, Artifact | str | PathLike):
            raise InvalidInput("link an artifact", expected="an artifact, or the path of one", found=shown(artifact))
        loaded = artifact if isinstance(artifact, Artifact) else Artifact.load(artifact)
        source = source or self._catalog.version_of(loaded.manifest.source, "source")
        target = target or self._catalog.version_of(loaded.manifest.target, "target")
        loaded.check(self._catalog.version(source), self._catalog.version(target))
        if loaded.behaviour.exact:
            require_derived(self._catalog.recorded().record(source), self._catalog.recorded().record(target))
        record = self._catalog.add_artifact(loaded, source, target)  # puts lost files of a linked one back, too
        if loaded.id in self._catalog.registry().artifacts:
            return loaded.id
        note = f"{loaded.manifest.method or loaded.kind} {source} -> {target}"
        figures = {name: float(x) for name, x in loaded.manifest.figures.items() if isinstance(x, int | float)}
        entry = HistoryEntry("link", target, artifact=loaded.id, note=note, source=source, figures=figures)
        edit(self._catalog.store, lambda registry: registry.with_artifact(record), entry)
        return loaded.id

    def unlink(self, artifact: str) -> str:
        """Forget an artifact that nothing uses; its files go with the next `optimize`.

        Args:
            artifact: Its id, or the first digits of it.

        Returns:
            Its id.

        Raises:
            NotFound: None is linked that has this id.
            UpgradeError: An upgrade under way applies it, vectors were made by it, or searches use it.

        Examples:
            >>> gallery.artifacts.unlink(h.short_id) == h.id
            True
        """
        from compatstore.upkeep.removal import unlink

        return unlink(self._catalog, artifact)


def derive_version(
    source: VersionRecord,
    name: str,
    dim: int | None,
    metric: Metric | None,
    normalised: bool | None,
    dtype: DType | None,
) -> VersionRecord:
    """Describe a version that is derived of another; fields that are None are inherited from the source.

    Raises:
        InvalidInput: It is to be longer than the source. It is the source itself, or compares cut vectors by another
            metric without scaling them.
    """
    operation = f"derive {name} of {source.name}"
    if dim is not None and dim > source.dim:
        fix = f"Name fewer: {next_step.call('register', name, of=source.name, dim=max(source.dim // 2, 1))}"
        raise InvalidInput(operation, expected=f"{source.dim} values at most", found=f"{dim}", fix=fix)
    record = VersionRecord(
        name=name,
        dim=source.dim if dim is None else dim,
        metric=metric or source.metric,
        normalised=source.normalised and dtype != "bits" if normalised is None else normalised,
        dtype=dtype or VectorForm.of(source).dtype,
        model=source.model,
        encoder=source.encoder,
    )
    if _space(record) == _space(source):
        expected = "fewer values, unit length, another metric or another type"
        raise InvalidInput(operation, expected=expected, found=f"no difference from {source.name}")
    spaces = Space.of(source.version()), Space.of(record.version())
    if needs_unit(*spaces) and record.dim < source.dim:
        expected = f"unit vectors, where {record.metric} takes the place of {source.metric}"
        found = f"the first {record.dim} of {source.dim} values, which are not scaled"
        fix = f"Scale them: {next_step.option('normalised', True)}."
        raise InvalidInput(operation, expected=expected, found=found, fix=fix)
    step = _step(source, record)
    steps = (*source.derivation, *([step] if step.changes(source.dim) else []))
    base = (source.base_model or source.model) if steps else ""
    return replace(record, model=_model(source, record), base_model=base, derivation=steps)


def source_of(registry: Registry, target: VersionRecord) -> VersionRecord | None:
    """The version in the table of which a new one can be derived, as both are of one model; the active one first.

    That is so if they differ in their type, their metric, or in the declaration of unit length. A version that
    differs in nothing is not derived: its items are to be embedded again.
    """
    for source in sorted(registry.live, key=lambda record: record.name != registry.active):
        one_model = source.model == target.model == _model(source, target) and source.dim == target.dim
        if one_model and _space(source) != _space(target) and target.side_dim is None:
            return source
    return None


def require_derived(source: VersionRecord, target: VersionRecord) -> None:
    """Refuse a derivation between versions of which the one is not the other's: its vectors would count as native.

    Raises:
        Incompatible: The target is another model.
    """
    if _model(source, target) != target.model:
        operation = f"derive {target.name} of {source.name}"
        expected = f"a version that was derived of {source.name}"
        fix = f"Derive one: {next_step.call('register', 'NAME', of=source.name, dim=target.dim)}"
        raise Incompatible(operation, expected=expected, found=f"another model ({target.model})", fix=fix)


def require_unit(snapshot: Snapshot, source: VersionRecord, target: VersionRecord) -> None:
    """Refuse another metric for vectors that are not of unit length; reads them all, in batches.

    Raises:
        InvalidInput: There are such vectors; it says how many.
    """
    if not needs_unit(Space.of(source.version()), Space.of(target.version())):
        return
    columns, off, rows = source.columns, 0, 0
    assert columns is not None
    for batch in snapshot.to_batches(columns=[columns.vector], filter=columns.present):
        vectors, valid = to_matrix(batch[columns.vector], columns.dim)
        off, rows = off + int((not_unit(vectors) & valid).sum()), rows + int(valid.sum())
    if off:
        operation = f"compare the vectors of {source.name} by {target.metric} in place of {source.metric}"
        expected = f"unit vectors, to {UNIT_TOLERANCE:g} of their length"
        fix = f"Scale them: {next_step.option('normalised', True)}."
        raise InvalidInput(operation, expected=expected, found=f"{off} of {rows} that are not", fix=fix)


def _space(record: VersionRecord) -> tuple[int, Metric, bool, DType]:
    """Parts of a version that a derivation can change."""
    return record.dim, record.metric, record.normalised, VectorForm.of(record).dtype


def _model(source: VersionRecord, target: VersionRecord) -> str:
    """Identity of the model of the target's vectors, if they are derived of the source's."""
    step = _step(source, target)
    return step.identity(source.model) if step.changes(source.dim) else source.model


def _step(source: VersionRecord, target: VersionRecord) -> Derivation:
    """The derivation of the target's vectors from the source's as they are stored."""
    between = derivation_between(Space.of(source.version()), Space.of(target.version()))
    return replace(between, read_as=VectorForm.of(source).dtype)
