"""Versions that are derived of another version's vectors: recorded, recognised, and held against what they say."""

from __future__ import annotations

from dataclasses import replace

from compatstore import next_step
from compatstore.artifacts import Artifact, Space
from compatstore.artifacts.kinds import DerivationKind, derivation_between, described, needs_unit
from compatstore.derivation import UNIT_TOLERANCE, Derivation, not_unit
from compatstore.errors import Incompatible, InvalidInput
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_matrix
from compatstore.versions import DType, Metric


def derive_version(
    source: VersionRecord,
    name: str,
    *,
    dim: int | None = None,
    metric: Metric | None = None,
    normalised: bool | None = None,
    dtype: DType | None = None,
) -> VersionRecord:
    """Describe a version that is derived of another; what is None is as the source has it.

    Raises:
        InvalidInput: It is to be longer than the source. It is the source itself, or compares cut vectors by another
            metric without scaling them.
    """
    asked = f"derive {name} of {source.name}"
    if dim is not None and dim > source.dim:
        raise InvalidInput(
            asked,
            expected=f"{source.dim} values at most",
            found=f"{dim}",
            fix=f"Name fewer: {next_step.call('register', name, of=source.name, dim=max(source.dim // 2, 1))}",
        )
    form = VectorForm.of(source)
    record = VersionRecord(
        name=name,
        dim=source.dim if dim is None else dim,
        metric=metric or source.metric,
        normalised=source.normalised and dtype != "bits" if normalised is None else normalised,
        dtype=dtype or form.dtype,
        model=source.model,
        encoder=source.encoder,
    )
    if _space(record) == _space(source):
        expected = "fewer values, unit length, another metric or another type"
        raise InvalidInput(asked, expected=expected, found=f"what {source.name} is already")
    spaces = Space.of(source.version()), Space.of(record.version())
    if needs_unit(*spaces) and record.dim < source.dim:
        raise InvalidInput(
            asked,
            expected=f"unit vectors, where {record.metric} takes the place of {source.metric}",
            found=f"the first {record.dim} of {source.dim} values, which are not scaled",
            fix=f"Scale them: {next_step.option('normalised', True)}.",
        )
    step = _step(source, record)
    steps = (*source.derivation, *([step] if step.changes(source.dim) else []))
    base = (source.base_model or source.model) if steps else ""
    return replace(record, model=_model(source, record), base_model=base, derivation=steps)


def derivation_artifact(source: VersionRecord, target: VersionRecord) -> Artifact:
    """The artifact that derives the target's vectors of the source's."""
    spaces = Space.of(source.version()), Space.of(target.version())
    method, before = described(*spaces), VectorForm.of(source).dtype
    if target.dtype != before:
        method += f", stored as {target.dtype} in place of {before}"
    return Artifact.create(DerivationKind.name, method=method, source=spaces[0], target=spaces[1])


def source_of(registry: Registry, target: VersionRecord) -> VersionRecord | None:
    """The version in the table of which a new one can be derived, as both are of one model; the active one first.

    That is so where they differ in their type, their metric, or in whether unit length is promised. A version that
    differs in nothing is not derived: whoever registers it wants the items embedded again.
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
        raise Incompatible(
            f"derive {target.name} of {source.name}",
            expected=f"a version that was derived of {source.name}",
            found=f"another model ({target.model})",
            fix=f"Derive one: {next_step.call('register', 'NAME', of=source.name, dim=target.dim)}",
        )


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
        raise InvalidInput(
            f"compare the vectors of {source.name} by {target.metric} in place of {source.metric}",
            expected=f"unit vectors, to {UNIT_TOLERANCE:g} of their length",
            found=f"{off} of {rows} that are not",
            fix=f"Scale them: {next_step.option('normalised', True)}.",
        )


def _space(record: VersionRecord) -> tuple[int, str, bool, str]:
    """What a derivation can change."""
    return record.dim, record.metric, record.normalised, VectorForm.of(record).dtype


def _model(source: VersionRecord, target: VersionRecord) -> str:
    """Identity of what gives the target's vectors, if they are derived of the source's."""
    step = _step(source, target)
    return step.identity(source.model) if step.changes(source.dim) else source.model


def _step(source: VersionRecord, target: VersionRecord) -> Derivation:
    """How the target's vectors are derived of the source's as they are stored."""
    between = derivation_between(Space.of(source.version()), Space.of(target.version()))
    return replace(between, read_as=VectorForm.of(source).dtype)  # type: ignore[arg-type]
