"""The Ray engine: one task for a fragment, and a pool of actors for the encoders of a backfill.

Tasks and actors read the table and write files that no table version names; they never commit. Ray itself retries
nothing: the caller, which knows what files a lost task may have left, hands it out again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any

from compatstore import next_step
from compatstore.errors import CompatStoreError, InvalidInput, MissingExtra, UpgradeError
from compatstore.storage.location import Location
from compatstore.storage.store import Store
from compatstore.upgrade.engines.engine import (
    LOSSES,
    Advance,
    AJob,
    Engine,
    JobFunction,
    Made,
    Pool,
    Shared,
    Task,
    lost_again_and_again,
)

STARTS = 4  # a node under load may not come up in the time that Ray gives it
LOOK_AROUND = 1.0  # seconds
REACH = 10.0  # seconds that an address may take to answer


@dataclass(eq=False)
class RayEngine(Engine):
    """Runs jobs on a Ray cluster: the connected one, the one at an address, or a local one.

    A local cluster is started when the first job is there, and ends with the `with` block.

    Args:
        address: Address of a cluster (HOST:PORT, or auto for the one on this machine); None for a local one.
        encoders: Actors that embed a backfill's batches side by side, each with the model loaded once.
        num_gpus: GPUs that each of them takes, and each task of the hop where its network runs on one.
        on_gpu: Whether the hop's network does.
    """

    address: str | None = None
    encoders: int = 1
    num_gpus: float | None = None
    on_gpu: bool = False
    _ours: bool = field(default=False, init=False)

    def __enter__(self) -> RayEngine:
        if find_spec("ray") is None:
            raise MissingExtra("ray", "ray")
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ray.shutdown()

    def run(
        self, work: JobFunction[Shared, AJob, Made], store: Store, shared: Shared, jobs: deque[AJob], advance: Advance
    ) -> Iterator[list[tuple[AJob, Made | None]]]:
        """Do all jobs, see `Engine.run`; results that are ready at the same time are returned together.

        Raises:
            UpgradeError: The cluster cannot be started or reached, or lacks a requested GPU.
        """
        if not jobs:
            return
        ray, gpus = self._ray, (1.0 if self.num_gpus is None else self.num_gpus) if self.on_gpu else 0.0
        self._require_gpus(gpus)
        resources = {"num_cpus": 1, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        task = ray.remote(_do).options(name="compatstore job", max_retries=0, **resources)
        held = [_handed_out(ray, shared)]
        running: dict[Any, AJob] = {}
        try:
            while jobs or running:
                while jobs and len(running) < self._slots():
                    job = jobs.popleft()
                    running[task.remote(work, store.location, held, job)] = job
                made = [(running.pop(ref), _result_or_none(ray, ref)) for ref in _ready(ray, list(running))]
                for _, outcome in made:
                    advance(getattr(outcome, "rows", 0))
                yield made
        finally:
            for ref in running:
                ray.cancel(ref, force=True)
            _await_the_end(ray, list(running))

    @contextmanager
    def pool(self, work: Callable[[Task], Made]) -> Iterator[_RayPool[Task, Made]]:
        """Actors that do one kind of task.

        Raises:
            UpgradeError: The cluster cannot be started or reached, or lacks a requested GPU.
            InvalidInput: The work does not pickle: of an encoder without a spec.
        """
        gpus = self.num_gpus or 0.0
        ray = self._ray
        self._require_gpus(gpus)
        actors = _RayPool[Task, Made](ray, _handed_out(ray, work), self.encoders, gpus)
        try:
            yield actors
        finally:
            actors.close()

    @cached_property
    def _ray(self) -> Any:
        """Ray, connected."""
        import ray

        if not ray.is_initialized():
            connect(self.address)
            self._ours = True
        return ray

    def _slots(self) -> int:
        """Tasks that are handed out at the same time: two for each core, so that none waits for the driver."""
        return max(int(2 * self._ray.cluster_resources().get("CPU", 1)), 2)

    def _require_gpus(self, gpus: float) -> None:
        there = self._ray.cluster_resources().get("GPU", 0.0) if gpus else 0.0
        if there < gpus:
            raise UpgradeError(
                "run an upgrade on Ray",
                expected=f"{gpus:g} GPUs for each task or actor",
                found=f"a cluster with {there:g}",
                fix=f"Join one that has them ({next_step.option('address', within='RunSettings')}), or request fewer: "
                f"{next_step.option('num_gpus', within='RunSettings')}.",
            )


class _RayPool(Pool[Task, Made]):
    """Actors that do one kind of task, each one at a time.

    Args:
        ray: Ray, connected.
        work: A reference to the function of a task.
        size: Number of workers.
        gpus: GPUs for each of them.
    """

    def __init__(self, ray: Any, work: Any, size: int, gpus: float) -> None:
        self.size = size
        self._ray, self._held = ray, [work]
        self._kind = ray.remote(_Actor).options(max_restarts=0, max_task_retries=0, num_cpus=1, num_gpus=gpus)
        self._actors = [self._new() for _ in range(size)]
        self._free = list(self._actors)

    def begin(self, task: Task) -> Callable[[], Made]:
        """Hand out a task to an actor that is free, see `Pool.begin`."""
        actor = self._free.pop()
        reference = actor.do.remote(task)
        return lambda: self._finish(task, actor, reference)

    def _finish(self, task: Task, actor: Any, reference: Any) -> Made:
        for _ in range(LOSSES):
            try:
                made: Made = _result(self._ray, reference)
            except _Lost:
                actor = self._replaced(actor)
                reference = actor.do.remote(task)
            else:
                self._free.append(actor)
                return made
        raise lost_again_and_again("embed a batch of the backfill")

    def close(self) -> None:
        """End the actors, whatever they do."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _new(self) -> Any:
        return self._kind.remote(self._held)

    def _replaced(self, lost: Any) -> Any:
        """Another actor in place of one that was lost, which may only be out of reach."""
        self._ray.kill(lost)
        actor = self._new()
        self._actors[self._actors.index(lost)] = actor
        return actor


