"""A deadline for a whole HTTP request: connections that are cut when it passes, whatever trickles in meanwhile.

A time limit of a socket is for each read alone: an endpoint that sends a byte now and then holds a request for ever.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import urllib3

_HERE = threading.local()  # the connections that this thread's request has used


@contextmanager
def deadline(seconds: float) -> Iterator[Callable[[], bool]]:
    """Cut the connections that are used inside when the time is over; gives what says whether it is."""
    used: list[Any] = []
    over = threading.Event()

    def cut() -> None:
        over.set()
        for connection in used:
            with suppress(OSError, AttributeError, ValueError):  # it ends, or has no socket yet
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    _HERE.used = used
    timer.start()
    try:
        yield over.is_set
    finally:
        timer.cancel()
        _HERE.used = None


class _Known:
    """A connection that the deadline of its thread's request can cut."""

    def request(self, *args: Any, **options: Any) -> None:
        used = getattr(_HERE, "used", None)
        if used is not None:
            used.append(self)
        super().request(*args, **options)  # type: ignore[misc]


def pool_of(proxy: str | None, timeout: float) -> urllib3.PoolManager:
    """A pool whose connections a `deadline` can cut.

    Args:
        proxy: Address of a proxy, or None.
        timeout: Seconds to connect, and for each read.
    """
    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class Plain(_Known, HTTPConnection):
        pass

    class Secure(_Known, HTTPSConnection):
        pass

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    manager = (
        urllib3.ProxyManager(proxy, retries=False, timeout=timeout)
        if proxy
        else urllib3.PoolManager(retries=False, timeout=timeout)
    )
    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return manager
