"""Who works on an upgrade: a user's process on some machine, and whether it is gone for sure."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from compatstore.permissions import user_name


@dataclass(frozen=True)
class Holder:
    """A process.

    Attributes:
        user: Who runs it.
        host: Name of the machine.
        pid: Its number there.
        place: What one must share with it to know it by that number: the boot of the machine and the name space of
            process numbers (two containers may have one host name). "" where the system does not tell.
        born: When it began, as the system counts; a number that was given to another process has another one.
    """

    user: str
    host: str
    pid: int
    place: str = ""
    born: str = ""

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(user_name(), socket.gethostname(), pid, _place(), _born(pid))

    def __str__(self) -> str:
        return f"{self.user} on {self.host}, process {self.pid}"

    def is_gone(self) -> bool:
        """Whether it is known to have ended; false wherever that cannot be told from here."""
        if not self.place or (self.host, self.place) != (socket.gethostname(), _place()):
            return False
        return _born(self.pid) != self.born


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str:
    """The start of a process in clock ticks since boot; "" when it has ended, though nobody may have looked yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started
