"""Hints in errors about vectors of another version than the active one.

After a cutover a process may still send vectors of the version before; the errors name the versions that fit them.
"""

from __future__ import annotations

from compatstore import next_step
from compatstore.errors import CorruptArtifact, InvalidInput
from compatstore.storage.registry import Registry, bridge_to, history
from compatstore.storage.store import Store


def of_another_length(store: Store, registry: Registry, version: str, error: InvalidInput) -> InvalidInput:
    """The error of vectors that do not fit a version, with the versions that they fit.

    Args:
        store: The gallery's table.
        registry: Its state.
        version: Version that the vectors were taken for.
        error: What was raised; its `dim` is the length of the vectors.
    """
    dim = registry.record(version).dim
    expected = f"vectors of {in_use(store, registry, version)}, which are vectors of {dim} values"
    fits = [name for name, record in registry.versions.items() if record.dim == error.dim]
    usable = [name for name in fits if _searchable(registry, name)]
    embed = f"embed with the model of {version}."
    if usable:
        fix = f"{_has(usable, dim=error.dim)}: name it, {next_step.option('version', usable[0])}, or {embed}"
    elif fits:
        fix = f"{_has(fits, dim=error.dim)}, and no vectors in this gallery: {embed}"
    else:
        fix = f"No version of this gallery has {error.dim} values: {embed}"
    return InvalidInput(error.asked, expected=expected, found=error.found, fix=fix, dim=error.dim)


def of_fingerprint(registry: Registry, version: str, fingerprint: str) -> str:
    """What to do about vectors of a model that is not a version's."""
    same = [name for name, r in registry.versions.items() if r.version().fingerprint == fingerprint]
    usable = [name for name in same if _searchable(registry, name)]
    if not usable:
        return f"Embed with the model of {version}."
    named = next_step.option("version", usable[0])
    return f"That is the model of {usable[0]}: name it, {named}, or embed with the model of {version}."


def in_use(store: Store, registry: Registry, version: str) -> str:
    """A version as messages name it: the active one with the time since when it is."""
    if version != registry.active:
        return version
    since = _active_since(store, version)
    return f"{version}, the active version" + (f" since {since}" if since else "")


def _searchable(registry: Registry, name: str) -> bool:
    return registry.record(name).columns is not None or bridge_to(registry, name) is not None


def _active_since(store: Store, version: str) -> str:
    """When a version became active, ISO 8601; "" where the history does not say."""
    try:
        steps = history(store)
    except CorruptArtifact:
        return ""
    active, since = "", ""
    for step in steps:
        switched = step.version if step.step in ("create", "adopt", "cutover") else active
        if step.step == "rollback":
            switched = step.note.removeprefix("to ")
        if switched != active:
            active, since = switched, step.at
    return since if active == version else ""


def _has(names: list[str], *, dim: int | None) -> str:
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} {dim} values"
