"""Modules that load at their first use: what takes seconds to import does so in the tests, not at collection."""

from __future__ import annotations

import importlib


class Lazy:
    """The names of a module, or of several: the first use of a name imports them up to the first that has it."""

    def __init__(self, *modules):
        self._modules = modules

    def __getattr__(self, name):
        if name.startswith("_"):  # pytest asks what it collects for such names
            raise AttributeError(name)
        for module in map(importlib.import_module, self._modules):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"none of {', '.join(self._modules)} has {name}")
