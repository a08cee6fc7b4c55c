"""One life: its processes, the kills and suspensions that hit them, and the comparisons after each of these."""

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
import psutil

import compatstore as cs
from benchmarks.lives.actor import Items, Scene
from benchmarks.lives.managers import BEFORE_CUTOVER, LIMITED, MOST_ROWS, SCRIPT
from benchmarks.lives.roles import WRITERS, perform
from benchmarks.lives.writers import Memory, Write
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import Location
from compatstore.upgrade.leases.lease import leases_in
from tests.known.checks import Expected, State, violations
from tests.known.vectors import SIDE_ENCODERS

# Processes are forked from one that has imported everything and has opened no table.
CONTEXT = multiprocessing.get_context("forkserver")
INTEGRATIONS = [f"compatstore.integrations.{name}" for name in ("langchain", "haystack", "llamaindex")]
CONTEXT.set_forkserver_preload(["benchmarks.lives.roles", "lancedb", "compatstore.trainers", *INTEGRATIONS])
OPERATIONS = {"Writer": 8, "OtherWriter": 8, "PlainApp": 8, "Store": 8, "Reader": 14, "Janitor": 5, "Manager": 7}
AT_THE_END = {"Writer": 4, "OtherWriter": 4, "Store": 4, "Reader": 8, "Janitor": 2, "Closer": 1}
SCRIPTED = {"Operator": len(SCRIPT), "Reader": 60}
BESIDE_A_SCRIPT = {"Writer": 40, "OtherWriter": 40}
BETWEEN_BLOWS = 1.2  # seconds, at most
BLOWS_A_COMMAND = 2  # of a script, at most: where commands are slow, later ones are hit as well
LONGEST_SUSPENSION = {"Operator": 4.0}  # seconds; the lease of an operator is taken over meanwhile
LONGEST_OF_OTHERS = 2.5
LONGEST_SECONDS = 300.0
RAY_LOOKS = 50  # for a worker or an actor, before the operator is killed in its place
RAY_TITLES = {"Ray worker": "ray::compatstore job", "Ray actor": "ray::_Actor"}


