"""The protocol of engines, and the local engine.

An engine runs jobs and gives back what they made. A job reads the table and may write a file that no table version
names. Commits, the lease, the budget and the account stay with the process that runs the upgrade, the driver. So a job
may be lost at any moment and be done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from compatstore import next_step
from compatstore.errors import UpgradeError
from compatstore.storage.fragments import WAVE_ROWS
from compatstore.storage.store import Store

LOSSES = 10  # workers that one job may lose before it is the job that kills them
Advance: TypeAlias = Callable[[int], None]


class Job(Protocol):
    """What one call works on; it pickles."""

    @property
    def rows(self) -> int:
        """Rows that are read for it."""


AJob = TypeVar("AJob", bound=Job)
Shared = TypeVar("Shared")
Made = TypeVar("Made")
Task = TypeVar("Task")
Task_in = TypeVar("Task_in", contravariant=True)
Made_out = TypeVar("Made_out", covariant=True)
JobFunction: TypeAlias = Callable[[Store, Shared, AJob, Advance], Made]


class Worker(Protocol[Task_in, Made_out]):
    """Does one kind of task, over and over, with what it has loaded once."""

    def do(self, task: Task_in) -> Made_out:
        """Do one."""


class Recipe(Protocol[Task_in, Made_out]):
    """How a worker is made, in whatever process; it pickles."""

    def make(self) -> Worker[Task_in, Made_out]:
        """Make it: load its model."""


class Pool(Protocol[Task_in, Made_out]):
    """Workers that do one kind of task side by side."""

    @property
    def size(self) -> int:
        """Tasks that may be under way at the same time, >= 1."""

    def begin(self, task: Task_in) -> Callable[[], Made_out]:
        """Hand out a task.

        Returns:
            A function that waits for the task and gives its result, or raises what it raised. A task whose worker was
            lost is done by another one; `UpgradeError` is raised where that happens again and again.
        """


class Engine(Protocol):
    """Runs the jobs of an upgrade."""

    def run(
        self, work: JobFunction[Shared, AJob, Made], store: Store, shared: Shared, jobs: deque[AJob], advance: Advance
    ) -> Iterator[list[tuple[AJob, Made | None]]]:
        """Do all jobs, those included that are added to the queue meanwhile.

        Args:
            work: Does one job: (table, shared, job, advance) -> made. It reads the table's latest version.
            store: The table.
            shared: What all jobs need; it is handed out once.
            jobs: They are taken from the left. The caller may add to them, and clear them to end early: what is under
                way is then finished and given.
            advance: Told the rows that a job has done while it is at work, where the engine hears of them.

        Yields:
            What was made since the last time, with its jobs; None for a job whose worker was lost, and which may have
            left a file. The list is empty where nothing came for a while, so that the caller may look around.
        """

    def pool(self, recipe: Recipe[Task, Made]) -> AbstractContextManager[Pool[Task, Made]]:
        """Workers for a block."""


def lost_again_and_again(asked: str) -> UpgradeError:
    """The error of a job that has lost `LOSSES` workers."""
    return UpgradeError(
        asked,
        expected="a worker that lives until it is done",
        found=f"{LOSSES} that were lost over it",
        fix="See whether they ran out of memory, in Ray's logs (by default /tmp/ray/session_latest/logs). What was "
        f"committed before is kept; {next_step.same()} goes on from here, with "
        f"{next_step.option('engine', 'local', within='RunSettings')} too.",
    )


class LocalEngine:
    """Runs jobs in this process, one after the other; each uses all cores by itself."""

    def run(
        self, work: JobFunction[Shared, AJob, Made], store: Store, shared: Shared, jobs: deque[AJob], advance: Advance
    ) -> Iterator[list[tuple[AJob, Made | None]]]:
        """Do all jobs, see `Engine.run`; those of neighbouring small fragments are given together."""
        while jobs:
            wave = [jobs.popleft()]
            while jobs and sum(job.rows for job in wave) + jobs[0].rows <= WAVE_ROWS:
                wave.append(jobs.popleft())
            yield [(job, work(store, shared, job, advance)) for job in wave]

    def pool(self, recipe: Recipe[Task, Made]) -> AbstractContextManager[Pool[Task, Made]]:
        """One worker in this process, which works when its result is asked for, in the asker's thread."""
        return nullcontext(_LocalPool(recipe.make()))


@dataclass(frozen=True)
class _LocalPool(Generic[Task, Made]):
    """One worker in this process."""

    worker: Worker[Task, Made]

    @property
    def size(self) -> int:
        return 1

    def begin(self, task: Task) -> Callable[[], Made]:
        return lambda: self.worker.do(task)
