"""How many processors the demo takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold torch to one thread within a block, and give the caller's number back after it.

    Networks this small gain next to nothing from a second thread, and on a machine that is busy with other programs
    the threads wait for each other: a short run took 38 s with two threads and 20 s with one.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
