"""Verbs in processes of their own, forked from one that has imported everything."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from stores.lives import settled
from stores.lives.world import LEARN, target

import compatstore as cs
from compatstore.errors import CompatStoreError
from compatstore.stores import link, sync

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["stores.lives.jobs", "lancedb", "compatstore.trainers", "sqlite3"])
TRACED = (f"{os.sep}compatstore{os.sep}stores{os.sep}", f"{os.sep}compatstore{os.sep}gallery{os.sep}")


@dataclass(frozen=True)
class Job:
    """A verb.

    Attributes:
        verb: Its name.
        gallery: Path of the gallery.
        store: Address of the collection.
        named: Arguments of the mirror.
        share: Of an upgrade.
        drop: Of a retirement: also the app's own vectors.
        small: Rows of a write, or 0 for the usual number.
        eager: True to sync as often as an upgrade can.
        dies_at: Number of the line of code, each counted once, at which the process kills itself; 0 for never.
    """

    verb: str
    gallery: str
    store: str
    named: dict
    share: float = 0.5
    drop: bool = False
    small: int = 0
    eager: bool = False
    dies_at: int = 0


@dataclass
class Outcome:
    """The end of a job.

    Attributes:
        state: "done", "refused", "failed" or "killed".
        what: Error, or what it gave.
        lines: Number of lines of code that ran, each counted once.
        seconds: Duration.
    """

    state: str
    what: object = ""
    lines: int = 0
    seconds: float = 0.0
    at: str = ""


@dataclass
class Lines:
    """Lines of the code of stores that ran, each counted once."""

    dies_at: int
    seen: set = field(default_factory=set)

    def called(self, frame, event, argument):
        return self.line if any(part in frame.f_code.co_filename for part in TRACED) else None

    def line(self, frame, event, argument):
        at = frame.f_code, frame.f_lineno
        if at not in self.seen:
            self.seen.add(at)
            if len(self.seen) == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.line


def perform(job, result):
    """Run a job, and write its outcome to a file."""
    warnings.simplefilter("ignore")
    began, lines = time.monotonic(), Lines(job.dies_at)
    if job.small:
        sync.ROWS = sync.WRITTEN = job.small
    if job.eager:
        link.BETWEEN, link.SHARE = 0.3, 0
    stacks = Path(f"{result}.stacks").open("w")  # noqa: SIM115  (for a signal, until the process ends)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    sys.settrace(lines.called)
    try:
        outcome = Outcome("done", verb(job))
    except CompatStoreError as error:
        outcome = Outcome("refused", f"{type(error).__name__}: {error}")
    except BaseException:
        outcome = Outcome("failed", traceback.format_exc())
    sys.settrace(None)
    outcome.lines, outcome.seconds = len(lines.seen), time.monotonic() - began
    part = Path(f"{result}.part")
    part.write_bytes(pickle.dumps(outcome))
    os.replace(part, result)
    sys.stdout.flush()
    os._exit(0)  # a store's threads do not keep the process


def verb(job):
    """Run the verb of a job."""
    if job.verb == "mirror":
        return len(cs.Gallery.mirror(job.store, job.gallery, "v1", **job.named))
    gallery = cs.Gallery.open(job.gallery)
    if job.verb == "sync":
        return vars(gallery.sync())
    if job.verb == "upgrade":
        return vars(gallery.upgrade(target(), backfill=job.share, learn=LEARN))
    if job.verb == "evaluate":
        return str(gallery.evaluate("v2", sample=40))
    if job.verb == "verify":
        return [finding.what for finding in gallery.maintenance.verify().findings]
    if job.verb == "retire":
        return gallery.retire("v1", drop_adopted=job.drop).store
    if job.verb in ("cutover", "rollback", "abort"):
        return getattr(gallery, job.verb)("v2").active
    assert job.verb == "settle"
    return settled.settle(gallery, job.share)


class Running:
    """A job at work.

    Args:
        job: The job.
        result: Path of its outcome.
    """

    def __init__(self, job, result):
        self.job, self._result = job, result
        self.process = CONTEXT.Process(target=perform, args=(job, str(result)), daemon=True)
        self.process.start()

    def signal(self, number):
        """Send a signal; False if it has ended."""
        if not self.process.is_alive() or self._result.exists():
            return False
        os.kill(self.process.pid, number)
        return True

    def wait(self, seconds):
        """Outcome of the job; "failed" if it does not end in time."""
        self.process.join(seconds)
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)
            time.sleep(2)
            self.process.kill()
            self.process.join()
            stacks = Path(f"{self._result}.stacks").read_text()
            return Outcome("failed", f"{self.job.verb} did not end in {seconds:g} s: {stacks}")
        if self._result.exists():
            return pickle.loads(self._result.read_bytes())
        return Outcome("killed")
