"""Verbs for async apps: `await gallery.aio.search(...)` is `gallery.search(...)` in a thread beside the event loop.

Lance reads and writes in its own threads and releases Python's lock meanwhile, so a thread is all that a verb needs for
the loop to go on. There is one mechanism for all verbs and no second implementation: arguments, results and errors are
those of the verb.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any

from compatstore.boundary import fitted
from compatstore.errors import CompatStoreError
from compatstore.tracebacks import cut

STOP = "should_stop"  # parameter of the verbs that can be stopped


class Aio:
    """Attribute that gives the verbs of an object, or of its class, as coroutines.

    Examples:
        >>> import asyncio
        >>> asyncio.run(gallery.aio.search([0.0, 1.0], k=1, columns=["id"]))["id"].to_pylist()
        ['a']
    """

    def __get__(self, instance: Any, owner: type) -> Verbs:
        return Verbs(owner if instance is None else instance)


class Verbs:
    """The verbs of an object, each as a coroutine with the same arguments, results and errors.

    A verb runs in the loop's default executor, whose size the app sets (`loop.set_default_executor`). If the await is
    cancelled before a thread is free, nothing happens; after that the thread finishes the call, so that a write is made
    as a whole or not at all.

    A verb that takes `should_stop` may work for hours and runs in a thread of its own. If its await is cancelled, a
    stop is requested, and the await ends after the current batch; a second cancellation ends the await at once.
    `progress` and `should_stop` are called in that thread.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        member = getattr(self._owner, name)
        if inspect.isroutine(member):
            return coroutine(member)
        if not callable(member) and name in ("artifacts", "maintenance"):
            return Verbs(member)
        raise AttributeError(f"{name} is no verb: read it without aio", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._owner) if not name.startswith("_") and name != "aio"]


def coroutine(verb: Callable[..., Any]) -> Callable[..., Coroutine[None, None, Any]]:
    """Make the async form of a verb."""
    stoppable = STOP in inspect.signature(verb).parameters

    @wraps(verb)
    async def call(*args: Any, **options: Any) -> Any:
        try:
            if stoppable:
                return await _stopped_when_cancelled(verb, args, options)
            return await asyncio.to_thread(verb, *args, **options)
        except CompatStoreError as error:
            cut(error)
            raise

    return call


def method_beside(method: Callable[..., Any]) -> Callable[..., Coroutine[None, None, Any]]:
    """Make the async form of a method, for classes whose protocol has a name for it."""

    @wraps(method)
    async def call(self: Any, /, *args: Any, **options: Any) -> Any:
        return await coroutine(getattr(self, method.__name__))(*args, **options)

    return call


async def _stopped_when_cancelled(verb: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    cancelled = threading.Event()
    (stop,) = fitted(verb, **{STOP: options.get(STOP)})
    options[STOP] = lambda: cancelled.is_set() or (stop is not None and stop())
    alone = ThreadPoolExecutor(1, thread_name_prefix="compatstore-async")
    work = asyncio.get_running_loop().run_in_executor(alone, partial(copy_context().run, verb, *args, **options))
    alone.shutdown(wait=False)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled.set()
        work.add_done_callback(asyncio.Future.exception)  # retrieved, or asyncio logs it as lost
        await asyncio.wait([work])
        raise
