"""The engine in this process, which others extend.

An engine runs jobs and returns their results. A job reads the table and may write a file that no table version
names. Commits, the lease, the budget and the account stay with the process that runs the upgrade, the driver. So a job
may be lost at any moment and be done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeAlias, TypeVar

from compatstore import next_step
from compatstore.errors import UpgradeError
from compatstore.storage.fragments import WAVE_ROWS
from compatstore.storage.store import Store

LOSSES = 10  # workers that one job may lose before it is the job that kills them
Advance: TypeAlias = Callable[[int], None]


class Job(Protocol):
    """Input of one call; it pickles."""

    @property
    def rows(self) -> int:
        """Rows that are read for it."""


AJob = TypeVar("AJob", bound=Job)
Shared = TypeVar("Shared")
Made = TypeVar("Made")
Task = TypeVar("Task")
JobFunction: TypeAlias = Callable[[Store, Shared, AJob, Advance], Made]


def lost_again_and_again(operation: str) -> UpgradeError:
    """The error of a job that has lost `LOSSES` workers."""
    return UpgradeError(
        operation,
        expected="a worker that lives until it is done",
        found=f"{LOSSES} that were lost over it",
        fix="See whether they ran out of memory, in Ray's logs (by default /tmp/ray/session_latest/logs). Batches "
        f"committed before are kept; {next_step.same()} goes on from here, with "
        f"{next_step.option('engine', 'local', within='RunSettings')} too.",
    )


class Pool(Generic[Task, Made]):
    """Workers that do one kind of task in parallel: one in this process, which works when its result is requested.

    Args:
        work: Does a task.

    Attributes:
        size: Tasks that may be under way at the same time, >= 1.
    """

    size = 1

    def __init__(self, work: Callable[[Task], Made]) -> None:
        self._work = work

    def begin(self, task: Task) -> Callable[[], Made]:
        """Hand out a task.

        Returns:
            A function that waits for the task and gives its result, or re-raises its error. A task whose worker was
            lost is done by another one; `UpgradeError` is raised where that happens again and again.
        """
        return lambda: self._work(task)


class Engine:
    """Runs the jobs of an upgrade: in this process, one after the other, each with all cores."""

    def run(
        self, work: JobFunction[Shared, AJob, Made], store: Store, shared: Shared, jobs: deque[AJob], advance: Advance
    ) -> Iterator[list[tuple[AJob, Made | None]]]:
        """Do all jobs, those included that are added to the queue meanwhile.

        Args:
            work: Does one job: (table, shared, job, advance) -> made. It reads the table's latest version.
            store: The table.
            shared: Data that all jobs need; it is sent once.
            jobs: They are taken from the left. The caller may add to them, and clear them to end early: what is under
                way is then finished and given.
            advance: Called with the rows that a job has completed so far, if the engine supports it.

        Yields:
            Results since the last time, with their jobs; None for a job whose worker was lost, and which may have
            left a file. The list is empty where nothing came for a while, so that the caller may look around. Here
            those of neighbouring small fragments are given together.
        """
        while jobs:
            wave = [jobs.popleft()]
            while jobs and sum(job.rows for job in wave) + jobs[0].rows <= WAVE_ROWS:
                wave.append(jobs.popleft())
            yield [(job, work(store, shared, job, advance)) for job in wave]

    def pool(self, work: Callable[[Task], Made]) -> AbstractContextManager[Pool[Task, Made]]:
        """Workers for a block.

        Args:
            work: Does a task, in whatever process; it pickles, and loads its model with the first task there.
        """
        return nullcontext(Pool(work))
