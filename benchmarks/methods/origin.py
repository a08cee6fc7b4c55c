"""What stands beside each row of a journal: the settings of the size, the commit, and the hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch

from benchmarks.methods.settings import Size
from benchmarks.pairs.journal import Journal, Record
from compatstore.errors import Incompatible

ROOT = Path(__file__).parents[2]


def origin(size: Size) -> Record:
    """Describe how rows of this process come about."""
    return {"settings": asdict(size), "commit": commit(), "hardware": hardware()}


@cache
def commit() -> str:
    """The commit that this process was started from, with "+" where files differ from it; "" without git."""
    try:
        head, changed = (
            subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def hardware() -> Record:
    """Cores that the process may use, processor, GPU, and how torch uses them."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cores": available,
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    """As Linux names it; elsewhere as Python does."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def require_same_settings(journal: Journal, size: Size) -> None:
    """Refuse to put rows beside others of a size of this name that was another one.

    Raises:
        Incompatible: A row of the journal was taken with other settings.
    """
    for record in journal.records:
        found = record.get("settings", {}) if record["size"] == size.name else {}
        differ = {name: (value, found[name]) for name, value in asdict(size).items() if found.get(name, value) != value}
        if differ:
            raise Incompatible(
                f"add rows of size {size.name} to {journal.path}",
                expected=", ".join(f"{name} {value!r}" for name, (value, _) in differ.items()),
                found=", ".join(f"{name} {value!r}" for name, (_, value) in differ.items()),
                fix="Name another journal, or give the size its settings back.",
            )
