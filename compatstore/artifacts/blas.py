"""Batches side by side: one BLAS thread each, as many at once as BLAS would have used.

Several threads on one matrix product leave a core idle while the other adds biases, reads and writes; several
products at once do not. And a product's last bits then never depend on how many threads it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import threadpoolctl


@contextmanager
def one_thread_each() -> Iterator[int]:
    """Hold NumPy's BLAS to one thread; gives the number of threads that it was set to, 1 or more.

    The setting is one for the whole process, so callers at the same time share it: the first one makes it, the last
    one takes it back.
    """
    threads = _hold()
    try:
        yield threads
    finally:
        _release()


_lock = Lock()
_holders = 0
_threads = 1
_limit: Any = None


def _hold() -> int:
    global _holders, _threads, _limit
    with _lock:
        if not _holders:
            _threads = max([library["num_threads"] for library in _controller().info()], default=1)
            _limit = _controller().limit(limits=1)
        _holders += 1
        return _threads


def _release() -> None:
    global _holders, _limit
    with _lock:
        _holders -= 1
        if not _holders:
            _limit.restore_original_limits()
            _limit = None


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")
