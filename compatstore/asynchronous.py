"""Verbs for async apps: `await gallery.search_async(...)` is `gallery.search(...)` in a thread beside the event loop.

Lance reads and writes in its own threads and lets Python's lock go meanwhile, so a thread is all that a verb needs for
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
from typing import Concatenate, ParamSpec, TypeVar

from compatstore.boundary import bare, fitted
from compatstore.errors import CompatStoreError
from compatstore.tracebacks import cut

Owner = TypeVar("Owner")
Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
STOP = "should_stop"  # parameter of the verbs that can be stopped


def awaited(
    verb: Callable[Concatenate[Owner, Parameters], Answer],
) -> Callable[Concatenate[Owner, Parameters], Coroutine[None, None, Answer]]:
    """Make the async form of a verb.

    Its class says `search_async = awaited(search)`. A verb runs in the loop's default executor, whose size the app sets
    (`loop.set_default_executor`). Where the await is cancelled before a thread was free, nothing happens; after that
    the thread finishes the call, so that a write is made as a whole or not at all.

    A verb that takes `should_stop` may work for hours: it runs in a thread of its own. Where its await is cancelled it
    is asked to stop, and the await ends once it has, after the batch at hand; a second cancellation ends the await at
    once. `progress` and `should_stop` are called in that thread.
    """
    name = verb.__name__
    stoppable = STOP in inspect.signature(verb).parameters

    @wraps(verb)
    async def call(self: Owner, /, *args: Parameters.args, **options: Parameters.kwargs) -> Answer:
        checked_verb = getattr(self, name)  # as its class has wrapped it since
        try:
            if stoppable:
                return await _stopped_when_cancelled(checked_verb, args, options)
            answer: Answer = await asyncio.to_thread(checked_verb, *args, **options)
        except CompatStoreError as error:
            cut(error)
            raise
        return answer

    call.__name__, call.__qualname__ = f"{name}_async", f"{verb.__qualname__}_async"
    call.__doc__ = f"Await `{name}`, which runs in a thread beside the event loop.\n\n{inspect.getdoc(verb)}"
    return bare(call)


async def _stopped_when_cancelled(
    verb: Callable[..., Answer], args: tuple[object, ...], options: dict[str, object]
) -> Answer:
    cancelled = threading.Event()
    (asked,) = fitted(verb, **{STOP: options.get(STOP)})
    options[STOP] = lambda: cancelled.is_set() or (asked is not None and asked())
    alone = ThreadPoolExecutor(1, thread_name_prefix="compatstore-async")
    work = asyncio.get_running_loop().run_in_executor(alone, partial(copy_context().run, verb, *args, **options))
    alone.shutdown(wait=False)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled.set()
        work.add_done_callback(asyncio.Future.exception)  # nobody else asks what it ended with
        await asyncio.wait([work])
        raise
