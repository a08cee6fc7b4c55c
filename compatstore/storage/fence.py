"""Fences: only the holder of a lease may write.

A write under a fence has three steps: read a table version, check the lease, commit on top of the version that was
read. A manager that is suspended after the check commits too late: its successor has committed since, and Lance refuses
a commit whose version is older. Files beside the table are not commits; their names say to which lease they belong
(`lease_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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
