"""Work on one batch while the next one is read and the one before is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Named = TypeVar("Named")
Read = TypeVar("Read")
Made = TypeVar("Made")
Written = TypeVar("Written")


def overlap(
    take: Callable[[], Named | None],
    read: Callable[[Named], Read],
    work: Callable[[Read], Made],
    write: Callable[[Made], Written],
) -> Iterator[Written]:
    """Give what `write` returned for each batch, in order.

    `take` and `work` run in the caller's thread, `read` and `write` in one thread each. A batch is written before the
    one after the next is worked on. When anything raises, or the caller stops, what was worked on is written first.

    Args:
        take: Names the next batch, or None where there is none now; asked once more after the batch at hand.
        read: Reads it.
        work: Works on what was read.
        write: Writes what came out.
    """
    with ThreadPoolExecutor(1, "compatstore-read") as reader, ThreadPoolExecutor(1, "compatstore-write") as writer:

        def read_next() -> Future[Read] | None:
            named = take()
            return None if named is None else reader.submit(read, named)

        ahead = read_next()
        behind: Future[Written] | None = None
        while ahead is not None:
            batch, ahead = ahead.result(), read_next()
            made = work(batch)
            written = behind
            if written is not None:
                written.result()  # raises here what its thread raised, before more is made
            behind = writer.submit(write, made)
            if written is not None:
                yield written.result()
            ahead = ahead or read_next()
        if behind is not None:
            yield behind.result()
