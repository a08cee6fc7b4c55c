"""Memory of the C library's allocator, kept small beside Lance's threads."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_arenas() -> None:
    """Let threads share as many arenas of glibc as there are processors, unless the environment says how many.

    glibc makes eight times as many, and each keeps what its threads have freed. Lance reads in many threads, so the
    peak of an upgrade over wide vectors would grow with the vectors it has read.
    """
    if "MALLOC_ARENA_MAX" not in os.environ and (change := _of_glibc("mallopt")) is not None:
        change(_M_ARENA_MAX, max(os.cpu_count() or 1, 2))


def give_back() -> None:
    """Give unused memory back to the system: what the allocators keep of one batch does not fit the next one."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


@cache
def _of_glibc(name: str) -> Any:
    """A function of glibc; None where the C library is another one."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
