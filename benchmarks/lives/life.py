"""One life: its processes, what hits them, and what must hold after each blow."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance

from benchmarks.crashes.checks import Expected, State, violations
from benchmarks.crashes.writer import Memory, Write
from benchmarks.lives.actors import LONGEST_SUSPENSION, WRITERS, Items, Scene, perform

# Processes are forked from one that has imported everything and has opened no table.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "benchmarks.lives.actors",
        "lancedb",
        "compatstore.integrations.langchain",
        "compatstore.integrations.haystack",
        "compatstore.integrations.llamaindex",
        "compatstore.trainers",
    ]
)
OPERATIONS = {"Writer": 8, "OtherWriter": 8, "PlainApp": 8, "Store": 8, "Reader": 14, "Janitor": 5, "Manager": 7}
AT_THE_END = {"Writer": 4, "OtherWriter": 4, "Store": 4, "Reader": 8, "Janitor": 2, "Closer": 1}
BETWEEN_BLOWS = 1.2  # seconds, at most
LONGEST_SECONDS = 180.0


@dataclass
class Lived:
    """What came of lives.

    Attributes:
        lives: How many.
        kills: Role -> processes that were killed.
        suspensions: Role -> processes that were suspended.
        half: Writes that were begun and not acknowledged when their process was killed.
        writes: Acknowledged writes by role.
        searches: Searches: "compared" with exact ones, "beside a write", or "fused".
        refused: Operations that were refused, by error.
        looks: Comparisons of all tables with what was written.
        violations: What did not hold.
        seconds: How long they took.
    """

    lives: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    suspensions: Counter[str] = field(default_factory=Counter)
    half: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __iadd__(self, other: Lived) -> Lived:
        """Count other lives as well."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Part:
    """One process, and what its journal says."""

    def __init__(self, life: Life, role: str, operations: int) -> None:
        self.role, self.operations, self.done = role, operations, 0
        self.pending: tuple[str, Write] | None = None
        self.wakes: float | None = None
        self._life = life
        self._journal = life.folder / f"journal-{next(life.numbers)}"
        self._read = 0
        own = {table: life.owned(table, role) for table in life.scene.tables}
        seed = f"{life.seed} {self._journal.name}"
        arguments = (role, life.scene, str(self._journal), seed, operations, own)
        self.process = CONTEXT.Process(target=perform, args=arguments, daemon=True)
        self.process.start()

    def hit(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    @property
    def suspended(self) -> bool:
        """Whether the process stands still, or has ended."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] in "TZ"

    def listen(self) -> None:
        """Read what it has said since."""
        lived = self._life.lived
        said = self._journal.read_bytes() if self._journal.exists() else b""
        end = said.rfind(b"\n") + 1
        for line in said[self._read : end].splitlines():
            what, detail = json.loads(line)
            if what == "begin":
                self.pending = (detail[0], Write(**{**detail[1], "removed": tuple(detail[1]["removed"])}))
            elif what == "end":
                lived.writes[self.role] += 1
                if self.pending is not None:
                    self._life.memories[self.pending[0]].end(self.pending[1])
                self.pending = None
            elif what == "step":
                self.done += 1
            elif what == "violation":
                lived.violations.append(f"seed {self._life.seed}: {detail}")
            else:
                getattr(lived, {"searched": "searches", "refused": "refused"}[what])[detail] += 1
        self._read = end

    def settle(self) -> None:
        """See whether the write at hand is in the table: all of it, or nothing."""
        if self.pending is None:
            return
        (table, write), kind = self.pending, self._life.scene.kind
        memory = self._life.memories[table]
        chosen = [*write.items, *write.removed]
        rows = lance.dataset(table).to_table([kind.id, kind.source]).to_pylist()
        found = {row[kind.id]: row[kind.source] for row in rows}
        now = {item: found.get(item) for item in chosen}
        if now == {item: write.items.get(item) for item in chosen}:
            memory.end(write)
            self.pending = None
        elif now != {item: memory.items.get(item) for item in chosen}:
            self._life.violate(f"half of a write of {self.role}: {write}, found {now}")


class Life:
    """Runs one.

    Args:
        scene: Where it takes place.
        items: Id -> source, of each table.
        seed: Of all choices.
        kills: How many, at most.
        suspensions: How many, at most.
    """

    def __init__(self, scene: Scene, items: Items, seed: int, kills: int, suspensions: int) -> None:
        self.scene, self.seed = scene, seed
        self.folder = Path(scene.tables[0]).parent.parent
        self.memories = {table: Memory(items) for table in scene.tables}
        self.numbers = iter(range(10**6))
        self.lived = Lived(lives=1)
        self._draw = random.Random(seed)
        self._blows = ["kill"] * kills + ["suspend"] * suspensions
        self._draw.shuffle(self._blows)
        self._parts: list[Part] = []

    def run(self) -> Lived:
        """Live."""
        started = time.monotonic()
        for number, operations in enumerate((OPERATIONS, AT_THE_END)):
            if not self.lived.violations:
                self._run_phase(operations, blows=len(self._blows) * 2 // 3 if number == 0 else None)
        if not self.lived.violations:
            self.look("at the end", settled=True)
        self.lived.seconds = time.monotonic() - started
        return self.lived

    def owned(self, table: str, role: str) -> Items:
        """The items of one role."""
        return {item: source for item, source in self.memories[table].items.items() if _owner(item) == role}

    def violate(self, what: str) -> None:
        """Something did not hold."""
        self.lived.violations.append(f"seed {self.seed}: {what}")

    def _run_phase(self, operations: dict[str, int], blows: int | None) -> None:
        """Run processes until all have done their operations."""
        self._parts = [Part(self, role, count) for role, count in operations.items()]
        left = len(self._blows) if blows is None else blows
        ends, next_blow = time.monotonic() + LONGEST_SECONDS, time.monotonic() + self._draw.uniform(0.1, BETWEEN_BLOWS)
        try:
            while self._parts and not self.lived.violations:
                time.sleep(0.01)
                now = time.monotonic()
                self._wake(now)
                self._collect()
                if now > ends:
                    self.violate(f"{[part.role for part in self._parts]} did not end in {LONGEST_SECONDS:g} s")
                if left and self._parts and now > next_blow:
                    left -= 1
                    self._blow(self._blows.pop())
                    next_blow = time.monotonic() + self._draw.uniform(0.1, BETWEEN_BLOWS)
        finally:
            for part in self._parts:
                part.process.kill()
                part.process.join()

    def _wake(self, now: float) -> None:
        for part in self._parts:
            if part.wakes is not None and now > part.wakes:
                part.wakes = None
                part.hit(signal.SIGCONT)

    def _collect(self) -> None:
        """Listen to all, and let go of those that have ended."""
        for part in list(self._parts):
            ended = not part.process.is_alive()
            part.listen()
            if ended:
                self._parts.remove(part)
                if part.process.exitcode:
                    self.violate(f"{part.role} ended with status {part.process.exitcode}")

    def _blow(self, kind: str) -> None:
        """Kill or suspend one of the processes that run."""
        awake = [part for part in self._parts if part.wakes is None]
        if not awake:
            return
        part = self._draw.choice(awake)
        if kind == "kill":
            part.process.kill()
            part.process.join()
            part.listen()
            self._parts.remove(part)
            self.lived.kills[part.role] += 1
            self.lived.half += part.pending is not None
            part.settle()
            self.look(f"after {part.role} was killed")
            if part.done < part.operations:
                self._parts.append(Part(self, part.role, part.operations - part.done))
        else:
            part.hit(signal.SIGSTOP)
            part.wakes = time.monotonic() + self._draw.uniform(0.1, LONGEST_SUSPENSION)
            self.lived.suspensions[part.role] += 1
            if part.role == "Manager":
                self._parts.append(Part(self, "SecondManager", 2))

    def look(self, where: str, settled: bool = False) -> None:
        """Compare all tables with what was written, while all processes stand still."""
        with self._suspended():
            for table, memory in self.memories.items():
                expected = Expected(memory.items, settled=True)
                if not settled:
                    expected = Expected(memory.items, memory.behind, memory.earlier)
                for violation in violations(State.read(Path(table), side_encoders={}), expected, self.scene.kind):
                    self.violate(f"{where}: {Path(table).name}: {violation}")
        self.lived.looks += 1

    @contextmanager
    def _suspended(self) -> Iterator[None]:
        awake = [part for part in self._parts if part.wakes is None]
        for part in awake:
            part.hit(signal.SIGSTOP)
        while not all(part.suspended for part in awake):
            time.sleep(0.001)
        for part in self._parts:
            part.listen()
            part.settle()
        try:
            yield
        finally:
            for part in awake:
                part.hit(signal.SIGCONT)


def _owner(item: str) -> str | None:
    """The role that an item belongs to: it made it, or it got it of the first ones; None if it belongs to none."""
    if not item.startswith("it'em"):
        return item.partition("'")[0]
    roles: Sequence[Any] = [*WRITERS, None]
    return roles[int(item[-5:]) % len(roles)]
