"""One life of a gallery, killed and suspended again and again; compared each time, and with a life undisturbed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import compatstore as cs
from benchmarks.crashes.checks import Expected, State, violations
from benchmarks.crashes.compare import differences
from benchmarks.crashes.place import Place
from benchmarks.crashes.process import Victim
from benchmarks.crashes.reader import Reader
from benchmarks.crashes.rehearsal import Template
from benchmarks.crashes.script import DONE, SCRIPT, Aim
from benchmarks.crashes.suspension import Suspension, holds_the_lease
from benchmarks.crashes.template import Kind
from benchmarks.crashes.truth import ENCODERS, SIDE_ENCODERS
from benchmarks.crashes.writer import Hand, Memory, Write, Writer

AIMS: tuple[Aim, ...] = tuple((position, step) for position, command in enumerate(SCRIPT) for step in command.steps)
SEARCHES = 3  # before each victim is started, at least
SLACK = 1.25  # a step takes longer beside an app than in the rehearsal
KILL, SUSPEND = "kill", "suspend"


@dataclass
class Lived:
    """What came of a life.

    Attributes:
        kills: (command, step) -> kills that landed there.
        suspensions: (command, step) -> managers that were suspended there until another had taken the lease over.
        violations: What did not hold.
        writes: Writes of the app's.
        lost_races: Plain writes that Lance refused once because somebody else had written.
        searches: Searches and gets of the reader's.
        natives_apart: Items nobody wrote to that are native here and transformed in the undisturbed life, or reverse.
        seconds: How long it took.
    """

    kills: Counter[Aim] = field(default_factory=Counter)
    suspensions: Counter[Aim] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    writes: int = 0
    lost_races: int = 0
    searches: int = 0
    natives_apart: int = 0
    seconds: float = 0.0


class Life:
    """Runs one.

    Args:
        template: Where it begins.
        folder: An empty folder for it.
        seed: Of what the app writes and of when kills and suspensions come.
        kills: How many.
        suspensions: How many.
    """

    def __init__(self, template: Template, folder: Place, seed: int, kills: int, suspensions: int = 0) -> None:
        self._template, self._folder = template, folder
        self._path = template.copy(folder / "killed")
        self._random = random.Random(seed)
        drawn = self._random.choices(range(len(AIMS)), k=kills + suspensions)
        self._aims = sorted(zip(drawn, [KILL] * kills + [SUSPEND] * suspensions, strict=True))
        self._suspension: Suspension | None = None
        self._memory = Memory(template.items)
        self._hand = Hand(self._path, template.kind)
        self._writer = Writer(self._memory, self._hand, template.fragments * template.rows, seed)
        self._reader = Reader(self._path, self._memory, template.kind.id, seed)
        self.lived = Lived()

    def run(self) -> Lived:
        """Live, and compare with the life of a gallery in which nobody was killed."""
        started = time.monotonic()
        self._writer.start()
        self._reader.start()
        try:
            self._operate()
        finally:
            self._writer.stop()
            self._reader.stop()
        self._collect()
        if not self.lived.violations:
            self._compare()
        self.lived.seconds = time.monotonic() - started
        return self.lived

    def _operate(self) -> None:
        """Start victims until one comes to the end of the script."""
        victim, standby, position = Victim(), Victim(), 0
        try:
            while position < len(SCRIPT) and not self.lived.violations:
                self._await_app()
                position = self._one_victim(victim, position)
                victim, standby = standby, Victim()
        finally:
            self._await_suspended()
            victim.kill()
            standby.kill()

    def _one_victim(self, victim: Victim, position: int) -> int:
        """Run one victim until it is killed, suspended or done; gives the command that its successor goes on with."""
        aim, how = (AIMS[self._aims[0][0]], self._aims[0][1]) if self._aims else (None, KILL)
        last = (position, "")
        victim.start(self._path, position)
        if self._suspension is not None:
            self._suspension.follow_up(victim)
        for announced in victim.announced():
            last = announced
            self._writer.position = announced[0]
            if self._suspension is not None and self._suspension.over:
                self._await_suspended()
            if aim is not None and self._suspension is None and announced[1] != DONE and _reached(announced, aim):
                time.sleep(self._random.uniform(0, SLACK * self._template.seconds.get(announced, 0.0)))
                last = [last, *(victim.kill() if how == KILL else victim.suspend())][-1]
                if how == KILL and last == (len(SCRIPT) - 1, DONE):
                    return len(SCRIPT)
                if how == KILL or holds_the_lease(victim, self._path):
                    self._aims.pop(0)
                    self._after(how, victim, last)
                    return last[0]
                victim.wake()
            if last[1] == DONE:
                self._before_next_command(victim)
        self._await_suspended()
        failure = victim.failure()
        if failure:
            self.lived.violations.append(f"command {SCRIPT[last[0]].name} failed at {last[1]}:\n{failure}")
        return len(SCRIPT)

    def _before_next_command(self, victim: Victim) -> None:
        """However fast a victim is, the next aim finds it before the command that is aimed at."""
        if self._suspension is not None and self._suspension.taken_over:
            self._await_suspended()
        victim.go_on()

    def _after(self, how: str, victim: Victim, landed: Aim) -> None:
        """Look at what a killed victim left; one that is suspended stays so, its successor is started next."""
        if how == KILL:
            self.lived.kills[landed] += 1
            self._examine(f"after a kill in {SCRIPT[landed[0]].name} ({landed[1]})")
        else:
            self.lived.suspensions[landed] += 1
            self._suspension = Suspension(victim, landed, self._path, self._random.random())

    def _await_suspended(self) -> None:
        """Wait until the suspended victim has woken up and ended, and look at what it left."""
        if self._suspension is None:
            return
        suspension, self._suspension = self._suspension, None
        where = f"after a suspension in {SCRIPT[suspension.landed[0]].name} ({suspension.landed[1]})"
        with suspension.ended() as failure:
            self.lived.violations += [f"{where}: {failure}"] if failure else []
            self._examine(where)

    def _examine(self, where: str) -> None:
        with self._memory.lock:
            state = State.read(self._path)
            expected = Expected(
                self._memory.items, self._memory.behind, self._memory.earlier, position=self._writer.position
            )
            found = violations(state, expected, self._template.kind)
        self.lived.violations += [f"{where}: {violation}" for violation in found]

    def _collect(self) -> None:
        """At the end everything is caught up with, so nothing is left that may be missing or stale."""
        state = State.read(self._path)
        found = violations(state, Expected(self._memory.items, settled=True), self._template.kind)
        self.lived.violations += [f"at the end: {violation}" for violation in found]
        self.lived.violations += [self._writer.failure] if self._writer.failure else []
        self.lived.violations += self._reader.violations
        self.lived.writes, self.lived.searches = len(self._memory.writes), self._reader.searches
        self.lived.lost_races = self._hand.lost_races

    def _compare(self) -> None:
        """Give the same commands and writes to a fresh copy that nobody disturbs, and compare the two tables."""
        path = self._template.copy(self._folder / "undisturbed")
        live_undisturbed(path, self._template.kind, self._memory.writes)
        found, self.lived.natives_apart = differences(
            State.read(self._path), State.read(path), self._template.kind, self._memory.touched
        )
        self.lived.violations += [f"other than undisturbed: {difference}" for difference in found]

    def _await_app(self) -> None:
        """Wait for a write and some searches before each victim, so that they come however slow the machine is."""
        writes, searches = len(self._memory.writes), self._reader.searches
        while len(self._memory.writes) == writes or self._reader.searches < searches + SEARCHES:
            if not (self._writer.is_alive() and self._reader.is_alive()):
                return  # its failure is a violation
            time.sleep(0.01)


def live_undisturbed(path: Place, kind: Kind, writes: Sequence[Write]) -> None:
    """Carry out the writes that came while a command was run, then the command; one after the other."""
    hand = Hand(path, kind)
    gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=SIDE_ENCODERS)
    for position, command in enumerate(SCRIPT):
        for write in writes:
            if write.position == position:
                hand.carry_out(write)
        command.run(gallery, lambda _: None)


def _reached(announced: Aim, aim: Aim) -> bool:
    """Whether a victim is at the step that is aimed at, or past it."""
    steps = SCRIPT[aim[0]].steps
    if announced[0] != aim[0]:
        return announced[0] > aim[0]
    return announced[1] == aim[1] or (announced[1] in steps and steps.index(announced[1]) > steps.index(aim[1]))
