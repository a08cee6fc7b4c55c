"""Threads share as many arenas of malloc as there are processors."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

ARENAS = """
import ctypes, sys, threading
import compatstore
compatstore.Gallery
held, barrier = [], threading.Barrier(24)
def work():
    barrier.wait()
    held.append([bytearray(5000) for _ in range(50)])
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(24)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def arenas(path, **environment):
    subprocess.run([sys.executable, "-c", ARENAS, str(path)], env=os.environ | environment, check=True)
    return len(re.findall(r"<heap nr=", path.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_threads_share_the_arenas_of_malloc(tmp_path):
    assert arenas(tmp_path / "shared") <= max(os.cpu_count(), 2)
    assert arenas(tmp_path / "named", MALLOC_ARENA_MAX="7") == 7
