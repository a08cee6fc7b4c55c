"""Libraries: those that are needed are here in the versions that work, and which optional ones are not."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from importlib import metadata
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from compatstore.errors import StorageError
from compatstore.storage.readers import read_each_other
from compatstore.verification.diagnosis import Diagnosis

PACKAGE = "compatstore"
FOR_DEVELOPERS = "dev"


def python_version() -> Iterator[Diagnosis]:
    """Python is one that the package supports."""
    found, wanted = platform.python_version(), metadata.metadata(PACKAGE)["Requires-Python"]
    if found in SpecifierSet(wanted):
        yield Diagnosis(topic="Python", level="ok", what=found)
    else:
        yield Diagnosis(topic="Python", level="problem", what=found, fix=f"Use Python {wanted}.")


def needed_libraries() -> Iterator[Diagnosis]:
    """Libraries that the package cannot work without."""
    for requirement in _requirements(""):
        found = _version(requirement.name)
        if found is not None and found in requirement.specifier:
            yield Diagnosis(topic=requirement.name, level="ok", what=found)
            continue
        what = f"{found or 'not installed'}, needed: {requirement.specifier}"
        yield Diagnosis(topic=requirement.name, level="problem", what=what, fix=f'Run: pip install "{requirement}"')


def lance_libraries() -> Iterator[Diagnosis]:
    """Each of pylance and lancedb has a Lance of its own; each reads a small table that the other wrote."""
    topic = "pylance and lancedb"
    try:
        with TemporaryDirectory() as folder:
            read_each_other(folder)
    except StorageError as error:
        yield Diagnosis(topic=topic, level="problem", what=error.found, fix=error.fix)
    else:
        yield Diagnosis(topic=topic, level="ok", what="each reads a table that the other wrote")


def optional_libraries() -> Iterator[Diagnosis]:
    """Extras: what is not installed, and what is in a version that is not supported."""
    for extra in metadata.metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra != FOR_DEVELOPERS:
            yield _extra(extra, [r for r in _requirements(extra) if r.name != PACKAGE])


def _extra(extra: str, requirements: Iterable[Requirement]) -> Diagnosis:
    found = {str(requirement): _version(requirement.name) for requirement in requirements}
    missing = [name for name, version in found.items() if version is None]
    other = [f"{r.name} {found[str(r)]}" for r in requirements if (found[str(r)] or "") not in r.specifier]
    fix = f'Run: pip install "{PACKAGE}[{extra}]"'
    topic = f"extra {extra}"
    if missing:
        return Diagnosis(topic=topic, level="ok", what=f"not installed: {', '.join(missing)}", fix=fix)
    if other:
        return Diagnosis(topic=topic, level="warning", what=f"unsupported versions: {', '.join(other)}", fix=fix)
    return Diagnosis(topic=topic, level="ok", what="installed")


def _requirements(extra: str) -> list[Requirement]:
    """What the package needs, or what an extra adds to that."""
    found = []
    for requirement in map(Requirement, metadata.requires(PACKAGE) or []):
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always != bool(extra) and (always or (marker is not None and marker.evaluate({"extra": extra}))):
            requirement.marker = None
            found.append(requirement)
    return found


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
