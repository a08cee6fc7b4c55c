"""A process of a life: where it works, what it records, and how its operations may be refused.

A journal is a file of JSON lines. A write is written down before it begins and after it was acknowledged, so the
journal of a killed process tells which write may be there or not.
"""

from __future__ import annotations

import json
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compatstore as cs
from tests.known.galleries import Kind
from tests.known.vectors import ENCODERS, SIDE_ENCODERS

LEASE_TERM = 1.5  # seconds; the lease of a suspended process is taken over after one to two of these

Items = dict[str, str]  # id -> source


@dataclass(frozen=True)
class Scene:
    """Where a life takes place.

    Attributes:
        tables: Paths of the tables: one, or the shards of a database.
        kind: Of the tables.
        framework: Name of the framework whose store writes as well.
        linked: True if there is an artifact; an upgrade trains its own otherwise.
        ending: What the closer does: "retire", "cutover" or "abort".
        side: True if the target has side-information.
        ray: Address of a Ray cluster that an operator works on; "" for the local engine.
    """

    tables: tuple[str, ...]
    kind: Kind
    framework: str
    linked: bool
    ending: str
    side: bool = False
    ray: str = ""

    @property
    def pattern(self) -> str:
        """The address of all shards."""
        return f"{Path(self.tables[0]).parent}#*"


class Journal:
    """Records of a process, a line each; a line that was written survives the process."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, what: str, detail: Any = None) -> None:
        """Write a line."""
        os.write(self._file, (json.dumps([what, detail]) + "\n").encode())


class Actor(ABC):
    """One process.

    Args:
        scene: Where it works.
        journal: Its records.
        draw: Its choices.
        own: Table -> its items.
    """

    def __init__(self, scene: Scene, journal: Journal, draw: random.Random, own: Mapping[str, Items]) -> None:
        self.scene, self.journal, self.draw, self.own = scene, journal, draw, own

    def gallery(self, table: str) -> cs.Gallery:
        """Open a table as a gallery."""
        side = SIDE_ENCODERS if self.scene.side else {}
        return cs.Gallery.open(table, encoders=ENCODERS, side_encoders=side, lease_term=LEASE_TERM)

    @abstractmethod
    def step(self) -> None:
        """Do one operation."""

    def unless(self, call: Callable[[], object], *expected: type[Exception]) -> bool:
        """Do something that may be refused; True if it was done."""
        try:
            call()
        except expected as error:
            self.journal.say("refused", type(error).__name__)
            return False
        return True