class _Actor:
    """A process of its own that does one kind of task, fetched with the first one."""

    def __init__(self, held: list[Any]) -> None:
        self._held = held

    def do(self, task: Any) -> Any:
        return _shared(self._held[0])(task)


def _do(work: Callable[..., Any], location: Location, held: list[Any], job: Any) -> Any:
    """One job, in the process of a task."""
    return work(Store.open(location), _shared(held[0]), job, lambda rows: None)


@lru_cache(maxsize=1)
def _shared(reference: Any) -> Any:
    """Data shared by the jobs of a run, or the tasks of an actor: loaded and checked once in each process."""
    import ray

    return ray.get(reference)


def _handed_out(ray: Any, value: Any) -> Any:
    """A reference to a value that was put where all workers find it.

    Raises:
        InvalidInput: It does not pickle.
    """
    try:
        return ray.put(value)
    except CompatStoreError:
        raise
    except Exception as error:  # whatever an encoder's own __reduce__ raises
        raise InvalidInput(
            "send an encoder to the workers of a cluster",
            expected="an encoder with a spec, or one that pickles",
            found=f"{type(error).__name__}: {error}"[:300],
            fix='Name it by a spec ("python:package.module:attribute"), or run with '
            f"{next_step.option('engine', 'local', within='RunSettings')}.",
        ) from error


def _ready(ray: Any, references: list[Any]) -> list[Any]:
    """All that are ready now, once one is; none where nothing is ready for a while."""
    first, _ = ray.wait(references, num_returns=1, timeout=LOOK_AROUND)
    return list(ray.wait(references, num_returns=len(references), timeout=0)[0]) if first else []


class _Lost(Exception):  # noqa: N818  (a signal between this file's functions)
    """The process or the node that worked on it is gone."""


def _result(ray: Any, reference: Any) -> Any:
    """Result of a task or a call of an actor; re-raises its error.

    Raises:
        _Lost: Its process or its node is gone.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise _Lost from error


def _result_or_none(ray: Any, reference: Any) -> Any:
    """The result, or None if it is lost."""
    try:
        return _result(ray, reference)
    except _Lost:
        return None


def _await_the_end(ray: Any, references: list[Any]) -> None:
    """Wait until cancelled tasks are over, so that none of them writes a file that was just removed."""
    if references:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait(references, num_returns=len(references), timeout=REACH)


def connect(address: str | None, **options: int) -> None:
    """Join the cluster at an address, or start a local one.

    Args:
        address: Address of a cluster; None for a local one.
        **options: Further options of `ray.init`: the size of a local cluster.

    Raises:
        UpgradeError: The connection failed.
    """
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry from a gallery's host
    if address not in (None, "auto"):
        _require_answer(str(address))
    place = "join the Ray cluster at " + address if address else "start a local Ray cluster"
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", **options}
    settings |= {"address": address} if address else {"address": "local", "include_dashboard": False}
    failure = ""
    for attempt in range(STARTS if address is None else 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, about its defaults and about processes of a failed start
            try:
                ray.init(**settings)
                return
            except (Exception, SystemExit) as error:  # it also ends the process when a cluster does not answer
                failure = f"{type(error).__name__}: {error}"[:500]
                ray.shutdown()
            gc.collect()
        time.sleep(attempt)
    raise UpgradeError(
        place,
        expected="a cluster that answers",
        found=failure,
        fix=f"Nothing is lost: give {next_step.same()} again, here with "
        f"{next_step.option('engine', 'local', within='RunSettings')}.",
    )


def _require_answer(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would wait for minutes and then end this process.

    Raises:
        UpgradeError: Nothing does.
        InvalidInput: It is no address.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    operation = f"join the Ray cluster at {address}"
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(operation, expected="HOST:PORT, or auto", found=repr(address))
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()
    except OSError as error:
        raise UpgradeError(
            operation,
            expected="a cluster that answers",
            found=f"{error}",
            fix="Start one there (ray start --head --port PORT), or leave "
            f"{next_step.either(shell='run.address', python='address')} out for a local one.",
        ) from error
