"""A process of the shell keeps little of the memory that its threads have freed: glibc has an arena a core."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.full

# Threads that allocate at the same time; then glibc lists its arenas.
PROGRAM = """
import ctypes, threading
from compatstore.cli import app
if {begins}:
    app.app = lambda **_: None
    app.main()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fdopen.restype = ctypes.c_void_p, ctypes.c_void_p
libc.malloc_info.argtypes, libc.fflush.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
barrier = threading.Barrier(64)
def work():
    barrier.wait()
    libc.malloc(4096)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(64)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


def arenas(*, begins, **environment):
    program = PROGRAM.format(begins=begins)
    inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return len(re.findall(r"<heap nr=", done.stdout))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc of another library")
def test_the_program_has_an_arena_a_core_unless_the_user_says_otherwise():
    cores = max(os.cpu_count() or 1, 2)
    assert 1 <= arenas(begins=True) <= cores < arenas(begins=False)
    assert arenas(begins=True, MALLOC_ARENA_MAX="64") > cores
