"""Lazy exports: the stub `__init__.pyi` of a package lists its names, and each is loaded when it is first used."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

from compatstore.former import no_attribute

_EXPORT = re.compile(r"^from (\S+) import \w+ as (\w+)$", re.MULTILINE)


def exports_of(package: str) -> tuple[dict[str, str], Callable[[str], object], Callable[[], list[str]]]:
    """Read the stub of a package that is being imported: (name -> its module, `__getattr__`, `__dir__`)."""
    module = sys.modules[package]
    stub = Path(f"{module.__file__}").with_suffix(".pyi").read_text(encoding="utf-8")
    homes = {name: home for home, name in _EXPORT.findall(stub)}

    def load(name: str) -> object:
        if name not in homes:
            raise no_attribute(package, name)
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return homes, load, lambda: list(module.__all__)