@dataclass
class Lived:
    """Outcome of lives.

    Attributes:
        lives: Number of lives.
        kills: Role -> processes that were killed.
        suspensions: Role -> processes that were suspended.
        commands: Number of a command of the script -> kills and suspensions of its operator.
        half: Writes that were begun and not acknowledged when their process was killed.
        writes: Acknowledged writes by role.
        searches: Searches: "compared" with exact ones, "beside a write", or "as an upgrade chose".
        refused: Operations that were refused, by error.
        looks: Comparisons of all rows with the acknowledged writes.
        twins: Comparisons of a whole table with one that was never disturbed.
        violations: One sentence each.
        seconds: Duration.
    """

    lives: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    suspensions: Counter[str] = field(default_factory=Counter)
    commands: Counter[int] = field(default_factory=Counter)
    half: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    twins: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __iadd__(self, other: Lived) -> Lived:
        """Count other lives as well."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Part:
    """One process, and the records of its journal."""

    def __init__(self, life: Life, role: str, operations: range) -> None:
        self.role, self.left, self.superseded = role, operations, False
        self.pending: tuple[str, Write] | None = None
        self.wakes: float | None = None
        self._life = life
        self._journal = life.folder / f"journal-{next(life.numbers)}.jsonl"
        self._read = 0
        own = {table: life.owned(table, role) for table in life.scene.tables}
        seed = f"{life.seed} {self._journal.stem}"
        arguments = (role, life.scene, str(self._journal), seed, operations, own)
        self.process = CONTEXT.Process(target=perform, args=arguments, daemon=True)
        self.process.start()

    def hit(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def supersede(self) -> None:
        """Let another process go on with the operations of this one."""
        self.superseded = True
        self._journal.with_suffix(".over").touch()

    @property
    def suspended(self) -> bool:
        """True if the process stands still, or has ended."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rpartition(")")[2].split()[0] in "TZ"

    def listen(self) -> None:
        """Read its new records."""
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
                self.left = self.left[1:]
            elif what == "violation":
                lived.violations.append(f"seed {self._life.seed}: {detail}")
            else:
                getattr(lived, {"searched": "searches", "refused": "refused"}[what])[detail] += 1
        self._read = end

    def settle(self) -> None:
        """Find out whether the current write is in the table: all of it, or nothing."""
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
        folder: A local folder, for journals.
        seed: Of all choices.
        blows: Kills and suspensions, at most.
        phases: Role -> operations, one phase after the other.
        twin: The table at the end of a life with the same script and no blow, sorted by id, and how often its
            operator embedded each source; None if others write.
    """

    def __init__(
        self,
        scene: Scene,
        items: Items,
        folder: Path,
        seed: int,
        blows: tuple[int, int],
        phases: Sequence[dict[str, int]],
        twin: tuple[Any, Counter[str]] | None = None,
    ) -> None:
        self.scene, self.seed, self.folder = scene, seed, folder
        self.memories = {table: Memory(items) for table in scene.tables}
        self.numbers = iter(range(10**6))
        self.lived = Lived(lives=1)
        self._phases, self._twin, self._position = phases, twin, len(SCRIPT)
        self._draw = random.Random(seed)
        self._blows = ["kill"] * blows[0] + ["suspend"] * blows[1]
        self._draw.shuffle(self._blows)
        self._parts: list[Part] = []

    def run(self) -> Lived:
        """Live."""
        started = time.monotonic()
        for phase in self._phases:
            if not self.lived.violations:
                last = phase is self._phases[-1]
                self._run_phase(phase, blows=len(self._blows) if last else len(self._blows) * 2 // 3)
        if not self.lived.violations:
            self._position = len(SCRIPT)
            self.look("at the end", settled=True)
            self._compare_with_twin()
        self.lived.seconds = time.monotonic() - started
        return self.lived

    def _compare_with_twin(self) -> None:
        """The same table to the last bit, and no item embedded more often than once more for each blow."""
        if self._twin is None:
            return
        table, (twin, embedded) = content(self.scene.tables[0]), self._twin
        names = table.schema.names
        if names != twin.schema.names or table.num_rows != twin.num_rows:
            there = f"{twin.num_rows} rows of {twin.schema.names}"
            self.violate(f"{table.num_rows} rows of {names}, undisturbed {there}")
        elif differ := [name for name in names if table[name].to_pylist() != twin[name].to_pylist()]:
            self.violate(f"columns {differ} differ from the undisturbed life")
        allowed = self.lived.kills.total() + self.lived.suspensions.total()
        if often := [source for source, n in encoded(self.folder).items() if n > embedded[source] + allowed]:
            self.violate(f"{len(often)} items were embedded more often than once more for each blow: {often[:3]}")
        self.lived.twins += 1

    def owned(self, table: str, role: str) -> Items:
        """The items of one role."""
        return {item: source for item, source in self.memories[table].items.items() if _owner(item) == role}

    def violate(self, what: str) -> None:
        """Count a violation."""
        self.lived.violations.append(f"seed {self.seed}: {what}")

    def _run_phase(self, operations: dict[str, int], blows: int) -> None:
        """Run processes until all have done their operations."""
        self._parts = [Part(self, role, range(count)) for role, count in operations.items()]
        left, now = blows, time.monotonic()
        ends, next_blow = now + LONGEST_SECONDS, now + self._draw.uniform(0.1, BETWEEN_BLOWS)
        try:
            while self._parts and not self.lived.violations:
                time.sleep(0.01)
                now = time.monotonic()
                self._wake(now)
                self._collect()
                if now > ends:
                    self.violate(f"{[part.role for part in self._parts]} did not end in {LONGEST_SECONDS:g} s")
                if left and self._parts and now > next_blow and self.lived.commands[self._command()] < BLOWS_A_COMMAND:
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
        """Listen to all, and forget those that have ended."""
        for part in list(self._parts):
            ended = not part.process.is_alive()
            part.listen()
            if ended:
                self._parts.remove(part)
                if part.process.exitcode:
                    self.violate(f"{part.role} ended with status {part.process.exitcode}")

    def _command(self) -> int:
        """Number of the script's command that runs, or ran last."""
        operators = [part.left.start for part in self._parts if part.role == "Operator" and not part.superseded]
        return max(operators, default=self._position)

    def _blow(self, kind: str) -> None:
        """Kill or suspend one of the processes that run: the operator of a script, or a worker of its Ray cluster."""
        awake = [part for part in self._parts if part.wakes is None and not part.superseded]
        aims = [part for part in awake if part.role == "Operator"] or awake
        if kind == "kill" and self.scene.ray and self._draw.random() < 2 / 3 and self._kill_of_ray():
            return
        if not aims:
            return
        part = self._draw.choice(aims)
        if part.role == "Operator":
            self._position = part.left.start
            self.lived.commands[self._position] += 1
        if kind == "kill":
            part.process.kill()
            part.process.join()
            part.listen()
            self._parts.remove(part)
            self.lived.kills[part.role] += 1
            self.lived.half += part.pending is not None
            part.settle()
            self.look(f"after {part.role} was killed")
            if part.left:
                self._parts.append(Part(self, part.role, part.left))
        else:
            part.hit(signal.SIGSTOP)
            longest = LONGEST_SUSPENSION.get(part.role, LONGEST_OF_OTHERS)
            part.wakes = time.monotonic() + self._draw.uniform(0.1, longest)
            self.lived.suspensions[part.role] += 1
            if part.role == "Manager":
                self._parts.append(Part(self, "SecondManager", range(2)))
            elif part.role == "Operator" and self._holds_lease(part):
                # Without a lease it may be about to ask for one, and its command would be a second one, later.
                part.listen()
                part.supersede()
                self._parts.append(Part(self, "Operator", part.left))

    def _holds_lease(self, part: Part) -> bool:
        """True if a process works on a table."""
        found = (leases_in(LeaseTable(Location(table)).read()) for table in self.scene.tables)
        return any(one.held and one.holder.pid == part.process.pid for leases in found for one in leases)

    def _kill_of_ray(self) -> bool:
        """Kill a process of the Ray cluster; True if there was one within a second."""
        for _ in range(RAY_LOOKS):
            found = []
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, IndexError):
                    title = process.cmdline()[0]
                    found += [(role, process) for role, begin in RAY_TITLES.items() if title.startswith(begin)]
            if found:
                role, process = self._draw.choice(found)
                with suppress(psutil.Error):
                    process.kill()
                    self.lived.kills[role] += 1
                return True
            time.sleep(0.02)
        return False

    def look(self, where: str, settled: bool = False) -> None:
        """Compare all tables with the acknowledged writes, while all processes stand still."""
        with self._suspended():
            position = self._command()
            charged, most = position <= BEFORE_CUTOVER, MOST_ROWS if position == LIMITED else None
            for table, memory in self.memories.items():
                expected = Expected(memory.items, settled=True)
                if not settled:
                    expected = Expected(memory.items, memory.behind, memory.earlier, charged=charged, most=most)
                state = State.read(table, side_encoders=SIDE_ENCODERS if self.scene.side else {})
                for violation in violations(state, expected, self.scene.kind):
                    self.violate(f"{where}: {table.rpartition('/')[2]}: {violation}")
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
    """The role that an item belongs to: it made it, or it is one of its share of the first ones; None for no role."""
    if not item.startswith("it'em"):
        return item.partition("'")[0]
    roles: Sequence[Any] = [*WRITERS, None]
    return roles[int(item[-5:]) % len(roles)]


def content(table: str) -> Any:
    """All columns of a table, sorted by its first; transforms are named by their weights.

    The id of a transform depends on the time of its training as well.
    """
    rows = lance.dataset(table).to_table()
    rows, linked = rows.sort_by(rows.schema.names[0]), list(cs.Gallery.open(table).artifacts)

    def named(origin: str | None) -> str | None:
        return next((one.weights for one in linked if origin and one.id.startswith(origin)), origin)

    origins = [named(origin) for origin in rows["v2__origin"].to_pylist()]
    return rows.set_column(rows.schema.get_field_index("v2__origin"), "v2__origin", [origins])


def encoded(folder: Path) -> Counter[str]:
    """Source -> how often the operators of a life embedded it."""
    path = folder / "encoded"
    return Counter(path.read_text().splitlines() if path.exists() else ())
