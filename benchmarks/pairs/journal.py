"""The journal of a run: one JSON line for each measurement that is finished, so that a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

KEY = ("size", "set", "setting", "seed", "method")

Record = dict[str, Any]


class Task(NamedTuple):
    """Measurements that one process makes together.

    Attributes:
        keys: Of each of them.
        work: Makes them, in the order of the keys; can be pickled.
    """

    keys: Sequence[dict[str, Any]]
    work: Callable[[], Sequence[Record]]


@dataclass(frozen=True)
class Journal:
    """A file of JSON lines; a line that was cut off by a crash is left out and measured again.

    Args:
        path: The file; made when the first record is added.
        earlier: Earlier name of a size -> its name; records are read by the latter, the file keeps the former.
        key: Names of what tells one measurement from another.
    """

    path: Path
    earlier: Mapping[str, str] = field(default_factory=dict)
    key: Sequence[str] = KEY
    records: list[Record] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):
            self.path.write_text("".join(whole))
        for record in map(json.loads, whole):
            size = record.get("size")
            self.records.append(record | {"size": self.earlier[size]} if size in self.earlier else record)

    def once(
        self, key: dict[str, Any], measure: Callable[[], Record], beside: Callable[[], Record] | None = None
    ) -> None:
        """Measure and write down, unless that is done.

        Args:
            key: A value for each name of the journal's key.
            measure: Gives what was measured, written down to five decimals.
            beside: Gives what is written down with it to all digits.
        """
        if self._has(key):
            return
        record = json.loads(json.dumps(key | measure()), parse_float=lambda digits: round(float(digits), 5))
        record |= json.loads(json.dumps(beside())) if beside else {}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.records.append(record)

    def measure(self, tasks: Sequence[Task], jobs: int) -> Iterator[list[dict[str, Any]]]:
        """Do what is not done, `jobs` tasks at once, and write each down when it is over; the keys of those."""
        left = [task for task in tasks if not all(map(self._has, task.keys))]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            begun = {pool.submit(task.work): task for task in left}
            for future in as_completed(begun):
                keys = list(begun[future].keys)
                for key, record in zip(keys, future.result(), strict=True):
                    self.once(key, lambda found=record: found)
                yield keys

    def _has(self, key: dict[str, Any]) -> bool:
        return any(all(record[name] == key[name] for name in self.key) for record in self.records)
