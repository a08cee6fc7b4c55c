"""The journal of a run: one JSON line for each measurement that is finished, so that a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY = ("size", "set", "setting", "seed", "method")

Record = dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """A file of JSON lines; a line that was cut off by a crash is left out and measured again.

    Args:
        path: The file; made when the first record is added.
    """

    path: Path
    records: list[Record] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):
            self.path.write_text("".join(whole))
        self.records.extend(json.loads(line) for line in whole)

    def once(self, key: dict[str, Any], measure: Callable[[], Record]) -> None:
        """Measure and write down, unless that is done."""
        if any(all(record[name] == key[name] for name in KEY) for record in self.records):
            return
        record = json.loads(json.dumps(key | measure()), parse_float=lambda digits: round(float(digits), 5))
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.records.append(record)
