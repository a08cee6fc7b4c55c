"""The right to write of whoever holds a lease.

What is written under a fence is read first, then the lease is looked at, then it is committed from what was read. So a
manager that is suspended between the look and the commit comes too late: whatever its successor committed is newer
than what it read, and Lance refuses the commit. Files beside the table are no commits; they belong to one lease by
their names (`lease_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fence:
    """One lease, as those see it who write under it.

    Attributes:
        target: The upgrade that the lease is of.
        number: Of the lease: each lease of an upgrade has a higher one than all before.
        require: Raises where the lease is lost; nothing more may be written then.
    """

    target: str
    number: int
    require: Callable[[], None]
