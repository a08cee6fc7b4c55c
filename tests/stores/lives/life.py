"""One life: an app that writes, verbs that are killed, and comparisons at quiet points."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count

from stores.lives.checks import app_violations, violations
from stores.lives.jobs import Job, Outcome, Running
from stores.lives.rival import Rival
from stores.lives.world import NAME, SECRET, SHORT, Truth, as_row, first_rows, ids, languages, seeded

VERBS = {"sync": 4, "upgrade": 6, "evaluate": 1, "cutover": 3, "rollback": 2, "abort": 1, "verify": 1}
TRACKING = {"mirror": 3}  # further verbs of a life that tracks changes: the mirror begins or ends that
SWITCHING = ("cutover", "rollback", "abort", "retire")
BLOWS = {"none": 5, "line": 8, "time": 5, "stop": 2, "twin": 3, "server": 4}
LONGEST = 240.0  # seconds of a verb, on a busy machine
TRIES = 30
ONE_ROW = ("postgresql", "sqlite")  # both vectors are columns of one row
NO_RACE = ("postgresql",)  # an app may write during a switch: one step, and a vector of another length is refused


@dataclass
class Lived:
    """Outcome of lives, in numbers."""

    lives: int = 0
    kills: Counter = field(default_factory=Counter)
    stops: int = 0
    restarts: Counter = field(default_factory=Counter)
    verbs: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    writes: int = 0
    lost_connections: int = 0
    checks: int = 0
    twins: Counter = field(default_factory=Counter)
    violations: list = field(default_factory=list)
    seconds: float = 0.0

    def __iadd__(self, other):
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class Life:
    """Lives once.

    Args:
        engine: A database, empty.
        folder: For the gallery.
        seed: Of all choices.
        sessions: Verbs between two quiet points.
        quiet: Number of quiet points.
        track: True if triggers of the database record changes, most of the time.
    """

    def __init__(self, engine, folder, seed, sessions=4, quiet=3, track=False):
        self.engine, self.seed, self._sessions, self._quiet, self._track = engine, seed, sessions, quiet, track
        self.lived, self._draw = Lived(lives=1), seeded(seed, "life")
        self._folder, self._gallery = folder, folder / "notes.lance"
        self._results, self._pending, self._is_over = count(), None, False
        self._lines, self._seconds = Counter(), Counter()
        # With two collections, what the app wrote after a switch lies in one of them alone after a rollback.
        self._verbs = {verb: often for verb, often in VERBS.items() if verb != "rollback" or engine.name in ONE_ROW}
        draw = self._draw
        kind, keys = ids(engine, draw, 400)
        draw.shuffle(keys)
        first = first_rows(draw, keys[: draw.randint(50, 150)], languages(engine))
        engine.create(NAME, SHORT, "cosine", id_type=kind, rows=[as_row(key, row, "v1") for key, row in first.items()])
        self._before = engine.objects()
        self.truth = Truth(engine.name in ONE_ROW, first)
        pause = draw.choice(getattr(engine, "pauses", (0.005, 0.02, 0.1)))
        self._rival = Rival(engine, self.truth, [key for key in keys if key not in first], seed, pause)

    def run(self):
        """Live."""
        began = time.monotonic()
        self._rival.start()
        try:
            self._until_done("mirror")
            for _ in range(self._quiet):
                for _ in range(self._sessions):
                    if not self.lived.violations and not self._rival.violations:
                        self._session(self._verb())
                if not self.lived.violations:
                    self._settle()
            if not self.lived.violations:
                self._end()
        finally:
            self._rival.stop()
        self.lived.violations += [f"seed {self.seed}: {what}" for what in self._rival.violations]
        self.lived.writes, self.lived.lost_connections = self._rival.writes, self._rival.failures
        self.lived.seconds = time.monotonic() - began
        return self.lived

    def _verb(self):
        """The next verb: any, but seldom one of an upgrade that has not begun."""
        weights = self._verbs | (TRACKING if self._track else {})
        verb = self._draw.choices(list(weights), weights.values())[0]
        if not self.lived.verbs["upgrade"] and self._draw.random() < 0.8:
            return "upgrade"
        return verb

    def violate(self, what):
        """Count a violation."""
        self.lived.violations.append(f"seed {self.seed}: {what}")

    def _session(self, verb):
        """Run a verb, with a blow; a verb that switches runs to its end, where the app must not meet half of it."""
        is_switch = verb in SWITCHING
        with self._quietly(is_switch):
            outcome = self._blown(verb)
            if is_switch and (outcome.state == "killed" or self._is_passing(outcome)):  # half of it may be done
                self._pending = verb
            if outcome.state == "killed" and (self._draw.random() < 0.7 or (is_switch and not self._races)):
                outcome = self._until_done(verb, blows=2)
            if is_switch:
                self._after(verb, outcome)

    @property
    def _races(self):
        """True if the app writes while a verb switches."""
        return self.engine.name in NO_RACE

    def _quietly(self, is_switch):
        return self._rival.paused() if is_switch and not self._races else nullcontext()

    def _after(self, verb, outcome):
        with self._rival.paused():
            self._rival.follow()
        if outcome.state == "done":
            self._pending = None
        if outcome.state == "done" and verb == "abort":
            self._nothing_left("abort")

    def _nothing_left(self, verb):
        with self._rival.paused():
            left = {name for name in self.engine.objects() ^ self._before if not self._may_stay(name, verb)}
        if left:
            self.violate(f"{verb} left or removed {sorted(left)}")

    @staticmethod
    def _may_stay(name, verb):
        """True for files of FAISS that stay: of rows that the app added after a switch, and of the facts of one."""
        return "after_v2" in name or (verb == "retire" and name.endswith(".staged"))

    def _until_done(self, verb, blows=1, **options):
        for turn in range(TRIES):
            outcome = self._blown(verb, **options) if turn < blows else self._whole(verb, **options)
            if outcome.state in ("done", "failed") or (outcome.state == "refused" and not self._is_passing(outcome)):
                return outcome
        self.violate(f"{verb} came to no end: {outcome}")
        return outcome

    @staticmethod
    def _is_passing(outcome):
        """True for a refusal that another try does not meet."""
        passing = ("StorageError", "LeaseHeld", "TableChanged")
        return outcome.state == "refused" and outcome.what.startswith(passing)

    def _whole(self, verb, **options):
        return self._ended(self._started(verb, **options))

    def _blown(self, verb, **options):
        """Run a verb, and hit it."""
        draw, blow = self._draw, self._draw.choices(list(BLOWS), BLOWS.values())[0]
        if blow == "server" and not hasattr(self.engine, "restart"):
            blow = "line"
        if blow == "line":
            options["dies_at"] = draw.randint(1, int(self._lines[verb] or 250))
        running = self._started(verb, **options)
        other = self._started(verb, **options) if blow == "twin" else None
        moment = draw.uniform(0, 1.1 * (self._seconds[verb] or 2.0))
        if blow == "time":
            running.process.join(moment)
            if running.signal(signal.SIGKILL):
                self.lived.kills[f"{verb} at a time"] += 1
        elif blow == "stop":
            running.process.join(moment)
            if running.signal(signal.SIGSTOP):
                time.sleep(draw.uniform(0.1, 1.0))
                running.signal(signal.SIGCONT)
                self.lived.stops += 1
        elif blow == "server":
            running.process.join(moment)
            how = draw.choice(("restart", "terminate", "terminate"))
            if running.process.is_alive():
                getattr(self.engine, how)()
                self.lived.restarts[how] += 1
        outcome = self._ended(running)
        if blow == "line" and outcome.state == "killed":
            self.lived.kills[f"{verb} at a line"] += 1
        if blow == "none" and outcome.state == "done":
            self._lines[verb], self._seconds[verb] = outcome.lines, outcome.seconds
        if other is not None:
            second = self._ended(other)
            self.lived.twins[f"{outcome.state} and {second.state}"] += 1
            outcome = outcome if outcome.state == "done" else second
        return outcome

    def _started(self, verb, **options):
        draw, engine = self._draw, self.engine
        store = engine.address(NAME)
        if store.startswith("postgresql://postgres:@"):
            store = store.replace("postgres:@", f"postgres:{SECRET}@", 1)
        named = {"source": engine.parts.source, "id": engine.parts.id, "vector": engine.parts.vector}
        options = {
            "share": draw.choice((0.0, 0.3, 0.5, 0.8, 1.0)), "small": draw.choice((0, 0, 7, 30)),
            "eager": draw.random() < 0.5, **options,
        }  # fmt: skip
        named |= {"metadata": engine.parts.metadata, "track": self._track and draw.random() < 0.8}
        job = Job(verb, str(self._gallery), store, named, **options)
        return Running(job, self._folder / f"result-{next(self._results)}")

    def _ended(self, running):
        outcome, verb = running.wait(LONGEST), running.job.verb
        self.lived.verbs[verb] += outcome.state == "done"
        if outcome.state == "failed":
            self.violate(f"{verb}: {outcome.what}")
        if outcome.state == "refused":
            self.lived.refused[f"{verb}: {outcome.what[:160]}"] += 1
        return outcome

    def _settle(self):
        """Pause the app, sync, go on with what was begun, and compare."""
        with self._rival.paused():
            if self._pending:
                self._after(self._pending, self._until_done(self._pending, blows=0))
            self._rival.follow()
            for what in app_violations(self.engine, self.truth, "before a sync: "):
                self.violate(what)
            outcome = self._until_done("settle", blows=0)
            if outcome.state != "done":
                self.violate(f"settle: {outcome.what}")
                return
            self._rival.follow()
            for what in violations(self.engine, self.truth, outcome.what, self._gallery):
                self.violate(what)
            self.lived.checks += 1

    def _end(self):
        """Abort, or retire the version before a cutover, and compare."""
        verb = "retire" if self.truth.space == "v2" else "abort"
        options = {"drop": self._draw.random() < 0.5} if verb == "retire" else {}
        with self._quietly(True):
            outcome = self._until_done(verb, blows=3, **options)
            self._after(verb, outcome if outcome.state == "done" else Outcome("over"))
        if outcome.state != "done" and verb == "retire":
            self.violate(f"retire: {outcome.what}")
        if outcome.state == "done" and options.get("drop"):
            self._nothing_left("retire")
        if not self.lived.violations:
            self._settle()
