"""The kinds of artifacts, by name: every file of this folder that defines a `Kind` adds one."""

from __future__ import annotations

import importlib
import pkgutil
from types import MappingProxyType

from compatstore.artifacts.kinds.kind import Kind, Transformed
from compatstore.errors import CorruptArtifact

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

KINDS = MappingProxyType({kind.name: kind() for kind in Kind.__subclasses__()})

__all__ = ["KINDS", "Kind", "Transformed", "kind_named"]


def kind_named(name: str) -> Kind:
    """Return the kind of that name.

    Raises:
        CorruptArtifact: There is none.
    """
    if name not in KINDS:
        raise CorruptArtifact("read an artifact's kind", expected=f"one of {sorted(KINDS)}", found=repr(name))
    return KINDS[name]
