"""Writes under a lease: the fence that each write passes, and the files beside the table that belong to one lease.

A write under a fence has three steps: read a table version, check the lease, commit on top of the version that was
read. A manager that is suspended after the check commits too late: its successor has committed since, and Lance refuses
a commit whose version is older.

Files beside the table are not commits; the number of their lease is in their names. A manager that lost its lease
writes to its own files, if it still writes at all. Its successor reads the files of the leases before its own and
writes to others, so neither takes anything from the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from compatstore.storage.files import FOLDER, Files
from compatstore.storage.location import Location


@dataclass(frozen=True)
class Fence:
    """One lease, as the writers under it use it.

    Attributes:
        target: The upgrade that the lease is of.
        number: Of the lease: each lease of an upgrade has a higher one than all before.
        require: Raises where the lease is lost; nothing more may be written then.
    """

    target: str
    number: int
    require: Callable[[], None]


LEDGER, STAGED = ("ledger", ".arrow"), ("staged", ".lance")
_NAME = re.compile(r"(?P<kind>ledger|staged)-(?P<target>[^-]+)-(?P<number>\d+)(?P<suffix>\.arrow|\.lance)")


class LeaseFiles:
    """The files of one kind of one upgrade, those of earlier leases too.

    Args:
        location: The gallery.
        kind: `LEDGER` or `STAGED`.
        target: The upgrade's target.
        fence: The lease that is written under; None for those who only read, who read all leases' files.

    Attributes:
        files: The folder.
        number: Of the lease, 0 without one.
        own: Name of the file that is written.
    """

    def __init__(self, location: Location, kind: tuple[str, str], target: str, fence: Fence | None) -> None:
        self.files = Files(location, FOLDER)
        self._kind, self._target, self._fence = kind, target, fence
        self.number = 0 if fence is None else fence.number
        self.own = self._named(self.number)

    def names(self, since: int = 0) -> list[str]:
        """Names of the files that are there, the latest lease's last; none of leases later than the fence's.

        Args:
            since: Number of the first lease whose files are named, beside one's own.
        """
        numbers = (_number(name, self._kind, self._target) for name in self.files.names())
        last = math.inf if self._fence is None else self.number
        counts = (n for n in numbers if n is not None and (since <= n <= last or n == self.number))
        return [self._named(n) for n in sorted(counts)]

    def require_entitled(self) -> None:
        """Look whether the lease is held; to be called before each write.

        Raises:
            LeaseLost: It is not.
        """
        if self._fence is not None:
            self._fence.require()

    def _named(self, number: int) -> str:
        kind, suffix = self._kind
        return f"{kind}-{self._target}-{number}{suffix}"


def last_number(location: Location, target: str) -> int:
    """The highest number of a lease of an upgrade that a file is named by, 0 where there is none."""
    names = Files(location, FOLDER).names()
    numbers = [_number(name, kind, target) for name in names for kind in (LEDGER, STAGED)]
    return max((number for number in numbers if number is not None), default=0)


def target_of(name: str, kind: tuple[str, str]) -> str | None:
    """The upgrade's target that a file of a kind belongs to; None where it is none of that kind."""
    found = _NAME.fullmatch(name)
    return found["target"] if found is not None and (found["kind"], found["suffix"]) == kind else None


def _number(name: str, kind: tuple[str, str], target: str) -> int | None:
    found = _NAME.fullmatch(name)
    return int(found["number"]) if found is not None and target_of(name, kind) == target else None
