"""Costs and time limits of encoder calls: reported by the encoder, read by its caller.

A paid encoder reports the bill of each answer, and checks the allowance before it pays for the same answer again. An
encoder that waits for a rate limit waits through its caller, which may have a request to stop. All use the meter
of the call, so an encoder within an encoder, or a plain function, reports to the caller like any other.

A time limit of a socket is for each read alone: an endpoint that sends a byte now and then holds a request for ever.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput

if TYPE_CHECKING:
    import urllib3


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Bill:
    """A bill of encoder calls.

    Args:
        items: Sources that were embedded.
        tokens: Tokens that were counted.
        cost: Money; None if the price is unknown, then `price_per_item` of the backfill counts.

    Raises:
        InvalidInput: A number is below 0.

    Examples:
        >>> cs.encoders.Bill(items=2, tokens=9, cost=0.5) + cs.encoders.Bill(items=1, tokens=3, cost=0.25)
        Bill(items=3, tokens=12, cost=0.75)
    """

    items: int = 0
    tokens: int = 0
    cost: float | None = None

    def __post_init__(self) -> None:
        if self.items < 0 or self.tokens < 0 or not 0 <= (self.cost or 0.0) < inf:
            raise InvalidInput("bill a call of an encoder", expected="finite numbers of 0 or more", found=f"{self}")

    def __add__(self, other: Bill) -> Bill:
        unknown = self.cost is None and other.cost is None
        cost = None if unknown else (self.cost or 0.0) + (other.cost or 0.0)
        return Bill(items=self.items + other.items, tokens=self.tokens + other.tokens, cost=cost)


@runtime_checkable
class Metered(Protocol):
    """An encoder that estimates the cost of a call, and charges its bills to the `meter` of the call.

    Attributes:
        request_rows: Most sources of one request: a backfill's batch is one request by default.

    Examples:
        >>> isinstance(cs.encoders.Precomputed({"a": [0.0, 1.0]}), cs.encoders.Metered)
        False
    """

    @property
    def request_rows(self) -> int: ...  # noqa: D102

    def expected_bill(self, sources: Sequence[Any]) -> Bill:
        """Estimate the cost of these sources, without a request; a cost of None if the price is unknown."""
        ...


class Meter:
    """Counts what one call is billed and how long it has waited.

    Args:
        sleep: Waits the given seconds; raises if a stop is requested.
        patience: Seconds that the call may wait in all.
        money: Most money for the call, as far as its cost is known beforehand.
        around: The meter of the call that this one is made in, whose money this call spends too.

    Attributes:
        bill: The bill so far.
        waited: Seconds that the encoder has waited, the wait that it is in included.

    Examples:
        >>> with cs.encoders.metered(patience=2.0) as call:
        ...     cs.encoders.meter().rest(0.01)
        >>> call.waited, call.may_rest(5.0)
        (0.01, False)
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        patience: float = inf,
        money: float = inf,
        around: Meter | None = None,
    ) -> None:
        self._sleep, self._around, self.patience, self.money = sleep, around, patience, money
        self.bill, self.waited = Bill(), 0.0

    def charge(self, bill: Bill) -> None:
        """Add the bill of an answer."""
        self.bill += bill

    def may_rest(self, seconds: float) -> bool:
        """True if the caller is ready to wait that long."""
        return self.waited + seconds <= self.patience

    def may_pay(self, bill: Bill) -> bool:
        """True if the caller is ready to be billed that much more."""
        whole = self.bill + bill
        return (whole.cost or 0.0) <= self.money and (self._around is None or self._around.may_pay(whole))

    def rest(self, seconds: float) -> None:
        """Wait for a rate limit, or before another try.

        Raises:
            Interrupted: A stop was requested.
        """
        self.waited += seconds
        self._sleep(seconds)


_METER: ContextVar[Meter | None] = ContextVar("compatstore_meter", default=None)


def meter() -> Meter:
    """The meter of the current encoder call; an unused one if the caller set none.

    Examples:
        >>> def embed(texts):
        ...     cs.encoders.meter().charge(cs.encoders.Bill(items=len(texts), cost=0.001 * len(texts)))
        ...     return [[float(len(text))] for text in texts]
        >>> paid = cs.encoders.Function(embed, dim=1, fingerprint="length")
        >>> with cs.encoders.metered() as call:
        ...     _ = paid.encode(["a", "abc"])
        >>> call.bill
        Bill(items=2, tokens=0, cost=0.002)
    """
    return _METER.get() or Meter()


@contextmanager
def metered(sleep: Callable[[float], None] = time.sleep, patience: float = inf, money: float = inf) -> Iterator[Meter]:
    """Meter the calls of encoders within this block; a meter around the block is charged as well.

    Args:
        sleep: Function that waits, see `Meter`.
        patience: Seconds that they may wait in all.
        money: Most money for them, see `Meter`.

    Examples:
        >>> with cs.encoders.metered() as call:
        ...     _ = cs.encoders.Precomputed({"a": [0.0, 1.0]}).encode(["a"])
        >>> call.bill
        Bill(items=0, tokens=0, cost=None)
    """
    outer = _METER.get()
    call = Meter(sleep, patience, money, outer)
    token = _METER.set(call)
    try:
        yield call
    finally:
        _METER.reset(token)
        if outer is not None:
            outer.charge(call.bill)


_HERE = threading.local()  # the connections that this thread's request has used


@contextmanager
def deadline(seconds: float) -> Iterator[Callable[[], bool]]:
    """Cut the connections that are used inside when the time is over; gives a function that is True from then on."""
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


def pool_of(url: str, proxy: str | None, timeout: float) -> urllib3.PoolManager:
    """A pool whose connections to a host a `deadline` can cut.

    Args:
        url: Address on that host.
        proxy: Address of a proxy, or None.
        timeout: Seconds to connect, and for each read.
    """
    import urllib3

    settings: dict[str, Any] = {"retries": False, "timeout": timeout}
    manager = urllib3.ProxyManager(proxy, **settings) if proxy else urllib3.PoolManager(**settings)
    pool = manager.connection_from_url(url)
    pool.ConnectionCls = type("Connection", (_Known, pool.ConnectionCls), {})
    return manager
